#!/bin/bash
# Which part of the library's lines the tests on a CPU run, folder by folder: coverage.sh BUILD. BUILD was configured
# with -DREEL_COVERAGE=ON for clang. The vectorised kernels (lib/cpu/simd) are not measured.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
profiles=$build/coverage
rm -rf "$profiles"

# What the sweeps over the op table add to these two are layouts and derivatives of the same code.
parts=('~[ops]~[cuda]' 'every op agrees with its double-precision reference,every gradient agrees with central differences')
printf '%s\0' "${parts[@]}" | LLVM_PROFILE_FILE=$profiles/%p.profraw xargs -0 -P "$(nproc)" -I{} "$build/reel_tests" {} |
  tail -n 4
# Child processes that a test kills leave incomplete profiles, which are passed over.
llvm-profdata merge --failure-mode=all -o "$profiles/all" "$profiles"/*.profraw
llvm-cov report "$build/reel_tests" -instr-profile="$profiles/all" lib include |
  awk -v root="$PWD/" '
    NF < 10 || $8 !~ /^[0-9]+$/ { next }
    $1 == "TOTAL" { name = "all" }
    $1 != "TOTAL" { name = $1; sub(root, "", name); sub("/[^/]*$", "", name) }
    { lines[name] += $8; missed[name] += $9 }
    END { for (name in lines) printf "%-28s %6d lines %6.1f %%\n", name, lines[name], 100 - 100 * missed[name] / lines[name] }' |
  sort
