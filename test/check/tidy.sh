#!/bin/bash
# clang-tidy over the C++ sources that have changed since a commit: tidy.sh BUILD [COMMIT]. BUILD is a build folder of
# clang's. Without a COMMIT test/check/base.sh names it; where there is none, all sources have changed. After
# REEL_TIDY_SECONDS (80) no further file is begun.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

base=$(test/check/base.sh "${2:-}")
mapfile -t files < <(
  if [[ $base ]]; then git diff --name-only --diff-filter=d "$base"; else git ls-files; fi |
    grep -E '^(lib|bench|samples|test)/.*\.cpp$' | grep -Fxf <(sed -n "s|.*\"file\": \"$PWD/\(.*\)\".*|\1|p" "$build/compile_commands.json") |
    sort -u -R --random-source=.clang-tidy)
if ((!${#files[@]})); then echo "no source has changed since ${base:-the beginning}" && exit; fi

tidy() {
  (($(date +%s) < deadline)) || return 0
  echo "$1" >>"$begun"
  clang-tidy -p "$build" --quiet --warnings-as-errors='*' "$1" 2>/dev/null
}
export -f tidy
export build begun deadline
begun=$(mktemp)
trap 'rm -f "$begun"' EXIT
deadline=$(($(date +%s) + ${REEL_TIDY_SECONDS:-80}))
status=0
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} bash -c 'tidy {}' || status=1
echo "$(wc -l <"$begun") of ${#files[@]} sources checked that have changed since ${base:-the beginning}"
exit $status
