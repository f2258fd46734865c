#!/bin/bash
# Whichever header a program includes first: without C++20 the first error says that reel needs it. $CXX is the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
check() {
  local said
  said=$("${CXX:-c++}" -std=c++17 -fsyntax-only -Wfatal-errors -Iinclude -x c++ "include/$1" 2>&1 | grep -m 1 ' error: ') || true
  [[ $said == *'reel needs C++20'* ]] || {
    echo "standard: $1 without C++20: ${said:-no error}" >&2
    return 1
  }
}
export -f check
# xtensor.h needs xtensor, which may fail by itself.
(cd include && find reel -name '*.h' ! -name xtensor.h) | xargs -P 2 -I{} bash -c 'check {}'
