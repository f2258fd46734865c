#!/bin/bash
# Hosts of one machine, as network namespaces: a rank that is cut off, the store's host that is cut off, and an outage
# that is shorter than a heartbeat. Needs no root, only user namespaces. namespaces.sh PATH/distributed_tests
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
ranks=3
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

export REEL_TEST_PARENT=$$ REEL_TEST_WORLD=$ranks REEL_TEST_HOST=10.77.0.1
export REEL_TEST_HEARTBEAT=2000 REEL_TEST_TOKEN=00112233445566778899aabbccddeeff
fail() {
  echo "FAILED: $*"
  head -50 "$folder"/*
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

# Starts all ranks; rank 0 hosts the store.
start() {
  rm -f "$folder"/*
  pids=()
  for ((i = 0; i < ranks; ++i)); do
    local child="child: a rank that waits for the job's end"
    ((i)) || child="child: rank 0 with the server"
    REEL_TEST_RANK=$i REEL_TEST_PORT=${port:-0} \
      ip netns exec host$i "$program" "$child" >"$folder/$i" 2>&1 &
    pids+=($!)
    if ((i == 0)); then
      await 0 '^port ' 50
      port=$(sed -n 's/^port //p' "$folder/0")
    fi
  done
  for ((i = 1; i < ranks; ++i)); do await $i '^ready' 50; done
  port=
}
stop() {
  kill -KILL "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
}

# The heartbeat is 2 s: all are to know within 3.
for cut in 2 0; do
  start
  ip link set port$cut down
  for ((i = 0; i < ranks; ++i)); do await $i '^end ' 30; done
  for ((i = 0; i < ranks; ++i)); do
    case $cut,$i in
      2,[01]) grep -q '^end 1 rank 2 .* has not been heard of' "$folder/$i" ;;
      2,2 | 0,[12]) grep -q '^end 2 rank 0, which hosts the store' "$folder/$i" ;;
      0,0) grep -q '^end 1 rank 1 .*ranks 1 and 2, which is all: perhaps' "$folder/$i" ;;
    esac || fail "rank $i does not say that host $cut was cut off"
  done
  ip link set port$cut up
  stop
  echo "host $cut cut off: all ranks have noticed"
done

start
for cut in 2 0; do
  ip link set port$cut down
  sleep 1
  ip link set port$cut up
  sleep 3
done
! grep -l '^end ' "$folder"/* || fail "a short outage ended the job"
stop
echo "a short outage: nobody has noticed"
