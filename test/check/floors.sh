#!/bin/bash
# The house rules that a program can check: who includes whom, what lies at the top, sizes, a test for every op.
set -euo pipefail
shopt -s extglob
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
wrong=0
complain() {
  echo "$*"
  wrong=1
}

# ---- a file includes its own floor and those below -------------------------------------------------------------------

# floor_of has a line for each folder, of lib and include/reel alike. A header that lies in include/reel itself belongs
# to the folder of its name, or to the one whose line names it. .github/ARCHITECTURE.md says what each floor knows.
floor_of() {  # sets floor; it is empty for a path that has none yet
  local path=${1#@(include/reel|lib)/}
  case ${path%.h}/ in
    base/* | @(error|precision|threads|types|version)/) floor=0 ;;
    device/* | memory/) floor=1 ;;
    functors/*) floor=1 ;;
    cpu/*) floor=1 ;;
    cuda/?*) floor=1 ;;
    tensor/* | @(cuda|profile|tensor_methods|xtensor)/) floor=2 ;;
    autograd/*) floor=2 ;;
    ops/* | @(ragged|random)/) floor=3 ;;
    amp/*) floor=4 ;;
    data/*) floor=4 ;;
    io/*) floor=4 ;;
    models/*) floor=4 ;;
    nn/* | state_dict/) floor=4 ;;
    optim/*) floor=4 ;;
    tools/* | @(plot|progress)/) floor=4 ;;
    batching/*) floor=5 ;;
    distributed/*) floor=5 ;;
    image/*) floor=5 ;;
    onnx/*) floor=5 ;;
    tensorboard/*) floor=5 ;;
    testing/*) floor=5 ;;
    @(samples|bench|test)/* | @(libtorch_names|reel)/) floor=6 ;;
    *) floor= ;;
  esac
}

sources() { find "$@" -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh'; }

for file in $(sources include lib cuda); do
  floor_of "$file"
  [[ $floor ]] || complain "$file: test/check/floors.sh knows no floor for it"
done

while IFS=: read -r file line text; do
  header=${text#*[\"<]}
  header=${header%%[\">]*}
  case $header in
    reel/*) target=include/$header ;;
    lib/* | cuda/*) target=$header ;;
    *) target= ;;
  esac
  case $file in
    include/reel/xtensor.h) ;;
    include/*) [[ $target == include/* || $header != *[./]* ]] ||
      complain "$file:$line: a public header includes public headers and std only, not $header" ;;
    samples/* | test/consumer/*) [[ $target != @(lib|cuda)/* ]] ||
      complain "$file:$line: written as users write, so $header is out of bounds" ;;
    lib/* | cuda/*) [[ $target || $text != *\"* ]] ||
      complain "$file:$line: $header is not named from the root, as reel/… or lib/…" ;;
  esac
  [[ $target ]] || continue
  floor_of "$file" && own=${floor:-6}
  floor_of "$target"
  ((own >= ${floor:-0})) || complain "$file:$line: floor $own includes $header of floor $floor"
done < <(grep -rnE '^ *# *include' --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' \
  include lib cuda samples bench test)

# ---- how modes treat an op is data, in lib/ops/op_info.h --------------------------------------------------------------

while IFS= read -r line; do
  complain "$line: call() deals with the modes of an op, see lib/ops/call.h"
done < <(grep -rnE 'CastTo|CastTogether|Upcast|op_modes\.(traces|meets|has|active)|refuse_trace|\bPoint\b' lib/ops |
  grep -v '^lib/ops/call\.' || true)

# ---- above the devices' floor no device is named ---------------------------------------------------------------------

# What is needed of one goes through lib/device/device.h. lib/tensor/cuda.cpp implements reel/cuda.h.
while IFS=: read -r file line _; do
  floor_of "$file"
  ((${floor:-0} < 2)) || [[ $file == lib/tensor/cuda.cpp ]] ||
    complain "$file:$line: floor $floor names cuda::, not DeviceRuntime (lib/device/device.h)"
done < <(grep -rnE '\b(cuda::|cuda_runtime\b|namespace cuda\b|reel/cuda\.h)' lib)

# ---- a shared library exports what public headers declare -----------------------------------------------------------

for file in $(grep -rlE "^namespace" include); do
  [[ $(grep -cE "^#pragma GCC visibility (push\(default\)|pop)$" "$file") == 2 ]] ||
    complain "$file: lacks #pragma GCC visibility push(default) and pop around what it declares"
done

# ---- what lies at the top -------------------------------------------------------------------------------------------

for entry in * .[!.]*; do
  case $entry in
    CMakeLists.txt | README.md | LICENSE | .clang-format | .clang-tidy | .editorconfig | .gitignore | .ci | .git | .github) ;;
    include | lib | cuda | test | bench | samples) ;;
    build* | compile_commands.json) ;;
    *) git check-ignore -q "$entry" 2>/dev/null || complain "$entry: does not belong at the top" ;;
  esac
done

for entry in lib/*; do
  [[ -d $entry || $entry == lib/CMakeLists.txt ]] || complain "$entry: belongs in a folder of lib"
done
for folder in include/reel/*/ test/!(check|consumer|cuda|differential|faults|fuzz|reference|simt|support)/; do
  [[ -d lib/$(basename "$folder") ]] || complain "$folder: is not named after a folder of lib"
done

# ---- sizes ----------------------------------------------------------------------------------------------------------

limit=700
for file in $(sources include lib cuda test bench samples); do
  lines=$(wc -l <"$file")
  ((lines <= limit)) || complain "$file: $lines lines, more than $limit"
done
for folder in include lib cuda; do
  echo "$folder: $(sources $folder | xargs cat | wc -l) lines"
done

# ---- every op has a row in the op table -----------------------------------------------------------------------------

# A row opens with the op's name, {"max", or with the name of one of its overloads, {"max(dim)".
tables=$(grep -lE '^const std::vector<Row>& \w+_rows\(\) \{' test/ops/*.cpp)
# shellcheck disable=SC2086  # a list of files
rows=$(grep -ohE '\{"[a-z]\w*["(]' $tables | tr -d '{"(' | sort -u || true)
declared=$(sed -nE 's/^(inline )?[A-Za-z:]+(<[A-Za-z:]+>)? ([a-z]\w*)\(.*/\3/p' include/reel/ops/*.h include/reel/ragged.h |
  grep -v '^operator' | sort -u)
untested=$(comm -23 <(echo "$declared") <(echo "$rows"))
[[ ! $untested ]] || complain "test/ops/*.cpp has no row for: ${untested//$'\n'/ } (CONTRIBUTING, An op)"

# ---- every op has a line in the breadth benchmark --------------------------------------------------------------------

# "NAME… | …": what follows a parenthesis or a colon tells forms apart. "-- NAME… | REASON" leaves ops out.
measured=$(sed -nE '/^(#|==|$)/!s/^(-- )?([^|]*) \|.*/\2/p' bench/breadth.txt | tr ' ' '\n' | sed -E 's/[(:].*//; s/^linalg\.//')
unmeasured=$(comm -23 <(printf '%s\n' "$declared" "$(grep '_$' <<<"$rows")" | sort -u) <(sort -u <<<"$measured"))
[[ ! $unmeasured ]] || complain "bench/breadth.txt has no line for: ${unmeasured//$'\n'/ } (CONTRIBUTING, An op)"

# ---- an op that PyTorch has as a member is a member of Tensor, whose test compares it with the function --------------

functions_only='atleast_1d atleast_2d atleast_3d bilinear bincount bucketize combinations linear linear_relu one_hot
  put_along_dim searchsorted std_mean tensordot unique unique_consecutive var_mean'
functions=$(sed -nE 's/^[A-Za-z:<>]+ (\w+)\(const Tensor& .*/\1/p' include/reel/ops/{index,pointwise,product,rearrange,reduce,scan,sort}.h)
members=$(sed -nE '/values that do not depend/q; s/^  [A-Za-z:<>]+&? (\w+)\(.*/\1/p' include/reel/tensor_methods.h)
tested=$(sed -nE 's/.*\b(METHOD|OVERLOAD|OTHER)\((\w+),.*/\2/p; s/.*\bTWIN(_OVERLOAD)?\((\w+),.*/\2_/p' test/ops/methods.cpp)
# shellcheck disable=SC2086  # lists of words
missing=$(comm -23 <(printf '%s\n' $functions $members | sort -u) <(printf '%s\n' $tested $functions_only | sort -u))
[[ ! $missing ]] || complain "neither compared in test/ops/methods.cpp nor among functions_only here: ${missing//$'\n'/ } (CONTRIBUTING, An op)"

# ---- every file of tests is built -----------------------------------------------------------------------------------

for file in $(grep -lE '^TEST_CASE' test/*/*.cpp); do
  name=${file#test/}
  grep -qw "$name" test/CMakeLists.txt || grep -qsw "${name#*/}" "${file%/*}/CMakeLists.txt" ||
    complain "test/CMakeLists.txt: lacks $name"
done

# ---- what .github/CONTRIBUTING.md asks of a reader and of an optimizer --------------------------------------------------

for reader in $(grep -ohE '\bread_\w+\(' include/reel/data/*.h | tr -d '(' | sort -u); do
  grep -qw "$reader" test/fuzz/targets.cpp || complain "test/fuzz/targets.cpp: no target for $reader (CONTRIBUTING, A reader)"
done
for target in $(sed -n '/^foreach(name/,/)$/p' test/fuzz/CMakeLists.txt | tr -d '()' | sed 's/foreachname [^ ]* //'); do
  grep -qw "$target" .github/SECURITY.md || complain ".github/SECURITY.md: lacks the target $target (CONTRIBUTING, A reader)"
done
for target in $(sed -nE 's/^    \{"(\w+)", .*/\1/p' test/fuzz/targets.cpp); do
  grep -E '^(foreach\(name|  set\(of_images|   ) ' test/fuzz/CMakeLists.txt | grep -qw "$target" ||
    complain "test/fuzz/CMakeLists.txt: lacks the target $target (CONTRIBUTING, A reader)"
done
for optimizer in $(sed -nE 's/^class (\w+) : public OptimizerWith.*/\1/p' include/reel/optim/*.h); do
  [[ $optimizer == LBFGS ]] || grep -q "maker<$optimizer>" test/optim/every.cpp ||
    complain "test/optim/every.cpp: makers lacks $optimizer (CONTRIBUTING, An optimizer)"
  [[ $optimizer == @(LBFGS|SparseAdam) ]] || grep -q "optimizer<optim::$optimizer>" test/cuda/captures.cpp ||
    complain "test/cuda/captures.cpp: lacks $optimizer (CONTRIBUTING, An optimizer)"
done

# ---- a kernel is named in 8 files at most ---------------------------------------------------------------------------

# The header, the tables of ops and of kernels, the op and a kernel on each device; then the struct of its arguments, if any, and a row of the
# op table. CONTRIBUTING says so. These have one op each, some of them also as a member of Tensor.
for kernel in kthvalue multinomial poisson segment_softmax; do
  files=$(grep -rlw "$kernel" include lib cuda | grep -vE '/(tensor_methods\.h|methods\.cpp|autocast\.h)$' | sort)
  (($(wc -l <<<"$files") <= 6)) || complain "$kernel: named in more than 6 files, "${files//$'\n'/ }
done

# ---- the README's first program is a sample that is built ------------------------------------------------------------

# Past the sample's leading comment, word for word.
if ! diff <(sed -n '/^```cpp$/,/^```$/{//!p};/^```$/q' README.md) <(sed '1{/^\/\//d}' samples/quickstart.cpp); then
  complain "README.md: the first program is not samples/quickstart.cpp"
fi

# ---- test names that ctest can pass on ------------------------------------------------------------------------------

while IFS= read -r line; do
  complain "$line: CMake would split this name at its semicolon"
done < <(grep -rnoE --include='*.cpp' 'TEST_CASE\("[^"]*;' test || true)

exit $wrong
