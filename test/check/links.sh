#!/bin/bash
# The floors of test/check/floors.sh by link: no object refers to a symbol that an object of a floor above defines.
# Includes alone do not show that, since a function may be declared on one floor and defined on another.
#   test/check/links.sh OBJECT…    the library's objects, at …/lib/CMakeFiles/TARGET.dir/tensor/tensor.cpp.o
set -euo pipefail
shopt -s extglob
# shellcheck disable=SC1090  # one function of that file
source <(sed -n '/^floor_of() {/,/^}/p' "$(dirname "${BASH_SOURCE[0]}")/floors.sh")

# "1 FLOOR SOURCE SYMBOL" for what an object defines, 2 for what it refers to. Weak symbols, of inline functions and
# templates, are in every object that needs them.
symbols() {
  local object source
  for object in "$@"; do
    [[ $object == *.o ]] || continue  # a precompiled header
    source=${object%/CMakeFiles/*}
    source=${source##*/}/${object##*.dir/}
    source=${source%.o}
    source=${source//.\/}
    floor_of "$source"
    [[ ${floor:-} ]] || { echo "$source: test/check/floors.sh has no floor for it" >&2 && return 1; }
    nm --format=posix --extern-only "$object" | awk -v at="$floor $source" '
      $2 ~ /^[TDBRC]$/ { print 1, at, $1 }
      $2 == "U" { print 2, at, $1 }'
  done
}

upward=$(symbols "$@" | sort -u | awk '
  $1 == 1 { ++defined; floor[$4] = $2; source[$4] = $3 }
  $1 == 2 && $4 in floor && floor[$4] > $2 { print $3 ": floor " $2 " needs " $4 " of floor " floor[$4] ", " source[$4] }
  END { if (defined < 1000) print "only " defined + 0 " symbols were found" }' | c++filt)
[[ ! $upward ]] || { echo "$upward" && exit 1; }
