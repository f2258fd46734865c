#!/bin/bash
# cuBLAS and cuDNN are found where Python's packages bring them, nvidia/cu13 and nvidia/cudnn in site-packages, whose
# libraries have the names libcublasLt.so.13 and libcudnn.so.9 only: test/check/nvidia.sh [SITE-PACKAGES]. Without
# arguments in folders that look like that, with one in real ones. The toolkit, which has neither, is preferred if it has.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvidia=$work/site-packages/nvidia
make() {  # FOLDER HEADER LIBRARY
  mkdir -p "$1"/{include,lib} && touch "$1/include/$2" "$1/lib/$3"
}
if (($#)); then
  nvidia=$1/nvidia
else
  make "$nvidia/cu13" cublasLt.h libcublasLt.so.13
  make "$nvidia/cudnn" cudnn.h libcudnn.so.9
fi
mkdir -p "$work"/{toolkit/lib64,toolkit/include,project}
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(look LANGUAGES CXX)
set(CUDAToolkit_LIBRARY_ROOT $work/toolkit)
set(CUDAToolkit_TARGET_DIR $work/toolkit)
set(CUDAToolkit_INCLUDE_DIRS $work/toolkit/include)
set(CUDAToolkit_LIBRARY_DIR $work/toolkit/lib64)
set(CUDAToolkit_VERSION_MAJOR 13)
include($root/cuda/cublas.cmake)
include($root/cuda/cudnn.cmake)
get_target_property(cudnn reel::cudnn IMPORTED_LOCATION)
file(WRITE found.txt "\${CUBLASLT_INCLUDE_DIR} \${CUBLASLT_LIBRARY} \${CUDNN_INCLUDE_DIR} \${cudnn}\n")
END
expect() {  # FOUND…
  rm -rf "$work/build"
  REEL_NVIDIA_DIRS="$nvidia/cu13;$nvidia/cudnn" cmake -S "$work/project" -B "$work/build" >"$work/log" 2>&1 ||
    { cat "$work/log" && exit 1; }
  [[ $(<"$work/project/found.txt") == "$*" ]] || { echo "found $(<"$work/project/found.txt")instead of $*" && exit 1; }
}
cudnn=("$nvidia/cudnn/include" "$nvidia/cudnn/lib/libcudnn.so.9")
expect "$nvidia/cu13/include" "$nvidia/cu13/lib/libcublasLt.so.13" "${cudnn[@]}"
touch "$work/toolkit/include/cublasLt.h" "$work/toolkit/lib64/libcublasLt.so"
expect "$work/toolkit/include" "$work/toolkit/lib64/libcublasLt.so" "${cudnn[@]}"
