#!/bin/bash
# Two hosts with a wire of 1 Gbit/s between them, network namespaces of this machine: wire.sh PROGRAM [FLAGS] runs a
# rank of bench/distributed in each. No root is needed where users may make namespaces; otherwise it says so, and ends
# with status 77.
set -euo pipefail
rate=${REEL_BENCH_RATE:-1gbit}
skip() { echo "bench/wire.sh: skipped, $1" >&2 && exit 77; }
if [[ ! ${REEL_BENCH_INSIDE:-} ]]; then
  for tool in ip tc nsenter unshare; do command -v $tool >/dev/null || skip "there is no $tool"; done
  unshare -rnm true 2>/dev/null || skip 'namespaces are forbidden here'
  REEL_BENCH_INSIDE=1 exec unshare -rnm "$0" "$@"
fi
mount -t tmpfs none /run 2>/dev/null || skip 'mounts are forbidden here'
for host in 0 1; do
  ip netns add "host$host" 2>/dev/null || skip 'network namespaces cannot be named here'
done
ip link add wire0 netns host0 type veth peer name wire1 netns host1 2>/dev/null || skip 'there are no veth devices'
for host in 0 1; do
  ip -n "host$host" link set lo up
  ip -n "host$host" address add "10.99.0.$((host + 1))/24" dev "wire$host"
  ip -n "host$host" link set "wire$host" up
  tc -n "host$host" qdisc add dev "wire$host" root tbf rate "$rate" burst 256kb latency 50ms 2>/dev/null ||
    skip 'the kernel has no tbf to limit the rate'
done
REEL_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export REEL_TOKEN WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.99.0.1 MASTER_PORT=29500
set -- "$1" --workload wire.overlap "${@:2}"
RANK=1 nsenter --net=/run/netns/host1 "$@" &
status=0
RANK=0 nsenter --net=/run/netns/host0 "$@" || status=$?
wait $! || status=$?
exit "$status"
