# shellcheck shell=bash disable=SC2034  # what it sets is used by its readers
# Sourced by test/run, samples/run, bench/run and .ci/run.
# REEL_NO_INSTALL=1   only says which Debian packages are missing, and goes on
# REEL_NO_BUILD=1     takes what is built already
# REEL_CMAKE_ARGS     more arguments for cmake

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build
library_packages=(cmake ninja-build g++ ccache pkg-config libopenblas-dev libdnnl-dev zlib1g-dev libxsimd-dev libxtensor-dev
  libxtensor-blas-dev libfmt-dev nlohmann-json3-dev)

# install_missing PACKAGE…: installs those that are not there. Speaks on stderr only.
install_missing() {
  local missing=() package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  echo "Debian packages missing: ${missing[*]}" >&2
  if [[ ${REEL_NO_INSTALL:-} ]]; then return 0; fi
  local as_root=(env DEBIAN_FRONTEND=noninteractive)
  ((EUID == 0)) || as_root=(sudo "${as_root[@]}")
  "${as_root[@]}" apt-get -qq -o Acquire::Retries=3 update >&2
  "${as_root[@]}" apt-get -qq -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}" >&2
}

# build_in FOLDER [CMAKE ARGS] [-- TARGETS]: configures and builds. Speaks on stderr only.
build_in() {
  local folder=$1 arguments=() targets=()
  shift
  if [[ ${REEL_NO_BUILD:-} ]]; then return 0; fi
  while (($#)) && [[ $1 != -- ]]; do arguments+=("$1") && shift; done
  if (($#)); then targets=(--target "${@:2}"); fi
  # shellcheck disable=SC2086  # REEL_CMAKE_ARGS is a list of words
  cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_CUDA_ARCHITECTURES=90 ${REEL_CMAKE_ARGS:-} "${arguments[@]}" >&2
  cmake --build "$folder" -j "$(nproc)" "${targets[@]}" >&2
}

# Samples and benchmarks share the tests' build folder, but a folder made for them needs nothing that only tests need.
without_tests() {
  [[ -f $build/CMakeCache.txt ]] || echo -DREEL_TESTS=OFF
}
