#!/bin/bash
# What including reel costs a program: reel/reel.h beside the standard headers that it includes, and the headers that are
# not part of it beside reel/reel.h alone. Machines differ and are noisy, so it is ratios of the least of several times
# that are checked, and measured again while they are too large. On a machine where the standard headers take 0.41 s of
# CPU, reel/reel.h may take 1.35 s, and each of the others 0.05 s more.
#   test/check/include_time.sh    with the compiler $CXX
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT=%U

# What a user includes in addition; xtensor.h, which needs xtensor, and testing.h, for tests, may take what they take.
additional=()
for name in distributed image onnx tensorboard; do
  [[ ! -f include/reel/$name.h ]] || additional+=("$name")
done

echo '#include <reel/reel.h>' >"$work/reel.cpp"
"${CXX:-c++}" -std=c++20 -Iinclude -M "$work/reel.cpp" | grep -oE 'include/reel/\S+' | sort -u >"$work/headers"
xargs sed -nE 's/^# *(include <[a-z_]+>)$/#\1/p' <"$work/headers" | sort -u >"$work/standard.cpp"
printf '#include <reel/%s.h>\n' reel "${additional[@]}" >"$work/all.cpp"

measure() {  # NAME: the time of one compilation, in milliseconds of CPU, if it is the least so far
  local time
  time=$({ time "${CXX:-c++}" -std=c++20 -Iinclude -fsyntax-only "$work/$1.cpp"; } 2>&1)
  time=${time/./}
  time=$((10#$time))
  if ((!${least[$1]:-0} || time < least[$1])); then least[$1]=$time; fi
}
declare -A least
judge() {  # NAME BASE TIMES SHARE: at most TIMES % of the base's time, and SHARE % of the standard headers'
  local limit=$((least[$2] * $3 / 100 + least[standard] * $4 / 100))
  echo "$1: ${least[$1]} ms of CPU, at most $limit; $2 takes ${least[$2]}"
  ((least[$1] <= limit))
}
for ((round = 1; round <= 8; ++round)); do
  for name in standard reel all; do measure "$name"; done
  wrong=0
  judge reel standard 330 0 || wrong=1
  judge all reel 100 $((12 * ${#additional[@]})) || wrong=1  # with all of the others
  if ((round >= 2 && !wrong)); then break; fi
done
exit "$wrong"
