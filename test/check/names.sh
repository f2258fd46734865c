#!/bin/bash
# Names that no test and no row of the op table has are refused, before anything is built: names.sh BUILD_FOLDER.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export REEL_BUILD=$build REEL_NO_BUILD=1 REEL_NO_INSTALL=1
wrong=0
# refuses MESSAGE COMMAND…
refuses() {
  local said
  if said=$("${@:2}" 2>&1) || [[ $said != *"$1"* ]]; then echo "${*:2}: not refused: $said" && wrong=1; fi
}
refuses "no test has a name that matches 'softexp'" test/run -R softexp
refuses "the op table has no row 'softexp'" test/row softexp
refuses "REEL_TEST_ROW=softexp: the op table has no such row" env REEL_TEST_ROW=softexp "$build/reel_tests" '[ops]'
refuses "'softexp' is no file, folder, tag or test" test/quick softexp
refuses 'no test has the tag [softexp]' test/quick '[softexp]'
exit $wrong
