#!/bin/bash
# Kernels are compiled once for each instruction set. A weak symbol that two of these objects share would be taken from
# either by the linker, and a machine without AVX-512 might be sent into AVX-512 code. So every weak symbol of them must
# carry its instruction set in its name, which nm cannot always demangle.
# Usage: test/check/isa.sh OBJECT-OR-FOLDER... (objects of lib/cpu/simd only)
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: $0 OBJECT-OR-FOLDER..." >&2; exit 2; }

offenders=$(find "$@" -name '*.o' -exec nm -A -C {} + |
  grep -E ' [WVu] ' | grep -vE 'reel::cpu::(baseline|avx2|avx512)::|_ZN4reel3cpu(8baseline|4avx2|6avx512)| DW\.ref\.' || true)
[ -z "$offenders" ] && exit 0
echo "weak symbols that do not name their instruction set:" >&2
echo "$offenders" >&2
exit 1
