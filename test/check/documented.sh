#!/bin/bash
# Every public declaration has a description: Doxygen counts those that have none. What it warns of is checked first,
# less what the comment of a layer's class says; then its XML is counted: all structs and classes, all free functions,
# 80 % of the public data members.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v doxygen >/dev/null || { echo 'no doxygen, so nothing is counted' && exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A ///@{ … ///@} group of overloads shares the description of its first member. What is deleted or private needs none.
doxygen - >/dev/null <<DOXYFILE
INPUT = include/reel
RECURSIVE = YES
EXCLUDE_PATTERNS = */detail/*
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
wrong=0
[[ ! -s $scratch/rest ]] || wrong=1

# "KIND 0|1 NAME" for every public struct, free function and data member: whether it has a description.
awk '
  function text(line) { gsub(/<[^>]*>/, "", line); gsub(/^ +/, "", line); return line }
  function value(name) { return match($0, " " name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4) : "" }
  /<compounddef / { kind = value("kind"); public = value("prot") != "private"; of = ""; described = 0; member = "" }
  /<compoundname>/ { of = text($0) }
  /<memberdef / { member = value("kind"); seen = value("prot") == "public"; of_member = 0 }
  member && /<name>/ && name == "" { name = text($0) }
  /<(brief|detailed)description>/ { inside = 1 }
  inside && /<para>/ { if (member) of_member = 1; else described = 1 }
  /<\/(brief|detailed)description>/ { inside = 0 }
  /<\/memberdef>/ {
    if (seen && public && member == "variable" && kind ~ /^(struct|class)$/) print "fields", of_member, of "::" name
    if (member == "function" && kind == "namespace") print "functions", of_member, of "::" name
    member = name = ""
  }
  /<\/compounddef>/ { if (public && kind ~ /^(struct|class)$/) print "structs", described, of }' \
  "$scratch"/xml/{namespace,struct,class}*.xml >"$scratch/counted"

share() {  # KIND PERCENT
  local all described
  all=$(grep -c "^$1 " "$scratch/counted" || true)
  described=$(grep -c "^$1 1 " "$scratch/counted" || true)
  echo "$1: $described of $all have a description, $((100 * described / all)) %"
  ((100 * described < $2 * all)) || return 0
  grep "^$1 0 " "$scratch/counted" | cut -d' ' -f3- | head -40
  wrong=1
}
share structs 100
share functions 100
share fields 80
exit "$wrong"
