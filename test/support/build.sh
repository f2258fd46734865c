# shellcheck shell=bash disable=SC2034  # what it sets is used by its readers
# Sourced by test/run, test/gpu, test/fuzz/run, samples/run, bench/run and .ci/run.
# REEL_NO_INSTALL=1   only says which Debian packages are missing, and goes on
# REEL_BUILD          the folder of what is built, build/ unless it is set
# REEL_NO_BUILD=1     takes what is built already
# REEL_CUDA=ON|OFF    whether the CUDA sources are built; otherwise they are where there is a CUDA toolkit and, for
#                     samples and benchmarks, a GPU
# REEL_CMAKE_ARGS     more arguments for cmake
# REEL_COMPILED       a file to which each build appends how many files it compiled

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${REEL_BUILD:-$root/build}
library_packages=(cmake ninja-build g++ ccache pkg-config libopenblas-dev libdnnl-dev libutf8proc-dev zlib1g-dev
  libisal-dev libprotozero-dev libxsimd-dev libxtensor-dev libxtensor-blas-dev libfmt-dev nlohmann-json3-dev libgloo-dev
  libpng-dev libjpeg62-turbo-dev)

# quietly LOG COMMAND…: what it says goes to the end of LOG, whose end is shown if it fails.
quietly() {
  local log=$1 status=0
  shift
  "$@" >>"$log" 2>&1 || status=$?
  ((status == 0)) || failed "$log" "$status"
}
failed() {  # LOG STATUS
  {
    tail -n 40 "$1"
    echo "Failed, status $2; all of the log is in $1"
  } >&2
  return "$2"
}

# install_missing PACKAGE…: installs those that are not there. Speaks on stderr only.
install_missing() {
  local missing=() package log
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if [[ ${REEL_NO_INSTALL:-} ]]; then
    echo "Debian packages missing: ${missing[*]}" >&2
    return 0
  fi
  echo "Installing Debian packages (a minute or two): ${missing[*]}" >&2
  local as_root=(env DEBIAN_FRONTEND=noninteractive)
  ((EUID == 0)) || as_root=(sudo "${as_root[@]}")
  log=$(mktemp --suffix=.log)
  quietly "$log" "${as_root[@]}" apt-get -q -o Acquire::Retries=3 update &&
    quietly "$log" "${as_root[@]}" apt-get -q -o Acquire::Retries=3 install -y --no-install-recommends "${missing[@]}" &&
    rm "$log"
}

# build_in FOLDER [CMAKE ARGS] [-- TARGETS]: configures and builds. Says on stderr, and only there, what it is about to
# do and how far it is; the rest is in FOLDER/build.log.
build_in() {
  local folder=$1 arguments=()
  shift
  while (($#)) && [[ $1 != -- ]]; do arguments+=("$1") && shift; done
  configure_in "$folder" "${arguments[@]}" && compile_in "$folder" "${@:2}"
}
configure_in() {  # FOLDER [CMAKE ARGS]
  [[ ! ${REEL_NO_BUILD:-} ]] || return 0
  mkdir -p "$1" && : >"$1/build.log"
  [[ -f $1/CMakeCache.txt ]] || echo "Configuring ${1#"$PWD/"}" >&2
  # shellcheck disable=SC2086  # REEL_CMAKE_ARGS is a list of words
  quietly "$1/build.log" cmake -S "$root" -B "$1" -G Ninja -DCMAKE_CUDA_ARCHITECTURES=90 "-DREEL_CUDA=${REEL_CUDA:-AUTO}" \
    ${REEL_CMAKE_ARGS:-} "${@:2}"
}
compile_in() {  # FOLDER [TARGETS]
  local folder=$1 targets=("${@:2}") log=$1/build.log status=0
  [[ ! ${REEL_NO_BUILD:-} ]] || return 0
  announce "$folder" "${targets[@]}"
  cmake --build "$folder" -j "$(nproc)" ${targets[0]:+--target "${targets[@]}"} 2>&1 | tee -a "$log" | progress ||
    status=${PIPESTATUS[0]}
  [[ ! ${REEL_COMPILED:-} ]] || grep -cE '^\[[0-9]+/[0-9]+\] Building (CXX|CUDA) object' "$log" >>"$REEL_COMPILED" || true
  ((status == 0)) || failed "$log" "$status"
}

# build_sanitized [CMAKE ARGS] [-- TARGETS]: builds in build-sanitize/ by clang with the address and undefined-behaviour
# sanitizers, readers so that libFuzzer follows them. Of the kernels of several instruction sets those of the widest that
# this machine has are instrumented; REEL_ALL_KERNELS=1: all. No header is precompiled, so that missing includes are
# errors.
build_sanitized() {
  local isa=avx2
  if grep -qw avx512vl /proc/cpuinfo; then isa=avx512; fi
  if [[ ${REEL_ALL_KERNELS:-} ]]; then isa=ON; fi
  build_in "$root/build-sanitize" -DCMAKE_CXX_COMPILER=clang++ -DREEL_SANITIZE=address,undefined -DREEL_FUZZ=ON \
    -DREEL_CUDA=OFF "-DREEL_WIDE_KERNELS=$isa" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    '-DCMAKE_CXX_FLAGS_RELEASE=-O1 -D_GLIBCXX_ASSERTIONS' "$@"
}

# announce FOLDER [TARGETS]: how much there is to build, and how long that takes where ccache has none of it.
announce() {
  local steps cpp cuda minutes
  steps=$(ninja -C "$1" -n "${@:2}" 2>/dev/null || true)
  cpp=$(grep -c 'Building CXX' <<<"$steps" || true) cuda=$(grep -c 'Building CUDA' <<<"$steps" || true)
  # Measured: seconds that a core takes for one of them.
  minutes=$(((cpp * 4 + cuda * 14) / $(nproc) / 60))
  ((cpp + cuda)) || return 0
  echo "Building $((cpp + cuda)) files in ${1#"$PWD/"}, about $((minutes > 1 ? minutes : 1)) min on $(nproc) cores" \
    "(log: ${1#"$PWD/"}/build.log)" >&2
}

# Shows how far ninja is: in one line on a terminal, otherwise in a line for every quarter.
progress() {
  local line percent last=0 shown=
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*) ]] || continue
    percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    if [[ -t 2 ]]; then
      printf '\r\033[K%3d %%  %s' "$percent" "${BASH_REMATCH[3]:0:90}" >&2
      shown=1
    elif ((BASH_REMATCH[2] >= 20 && percent >= last + 25)); then
      last=$((percent / 25 * 25))
      echo "$percent %, $SECONDS s" >&2
    fi
  done
  [[ ! $shown ]] || printf '\r\033[K' >&2
}

# Arguments for samples and benchmarks, which share the tests' build folder. One that is made for them leaves out the
# tests and, where no GPU could run them, the CUDA sources, which take longest.
lean() {
  local cache=$build/CMakeCache.txt
  [[ -f $cache ]] || echo -DREEL_TESTS=OFF
  if [[ ! ${REEL_CUDA:-} && ${REEL_CMAKE_ARGS:-} != *REEL_CUDA=* ]] && ! nvidia-smi -L &>/dev/null; then
    echo "-DREEL_CUDA=$(sed -n 's/^REEL_CUDA:[A-Z]*=//p' "$cache" 2>/dev/null | grep . || echo OFF)"
  fi
}
