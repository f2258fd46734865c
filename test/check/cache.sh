#!/bin/bash
# What is compiled in one clone of the repository is found by ccache in another: cache.sh. Compiles a source of each kind
# (g++, nvcc, the simulated GPU, precompiled headers, unity, each sanitizer, coverage) in two folders with a cache of
# their own. Exit status 77, a skipped test, where there is no ccache or clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for program in ccache clang++ ninja; do
  command -v "$program" >/dev/null || { echo "skipped: there is no $program" && exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
first=$work/first second=$work/the-second
mkdir "$first"
tar -c --exclude='./build*' --exclude=./.git . | tar -x -C "$first"
unset CCACHE_DISABLE CCACHE_NODIRECT CCACHE_RECACHE
export CCACHE_DIR=$work/cache

# configure NAME CMAKE ARGS
configure() {
  cmake -S "$first" -B "$first/$1" -G Ninja -DREEL_WERROR=ON -DCMAKE_CUDA_ARCHITECTURES=90 "${@:2}" >"$work/log" 2>&1 ||
    { cat "$work/log" && exit 1; }
}
clang=(-DCMAKE_CXX_COMPILER=clang++ -DREEL_CUDA=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
configure base
configure address "${clang[@]}" -DREEL_SANITIZE=address,undefined -DREEL_FUZZ=ON -DREEL_WIDE_KERNELS=avx2
configure thread "${clang[@]}" -DREEL_SANITIZE=thread
configure coverage "${clang[@]}" -DREEL_COVERAGE=ON
# The other clone: the same files at another path.
cp -a "$first" "$second"
grep -rlF "$first" "$second"/{base,address,thread,coverage} | xargs sed -i "s,$first,$second,g"

# Objects of each kind, as ninja names them.
objects() {
  case $1 in
    base)
      echo lib/CMakeFiles/reel_parts.dir/base/version.cpp.o lib/CMakeFiles/reel_simd_baseline.dir/cpu/simd/table.cpp.o \
        test/CMakeFiles/reel_test_parts.dir/tools/progress.cpp.o \
        samples/CMakeFiles/sample_guide.dir/Unity/unity_0_cxx.cxx.o
      ninja -C "$first/base" -t targets all |
        grep -oE '^(test/simt/CMakeFiles/reel_simt.dir/.*/|cuda/CMakeFiles/reel_cuda.dir/)pinned\.(cpp|cu)\.o'
      ;;
    address)
      echo lib/CMakeFiles/reel_parts.dir/io/source.cpp.o test/CMakeFiles/reel_test_parts.dir/tools/progress.cpp.o
      ;;
    *) echo lib/CMakeFiles/reel_parts.dir/base/version.cpp.o ;;
  esac
}
wrong=0
for build in base address thread coverage; do
  # shellcheck disable=SC2046  # a list of files
  for clone in "$first" "$second"; do
    : >"$work/stats"
    CCACHE_STATSLOG=$work/stats ninja -C "$clone/$build" $(objects "$build") >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
  done
  # What ccache says of each compilation, in lines after its name.
  missed=$(awk '/^# / { if (name) print name ":" said; name = $2; said = ""; next }
    { said = said " " $1 } END { print name ":" said }' "$work/stats" | grep -v 'cache_hit' || true)
  echo "$build: of $(grep -c '^# ' "$work/stats") compilations not found: ${missed:-none}"
  if [[ $missed ]]; then wrong=1; fi
done
exit $wrong
