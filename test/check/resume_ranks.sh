#!/bin/bash
# A sample on two processes, of which one is killed, is started again by reel-run, continues from its checkpoint, and
# ends with the same bits as one that was left alone: resume_ranks.sh SAMPLES REEL_RUN. SAMPLES is the folder of the
# programs.
set -euo pipefail
samples=$(realpath "$1") reel_run=$(realpath "$2")
folder=$(mktemp -d)
run=
trap '[[ ! $run ]] || kill -KILL "$run" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder"
declare -A commands=(  # all of them have dropout
  [treelstm]='--train-trees 120 --dev-trees 20 --test-trees 20 --batch 3 --embedding 8 --hidden 12 --dropout 0.2 --epochs 3'
  [tagger]='--batch 16 --word-size 8 --letter-size 6 --letter-hidden 6 --hidden 8 --epochs 1'
  [mnist]='--model mlp --epochs 1')

fail() { echo "$1" >&2 && exit 1; }
train() {  # NAME FILES [ARGUMENTS], by the shell that calls it
  # shellcheck disable=SC2086  # a list of words
  exec timeout -k 5 60 "$reel_run" -n 2 --max-restarts 1 --heartbeat 2 "$samples/$1" ${commands[$1]} \
    --save "$2.model" "${@:3}" >"$2.log" 2>&1
}

for name in "${!commands[@]}"; do
  (train "$name" "$name-whole") || fail "$name: $(<"$name-whole.log")"
  for rank in 0 1; do
    files=$name-$rank
    train "$name" "$files" --checkpoint "$files.checkpoint" --checkpoint-minutes 0 &
    run=$!
    until [[ -e $files.checkpoint ]]; do
      kill -0 "$run" 2>/dev/null || fail "$name: no checkpoint: $(<"$files.log")"
      sleep 0.01
    done
    sleep 0.0$((3 * rank + 1))
    mapfile -t ranks < <(pgrep -P "$(pgrep -P "$run" -n)")  # of reel-run, which timeout has started
    kill -KILL "${ranks[rank]}" || fail "$name: rank $rank has ended already"
    wait "$run" || fail "$name: status $?: $(<"$files.log")"
    run=
    grep -q 'continues from' "$files.log" || fail "$name: nothing was continued: $(<"$files.log")"
    cmp "$name-whole.model" "$files.model" || fail "$name: the death of rank $rank has changed the model"
    [[ $(grep test "$files.log" | tail -1) == "$(grep test "$name-whole.log" | tail -1)" ]] ||
      fail "$name: the death of rank $rank has changed its score"
  done
done

# Asked to stop, all processes stop after the same step.
commands[treelstm]=${commands[treelstm]/--epochs 3/--epochs 100000}
train treelstm asked --checkpoint asked.checkpoint --checkpoint-minutes 0 &
run=$!
until [[ -e asked.checkpoint ]]; do
  kill -0 "$run" 2>/dev/null || fail "no checkpoint: $(<asked.log)"
  sleep 0.01
done
kill -TERM "$(pgrep -P "$run" -n)"
status=0
wait "$run" || status=$?
run=
((status == 143)) || fail "SIGTERM ends with status $status: $(<asked.log)"
(($(grep -c 'the same command continues' asked.log) == 2)) || fail "SIGTERM came, and not both say so: $(<asked.log)"
