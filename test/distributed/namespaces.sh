#!/bin/bash
# Ranks that train on four hosts, which are network namespaces of one machine: each host in turn is cut off, and there
# are outages that are shorter than a heartbeat. Needs no root, only user namespaces. namespaces.sh PATH/distributed_tests
set -euo pipefail
program=$(realpath "${1:?the path of distributed_tests}")
skip() {
  echo "skipped: $*"
  exit 77
}
if [[ ! ${REEL_TEST_INSIDE:-} ]]; then
  command -v ip >/dev/null || skip "there is no ip"
  unshare -rnm true 2>/dev/null || skip "user namespaces are forbidden here"
  REEL_TEST_INSIDE=1 exec unshare -rnm --kill-child -pf --mount-proc "$0" "$program"
fi

mount -t tmpfs none /run 2>/dev/null || skip "a file system cannot be mounted in a user namespace"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ranks=4
ip link add bridge type bridge 2>/dev/null || skip "there are no bridges in network namespaces"
ip link set bridge up
for ((i = 0; i < ranks; ++i)); do
  ip netns add host$i 2>/dev/null || skip "network namespaces cannot be named"
  ip link add port$i type veth peer name eth0 netns host$i
  ip link set port$i master bridge up
  ip -n host$i addr add 10.77.0.$((i + 1))/24 dev eth0
  ip -n host$i link set eth0 up
  ip -n host$i link set lo up
done

export WORLD_SIZE=$ranks LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500
export TEST_PAUSE=10 REEL_DIST_HEARTBEAT=2 REEL_TOKEN=00112233445566778899aabbccddeeff
fail() {
  {
    echo "FAILED: $*"
    head -50 "$folder"/*
  } >&2
  exit 1
}

# Waits until a rank's output has this line.
await() {
  local rank=$1 text=$2 tenths=$3
  for ((t = 0; t < tenths; ++t)); do
    grep -q "$text" "$folder/$rank" 2>/dev/null && return
    sleep 0.1
  done
  fail "rank $rank did not print '$text' in time"
}

# Starts all ranks, for some steps; rank 0 hosts the store.
start() {
  rm -f "$folder"/*
  pids=()
  for ((i = 0; i < ranks; ++i)); do
    RANK=$i TEST_STEPS=$1 ip netns exec host$i "$program" "a rank that trains in a network" >"$folder/$i" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < ranks; ++i)); do await $i '^say ready' 100; done
}
stop() {
  kill -KILL "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
  # Hosts remember for a while whom they could not reach.
  for ((i = 0; i < ranks; ++i)); do ip -n host$i neigh flush dev eth0; done
}

# The heartbeat is 2 s: all are to know within 3.
for ((cut = 0; cut < ranks; ++cut)); do
  start 100000
  sleep 0.3
  ip link set port$cut down
  for ((i = 0; i < ranks; ++i)); do await $i '^say end ' 30; done
  for ((i = 0; i < ranks; ++i)); do
    case $cut,$i in
      0,0) grep -q '^say end 1 rank [123] .*ranks 1, 2 and 3, which is all: perhaps' "$folder/$i" ;;
      0,*) grep -q '^say end 2 rank 0, which hosts the store' "$folder/$i" ;;
      *) if ((cut == i)); then
        grep -q '^say end 2 rank 0, which hosts the store' "$folder/$i"
      else
        grep -q "^say end 1 rank $cut .* has not been heard of" "$folder/$i"
      fi ;;
    esac || fail "rank $i does not say that host $cut was cut off"
  done
  ip link set port$cut up
  stop
  echo "host $cut cut off: all ranks have noticed"
done

# What all ranks say that the weights are, in the end.
weights() {
  for ((i = 0; i < ranks; ++i)); do await $i '^say weights' 150; done
  (($(cat "$folder"/* | grep '^say weights' | sort -u | wc -l) == 1)) || fail "the ranks have other weights"
  grep -h '^say weights' "$folder/0"
}
export TEST_PAUSE=0
start 150
undisturbed=$(weights)
stop
TEST_PAUSE=30
start 150
for cut in 2 0; do
  sleep 0.2
  ip link set port$cut down
  sleep 1
  ip link set port$cut up
  ((cut == 0)) || sleep 2.5
done
grep -q '^say weights' "$folder"/* && fail "the training was over before the outages were"
disturbed=$(weights)
stop
[[ $undisturbed == "$disturbed" ]] || fail "outages have changed the weights: $undisturbed, $disturbed"
echo "outages of half a heartbeat: the same weights"
