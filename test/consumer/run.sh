#!/bin/bash
# Programs of strangers: run.sh BUILD installs that build into an empty folder, moves it and builds main.cpp,
# boundary.cpp and, where they are part of the package, distributed.cpp and image.cpp against it, by find_package and by
# pkg-config, with the compiler $CXX. $CUDA_LIBRARIES is where a linker that does not search the CUDA toolkit by itself
# finds it. run.sh --deb BUILD makes Debian packages, unpacks them and does the same with what they hold.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "consumer: $*" >&2
  exit 1
}
# packages BUILD: makes and checks them, and unpacks them into $work/moved.
packages() {
  local package foreign
  (cd "$1" && cpack -B "$work/debs" >"$work/log" 2>&1) || fail "$(cat "$work/log")"
  for package in "$work"/debs/*.deb; do
    dpkg-deb --info "$package" >>"$work/info"
    dpkg-deb --extract "$package" "$work/unpacked"
  done
  grep -E '^ (Package|Depends|Suggests):' "$work/info"
  for package in ' Package: libreel0\.1$' ' Package: libreel-dev$' ' Depends: .*libopenblas0.*libstdc\+\+6' \
    ' Depends:.* libreel0\.1 \(= ' ' Suggests: libxtensor-dev$'; do
    grep -qE "^$package" "$work/info" || fail "no package says$package"
  done
  compgen -G "$work/unpacked/usr/lib/*-linux-gnu*/libreel.so.0.1" >/dev/null || fail 'no library in the multiarch folder'
  # Names of other libraries would clash with those of a program that uses another version of these.
  foreign=$(nm -DC --defined-only "$work"/unpacked/usr/lib/*/libreel*.so.0.1 |
    grep -E '\b(nlohmann|fmt|protozero|xsimd|xt|dnnl|gloo|CLI)::' || true)
  [[ ! $foreign ]] || fail "the libraries export names that are not reel's: $foreign"
  # A library that no package owns, as CUDA's from NVIDIA's installer, is refused.
  touch "$work/libcudart.so.13"
  sed "s,^foreach(library.*,foreach(library $work/libcudart.so.13)," "$1/check_package.cmake" >"$work/check.cmake"
  if cmake -P "$work/check.cmake" &>"$work/log" || ! tr -s ' \n' ' ' <"$work/log" | grep -q 'which no Debian package owns'; then
    fail 'a package could depend on a library that no package owns'
  fi
  mv "$work/unpacked/usr" "$work/moved"
}

if [[ $1 == --deb ]]; then
  packages "$2"
else
  cmake --install "$1" --prefix "$work/reel" >/dev/null
  mv "$work/reel" "$work/moved"
fi
package=$(dirname "$(find "$work/moved" -name reel.pc)")
if grep -rE 'fmt|nlohmann|xsimd|xtensor' "$work/moved" --include='*.cmake' --include='*.pc'; then
  fail 'the package asks its users for what only reel itself needs'
fi
# Where the prefix is /usr, CMake itself adds lines for systems whose /lib is a link to /usr/lib.
if grep -rnE '(^|[^]}A-Za-z0-9_.*+)]|-[LI])/[A-Za-z]' "$work/moved" --include='*.cmake' --include='*.pc' |
  grep -vE '/lib -> /usr/lib|_realOrig|set\(_IMPORT_PREFIX "/usr/lib'; then
  fail 'the package holds a path of the machine that it was built on'
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
# A plug-in and its program share the library if it is shared; otherwise one of them says on stderr, once, that there are
# two. It must stay when it is closed, since threads call it when they end.
# shellcheck disable=SC2046  # lists of flags
{
  flags=$(PKG_CONFIG_PATH=$package pkg-config --cflags --libs reel)
  "${CXX:-c++}" -std=c++20 -fPIC -shared "$here/plugin.cpp" -o "$work/plugin.so" $flags ${CUDA_LIBRARIES:+-L"$CUDA_LIBRARIES"}
  "${CXX:-c++}" -std=c++20 "$here/plugin_host.cpp" -o "$work/plugin_host" $flags ${CUDA_LIBRARIES:+-L"$CUDA_LIBRARIES"} -ldl
  printed=$(LD_LIBRARY_PATH=${package%/pkgconfig}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
    "$work/plugin_host" "$work/plugin.so" 2>"$work/log" | tr '\n' ' ') || fail "the plug-in's program fails: $(cat "$work/log")"
  said=$(grep -c "two copies of the library, in .*plugin_host and in $work/plugin.so" "$work/log" || true)
  if compgen -G "${package%/pkgconfig}/libreel.so*" >/dev/null; then expected='0 0 0'; else expected='1 1 1'; fi
  [[ "$said $printed" == "$expected " ]] || fail "a plug-in: $said messages, printed $printed; $(cat "$work/log")"
}
try boundary reel
[[ ! -e $package/reel-image.pc ]] || try image reel-image
[[ ! -e $package/reel-distributed.pc ]] || try distributed reel-distributed "$work/moved/bin/reel-run" -n 2 --timeout 60
