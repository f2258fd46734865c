#!/bin/bash
# Compiles CUDA sources as the GPUs of CMAKE_CUDA_ARCHITECTURES and later ones get them, and fails where a kernel spills
# registers or loads 16 bytes at a time but stores fewer: test/check/sass.sh [FILE.cu…], all of cuda/ unless some are named.
# REEL_SASS_ARCHS names the architectures (80 90 100). The stores are looked for where there is a cuobjdump ($CUOBJDUMP;
# it comes with CUDA's toolkit or the Python package nvidia-cuda-cuobjdump). Needs no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

nvcc=$(command -v nvcc || echo "${CUDA_PATH:-/usr/local/cuda}/bin/nvcc")
[[ -x $nvcc ]] || { echo 'skipped: there is no nvcc' && exit 77; }
cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || true)}
[[ $cuobjdump ]] || echo 'there is no cuobjdump, so only spills are looked for'
(($#)) || set -- cuda/*.cu
# float64 kernels of these files spill: see cuda/CMakeLists.txt.
may_spill=" $(sed -n 's/^set(may_spill \(.*\))$/\1/p' cuda/CMakeLists.txt) "

# What the file's kernels do wrong.
judge() {  # FILE ARCH CUBIN LOG
  local allowed=0
  [[ $may_spill != *" ${1##*/} "* ]] || allowed=1
  awk -v file="$1" -v arch="$2" -v allowed="$allowed" '
    /Function properties for/ { name = $NF }
    /bytes spill stores/ && $5 > 0 && !allowed { print file ", sm_" arch ": " $5 " bytes spilled by " name }' "$4"
  [[ $cuobjdump ]] || return 0
  # A reduction loads packs and stores single results; conversions and comparisons (whose results are bool, `b`) may
  # store elements that are smaller than those they load.
  "$cuobjdump" -sass "$3" | awk -v file="$1" -v arch="$2" '
    function judge() { if (loads && stores && !wide && name !~ /reduce_kernel|reduce_packs_kernel|combine_kernel|(flat|strided)_kernel.*(7Convert|6ToBool|EbJ)/)
      print file ", sm_" arch ": loads 16 bytes at a time, but stores fewer: " name }
    /Function :/ { judge(); name = $3; loads = stores = wide = 0 }
    / LDG[.A-Z]*\.128/ { loads = 1 }
    / STG/ { stores = 1 }
    / STG[.A-Z]*\.128/ { wide = 1 }
    END { judge() }'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
found=0
for file in "$@"; do
  case ${file##*/} in dnn*.cu | no_dnn.cu | primitives.cu) continue ;; esac  # no kernels of our own
  for arch in ${REEL_SASS_ARCHS:-80 90 100}; do
    if ! "$nvcc" -ccbin g++ -std=c++20 -O3 -DNDEBUG -DFMT_HEADER_ONLY=1 -I. -Iinclude -diag-suppress 186 "-arch=sm_$arch" \
      -cubin -Xptxas -v -o "$work/cubin" "$file" >"$work/log" 2>&1; then
      tail -n 20 "$work/log" && exit 1
    fi
    judge "$file" "$arch" "$work/cubin" "$work/log" >"$work/wrong"
    if [[ -s $work/wrong ]]; then c++filt <"$work/wrong" && found=1; fi
  done
done
((found)) || echo "kernels of $# files neither spill nor store narrowly"
exit "$found"
