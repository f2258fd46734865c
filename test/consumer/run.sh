#!/bin/bash
# Programs of strangers: run.sh BUILD installs that build into an empty folder, moves it and builds main.cpp,
# boundary.cpp and, where they are part of the package, distributed.cpp and image.cpp against it, by find_package and by pkg-config, with
# the compiler $CXX. $CUDA_LIBRARIES is where a linker that does not search the CUDA toolkit by itself finds it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$1" --prefix "$work/reel" >/dev/null
mv "$work/reel" "$work/moved"
package=$(dirname "$(find "$work/moved" -name reel.pc)")
if grep -rE 'fmt|nlohmann|xsimd|xtensor' "$work/moved" --include='*.cmake' --include='*.pc'; then
  echo "consumer: the package asks its users for what only reel itself needs" >&2
  exit 1
fi
if grep -rnE '(^|[^]}A-Za-z0-9_.*+)]|-[LI])/[A-Za-z]' "$work/moved" --include='*.cmake' --include='*.pc'; then
  echo "consumer: the package holds a path of the machine that it was built on" >&2
  exit 1
fi

cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved" >/dev/null
cmake --build "$work/build"
# try PROGRAM PACKAGE [LAUNCHER…]: runs what CMake has built, and what pkg-config's flags build.
try() {
  local program=$1 needs=$2
  shift 2
  "$@" "$work/build/$program"
  # shellcheck disable=SC2046  # a list of flags
  "${CXX:-c++}" -std=c++20 "$here/$program.cpp" -o "$work/$program" \
    $(PKG_CONFIG_PATH=$package pkg-config --cflags --libs "$needs") ${CUDA_LIBRARIES:+-L"$CUDA_LIBRARIES"}
  LD_LIBRARY_PATH=${package%/pkgconfig}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@" "$work/$program"
}
try main reel
try boundary reel
[[ ! -e $package/reel-image.pc ]] || try image reel-image
[[ ! -e $package/reel-distributed.pc ]] || try distributed reel-distributed "$work/moved/bin/reel-run" -n 2 --timeout 60
