#!/bin/bash
# Prints the commit that the working tree is compared with, to tell what a change touches: base.sh [COMMIT]. Without a
# COMMIT that is the merge base with main or, on main, the last commit that is a day older than HEAD: a change may be
# several commits. Prints nothing where there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
head=$(git rev-parse -q --verify HEAD) || exit 0
git rev-parse -q --verify "${1:-none}^{commit}" && exit
for main in origin/main main; do
  base=$(git merge-base HEAD "$main" 2>/dev/null) || continue
  if [[ $base != "$head" ]]; then echo "$base" && exit; fi
done
git rev-list -1 --first-parent --before="$(($(git show -s --format=%ct HEAD) - 86400))" HEAD
