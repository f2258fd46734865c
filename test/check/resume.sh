#!/bin/bash
# A sample that is killed at random moments, or asked to stop, ends with the same bits as one that was left alone:
# resume.sh SAMPLES KILLS. SAMPLES is the folder of the programs.
set -euo pipefail
samples=$(realpath "$1") kills=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
declare -A commands=(
  [treelstm]='--train-trees 60 --dev-trees 20 --test-trees 20 --batch 5 --embedding 8 --hidden 12 --dropout 0.2'
  [tagger]='--batch 16 --word-size 8 --letter-size 6 --letter-hidden 6 --hidden 8'
  [mnist]='--model softmax'
  [images]='--model resnet8 --stride 2 --width 4 --drawn 400 --batch 16'
  [word2vec]='--size 8 --threads 1'
  [textcnn]='--size 8 --filters 4 --folds 4 --threads 1'
  [lm]='--updates 60 --every 20 --hidden 16 --dropout 0.2 --recurrent-dropout 0.2'
  [modules]='--train-questions 300 --dev-questions 60 --test-questions 60 --batch 10 --features 8')
declare -A epochs=([treelstm]=3 [tagger]=1 [mnist]=12 [images]=4 [word2vec]=3 [textcnn]=1 [lm]=1 [modules]=3)
RANDOM=1

fail() { echo "$1" >&2 && exit 1; }
train() {  # NAME FILES [ARGUMENTS]
  # shellcheck disable=SC2086  # a list of words
  OPENBLAS_NUM_THREADS=1 "$samples/$1" ${commands[$1]} --epochs "${epochs[$1]}" --save "$2.model" "${@:3}" >"$2.log" 2>&1
}
until_saved() {  # FILES, of the run in the background
  until [[ -e $1.checkpoint ]]; do
    kill -0 $! 2>/dev/null || fail "no checkpoint: $(<"$1.log")"
    sleep 0.01
  done
}

for name in "${!commands[@]}"; do
  begun=$(date +%s%N)
  train "$name" "$name-whole" || fail "$(<"$name-whole.log")"
  took=$((($(date +%s%N) - begun) / 1000000))  # ms
  run=$name-killed
  resumable=(--checkpoint "$run.checkpoint" --checkpoint-minutes 0)
  for ((i = 0; i < kills; ++i)); do
    train "$name" "$run" "${resumable[@]}" &
    if ((i == 0)); then  # at least one run has something to continue
      until_saved "$run"
    else
      wait=$((RANDOM * took / 32768 + 20))
      sleep "$((wait / 1000)).$(printf '%03d' $((wait % 1000)))"
    fi
    signal=KILL status=0
    ((i % 4 != 3)) || signal=TERM
    pkill -"$signal" -P $! 2>/dev/null || true
    wait $! || status=$?
    ((status == 0 || status == 137 || status == 143)) || fail "$name: status $status: $(<"$run.log")"
  done
  train "$name" "$run" "${resumable[@]}" || fail "$name: $(<"$run.log")"
  cmp "$name-whole.model" "$run.model" || fail "$name: $kills kills have changed the model"
  [[ $(tail -1 "$run.log") == "$(tail -1 "$name-whole.log")" ]] || fail "$name: $kills kills have changed its score"
  grep -q '^continues from' "$run.log" || fail "$name: nothing was continued"
  ! compgen -G ".$run*.tmp-*" >/dev/null || fail "$name: temporary files are left"
done

# It says how it continues. (Above, SIGTERM may come before or after the training.)
epochs[treelstm]=100000
train treelstm asked --checkpoint asked.checkpoint --checkpoint-minutes 0 &
until_saved asked
pkill -TERM -P $!
status=0
wait $! || status=$?
((status == 143)) || fail "SIGTERM ends with status $status: $(<asked.log)"
grep -q 'the same command continues' asked.log || fail "SIGTERM came, and the run does not say so: $(<asked.log)"

# What is wrong is said before the training.
for path in /nowhere/x .; do
  if train mnist bad --checkpoint "$path"; then fail "--checkpoint $path is accepted"; fi
  ! grep -q '^epoch' bad.log || fail "--checkpoint $path is refused after an epoch"
done
# A better model is not replaced by a worse one.
cp mnist-whole.model again.model
train mnist again --load again.model --lr 100 --weight-decay 1 || fail "$(<again.log)"
cmp mnist-whole.model again.model || fail "a worse model has replaced a better one"
