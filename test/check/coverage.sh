#!/bin/bash
# Which part of the library's lines the tests on a CPU run, folder by folder: coverage.sh BUILD. BUILD was configured
# with -DREEL_COVERAGE=ON for clang, and its tests have run with LLVM_PROFILE_FILE=BUILD/coverage/%4m.profraw. The
# vectorised kernels (lib/cpu/simd) are not measured.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
profiles=$build/coverage
compgen -G "$profiles/*.profraw" >/dev/null || { echo "coverage.sh: $profiles has no profiles of tests" >&2 && exit 1; }

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
