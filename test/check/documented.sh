#!/bin/bash
# Every public declaration has a description: Doxygen counts those that have none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v doxygen >/dev/null || { echo 'no doxygen, so nothing is counted' && exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A ///@{ … ///@} group of overloads shares the description of its first member. What is deleted or private needs none.
doxygen - >/dev/null <<DOXYFILE
INPUT = include/reel
RECURSIVE = YES
EXCLUDE = include/reel/detail include/reel/data/detail include/reel/nn/detail
EXCLUDE_SYMBOLS = *::detail *::detail::* *::internal *::internal::*
DISTRIBUTE_GROUP_DOC = YES
EXTRACT_ALL = NO
WARN_IF_UNDOCUMENTED = YES
WARN_LOGFILE = $scratch/warnings
QUIET = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
OUTPUT_DIRECTORY = $scratch
HAVE_DOT = NO
CLASS_GRAPH = NO
COLLABORATION_GRAPH = NO
DOXYFILE
# The comment of a layer's class describes its constructors, its call and the members that hold what it is made of.
of_layers='
  $1 !~ "/nn/" { print; next }
  /Member (forward|operator\(\)|reset_parameters|extra_repr)\(/ { next }
  match($0, /of (class|struct) .* is not/) {
    split(substr($0, RSTART, RLENGTH - 7), type, /[ <]/)
    sub(/.*::/, "", type[3])
    constructor = index($0, "Member " type[3] "(")
    held = /\(variable\)/ && type[3] !~ /(Options|Output|Result|Row|Summary)$/
    if (constructor || held) next
  }
  { print }'
sed "s,^$PWD/,," "$scratch/warnings" | sort -u | awk "$of_layers" >"$scratch/rest"
head -50 "$scratch/rest"
echo "$(wc -l <"$scratch/rest") undocumented declarations and other warnings"
[[ ! -s $scratch/rest ]]
