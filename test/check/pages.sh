#!/bin/bash
# The rules of the documentation that a program can check: a relative link leads to a file and to a heading in it, README
# and the guide's pages are short, and the guide's index has all pages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
wrong=0
complain() {
  echo "$*"
  wrong=1
}
pages() { find . -name '*.md' -not -path './build*' -not -path './.git/*' -printf '%P\n' | sort; }

# ---- links -----------------------------------------------------------------------------------------------------------

# Prints the page's anchors as GitHub makes them of its headings: "how-fast"; of equal ones the second is "how-fast-1".
anchors_of() {
  awk '
    /^```/ { code = !code }
    code || !/^#+ / { next }
    {
      sub(/^#+ +/, "")
      while (match($0, /\]\([^)]*\)/)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH)
      text = tolower($0)
      gsub(/[^a-z0-9 _-]/, "", text)
      gsub(/ /, "-", text)
      print text (seen[text]++ ? "-" seen[text] - 1 : "")
    }' "$1"
}

# Prints "LINE TARGET" for each link outside of code.
links_of() {
  awk '
    /^```/ { code = !code }
    code || /^    / { next }
    {
      gsub(/`[^`]*`/, "")
      while (match($0, /\]\([^()]+\)/)) {
        print FNR, substr($0, RSTART + 2, RLENGTH - 3)
        $0 = substr($0, RSTART + RLENGTH)
      }
    }' "$1"
}

count=0
while IFS= read -r page; do
  while read -r line target; do
    case $target in
      http://* | https://* | mailto:*) continue ;;
    esac
    ((++count))
    path=${target%%#*}
    file=$page
    if [[ $path ]]; then file=$(realpath -m --relative-to=. "$(dirname "$page")/$path"); fi
    if [[ ! -e $file ]]; then
      complain "$page:$line: $target: there is no such file"
    elif [[ $target == *#* && $file == *.md ]] && ! grep -qxF -- "${target#*#}" <<<"$(anchors_of "$file")"; then
      complain "$page:$line: $target: $file has no such heading"
    fi
  done < <(links_of "$page")
done < <(pages)
((count >= 100)) || complain "only $count links were found"

# ---- sizes -----------------------------------------------------------------------------------------------------------

limit() {  # limit BYTES FILE…
  local bytes=$1 file size
  shift
  for file in "$@"; do
    size=$(wc -c <"$file")
    ((size <= bytes)) || complain "$file: $size bytes, more than $bytes: a page is short, and a task has a page of its own"
  done
}
limit $((12 * 1024)) README.md
limit $((6 * 1024)) samples/guide/*.md

# ---- the guide's index has all pages ---------------------------------------------------------------------------------

for page in samples/guide/*.md; do
  name=${page##*/}
  [[ $name == README.md ]] || grep -qF "]($name" samples/guide/README.md || complain "$page: samples/guide/README.md has no link"
done

exit $wrong
