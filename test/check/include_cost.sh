#!/bin/bash
# What including reel costs a program: reel/reel.h beside the standard headers that it includes, and the headers that are
# not part of it beside reel/reel.h alone. What is counted is the memory that GCC allocates for declarations and template
# instances: it goes with the time of a compilation, and unlike that it is the same in each run. On a machine where the
# standard headers take 0.9 s of CPU, reel/reel.h takes 2.4 s, and all of the others 0.1 s more.
#   test/check/include_cost.sh    with the compiler $CXX; 77: it is not GCC
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cxx=${CXX:-g++}
"$cxx" -v 2>&1 | grep '^gcc version' >/dev/null || exit 77

# What a user includes in addition; xtensor.h, which needs xtensor, and testing.h, for tests, may take what they take.
additional=()
for name in distributed image onnx tensorboard; do
  [[ ! -f include/reel/$name.h ]] || additional+=("$name")
done

echo '#include <reel/reel.h>' >"$work/reel.cpp"
"$cxx" -std=c++20 -Iinclude -M "$work/reel.cpp" | grep -oE 'include/reel/\S+' | sort -u >"$work/headers"
xargs sed -nE 's/^# *(include <[a-z_]+>)$/#\1/p' <"$work/headers" | sort -u >"$work/standard.cpp"
printf '#include <reel/%s.h>\n' reel "${additional[@]}" >"$work/all.cpp"

measure() {  # NAME: the megabytes that GCC allocates for NAME.cpp
  "$cxx" -std=c++20 -Iinclude -fsyntax-only -ftime-report "$work/$1.cpp" 2>&1 | sed -nE 's/^ *TOTAL .* ([0-9]+)M$/\1/p'
}
judge() {  # NAME MEGABYTES LIMIT
  echo "$1: $2 MB, at most $3"
  (($2 <= $3)) || wrong=1
}
standard=$(measure standard)
reel=$(measure reel)
all=$(measure all)
: "${standard:?GCC printed no total}"
wrong=0
judge "reel/reel.h, where the standard headers take $standard" "$reel" $((standard * 265 / 100))
judge "with ${additional[*]}" "$all" $((reel + standard * 6 * ${#additional[@]} / 100))
exit "$wrong"
