#!/bin/bash
# Lists the functions and macros of the public headers that have no sentence, and fails if there are any.
# Needs doxygen. Overloads share a sentence; operators, members, options and enumerations may speak for themselves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

doxygen - >/dev/null 2>&1 <<END
INPUT = include/reel
RECURSIVE = YES
STRIP_FROM_PATH = $PWD
EXTRACT_ALL = YES
CLASS_GRAPH = NO
WARNINGS = NO
QUIET = YES
GENERATE_LATEX = NO
GENERATE_HTML = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
XML_OUTPUT = $work
END
mapfile -t files < <(find "$work" -name 'namespacereel*.xml' -not -name '*detail*' -not -name '*internal*' -o -name '*_8h.xml')
awk '
  /<compounddef/ { scope = FILENAME; macros = FILENAME ~ /_8h\.xml$/ }
  /<memberdef/ { match($0, /kind="[a-z]+"/); kind = substr($0, RSTART + 6, RLENGTH - 7); name = ""; said = described = 0 }
  /^ *<name>/ && !name { gsub(/ *<\/?name>/, ""); name = $0 }
  /<(brief|detailed)description>/ { described = 1 }
  described && /<para>/ { said = 1 }
  /<\/(brief|detailed)description>/ { described = 0 }
  /<location file=/ && kind { split($0, part, "\""); place = part[2] ":" part[4] }
  /<\/memberdef>/ {
    if (macros ? kind == "define" : kind == "function") {
      ++total
      key = scope " " name
      if (said) documented[key] = 1
      else if (name !~ /^operator/) missing[place ": " kind " " name] = key
    }
    kind = ""
  }
  END {
    for (one in missing) if (!documented[missing[one]]) { print one; ++count }
    printf "undocumented: %d of %d\n", count, total > "/dev/stderr"
    exit count > 0
  }' "${files[@]}" | sort -t: -k1,1 -k2,2n
