#!/bin/bash
# Checks that reel declares a counterpart for all that parity.txt lists: test/check/parity.sh.
#   --write         writes the table of them to parity.md; without it the file must be up to date
#   --libtorch DIR  lists modules, functionals and optimizers of that libtorch (DIR has torch/nn/modules) that
#                   parity.txt does not know
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
wrong=0

if [[ ${1:-} == --libtorch ]]; then
  known=$(sed -nE 's/^[a-z]+ (\w+).*/\1/p' test/check/parity.txt | sort -u)
  comm -23 <({
    grep -rhoE 'TORCH_MODULE(_IMPL)?\(\w+' "$2/torch/nn/modules" | sed 's/.*(//'
    grep -rhoE '^inline [A-Za-z:<>, ]+ \w+\(' "$2/torch/nn/functional" | sed -E 's/.* (\w+)\($/\1/'
    grep -rhoE '^class TORCH_API \w+ : public Optimizer' "$2/torch/optim" | awk '{print $3}'
  } | sort -u) <(echo "$known")
  exit
fi

# The header that declares a type or function, as reel/….
header_of() {
  case $1 in
    [A-Z]*) grep -rlE "^ *(struct|class|using|enum class|template <.*> *(struct|class|using)) $1\b" include/reel | LC_ALL=C sort | sed -n 1p ;;
    *)  # a function of a namespace, or else a member
      { grep -rlP "^(?!namespace)[A-Za-z[].*\b$1\(" include/reel || grep -rlE "\b$1\(" include/reel; } | LC_ALL=C sort | sed -n 1p ;;
  esac
}

# What lib/ops/op_info.h says of an op: the dtype that autocast gives it, and why it is not exported to ONNX.
op_info() {
  local line
  line=$(sed -n "/{.name = \"$1\"[,}]/{s/.*{//p;q}" lib/ops/op_info.h)
  autocast=$(sed -nE 's/.*autocast = kTo([A-Za-z0-9]+).*/\L\1/p' <<<"$line")
  onnx=
  [[ $line != *not_exported* ]] || onnx=no
}

table() {
  echo '# libtorch in C++ and its counterpart in reel'
  echo
  echo 'Written by `test/check/parity.sh --write` from `parity.txt`, the headers and `lib/ops/op_info.h`. *autocast* is the dtype'
  echo 'in which autocast computes; an op without an entry computes in those of its inputs, or its parts choose. *ONNX* says'
  echo '`no` where `onnx::save` does not export the op.'
  local kind name counterpart reason header autocast onnx section=
  declare -A title=([module]=Modules [loss]='Loss modules' [functional]=Functionals [optimizer]=Optimizers
    [scheduler]='Learning-rate schedules' [init]='Initial values' [data]=Data [util]=Utilities
    [beyond]='What libtorch does not have in C++')
  while read -r kind name rest; do
    counterpart=$name reason=
    if [[ $rest == '= '* ]]; then
      rest=${rest#= }
      counterpart=${rest%% *}
      rest=${rest#"$counterpart"}
      rest=${rest# }
    fi
    if [[ $rest == '- '* ]]; then
      reason=${rest#- }
      [[ $counterpart == "$name" ]] && counterpart=
    fi
    if [[ $kind != "$section" ]]; then
      section=$kind
      printf '\n## %s\n\n' "${title[$kind]}"
      if [[ $kind == functional ]]; then
        printf '| libtorch | reel | header | autocast | ONNX |\n|---|---|---|---|---|\n'
      else
        printf '| libtorch | reel | header |\n|---|---|---|\n'
      fi
    fi
    header=
    if [[ $counterpart ]]; then
      header=$(header_of "$counterpart")
      if [[ ! $header ]]; then
        echo "parity: no header declares $counterpart, the counterpart of $kind $name" >&2
        exit 1
      fi
    fi
    [[ $kind == beyond ]] && name=
    printf '| %s | %s | %s |' "$name" "${counterpart:-no: $reason}${counterpart:+${reason:+ ($reason)}}" \
      "${header#include/}"
    if [[ $kind == functional ]]; then
      op_info "$counterpart"
      printf ' %s | %s |' "$autocast" "$onnx"
    fi
    echo
  done < <(grep -v '^#' test/check/parity.txt)
}

if [[ ${1:-} == --write ]]; then
  table >test/check/parity.md
else
  diff <(table) test/check/parity.md || { echo 'parity: test/check/parity.sh --write brings parity.md up to date' >&2; wrong=1; }
fi
exit $wrong
