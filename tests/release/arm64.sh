#!/usr/bin/env bash
# arm64.sh BINARY VERSION: three members of the binary for arm64, each a process of its own under qemu-aarch64, on loopback:
# etcdctl writes and reads, the leader is killed and another one takes over, and comes back. Needs qemu-user, and etcdctl of
# tests/interop/build.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=$(realpath "$1") version=$2
etcdctl=$PWD/target/interop/bin/etcdctl
die() { echo "arm64.sh: $*" >&2; for name in 1 2 3; do tail -n 5 "$work/$name.log" >&2 || :; done; exit 1; }
work=$(mktemp -d)
declare -A process
stop_all() { for name in "${!process[@]}"; do kill "${process[$name]}" 2>/dev/null || :; done; wait || :; rm -rf "$work"; }
trap stop_all EXIT
[ "$(qemu-aarch64 "$binary" --version)" = "quorate $version" ] || die "the binary says $(qemu-aarch64 "$binary" --version)"
client() { echo "http://127.0.0.1:2${1}379"; }
peer() { echo "http://127.0.0.1:2${1}380"; }
start() { # start NAME
  qemu-aarch64 "$binary" server --name="$1" --data-dir="$work/$1" \
    --listen-client-urls="$(client "$1")" --advertise-client-urls="$(client "$1")" \
    --listen-peer-urls="$(peer "$1")" --initial-advertise-peer-urls="$(peer "$1")" \
    --initial-cluster="1=$(peer 1),2=$(peer 2),3=$(peer 3)" --initial-cluster-token=arm64 >>"$work/$1.log" 2>&1 &
  process[$1]=$!
}
all="$(client 1),$(client 2),$(client 3)"
ctl() { "$etcdctl" --endpoints="$all" --command-timeout=20s "$@"; }
eventually() { # eventually SECONDS WHAT COMMAND...
  local deadline=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $deadline ] || die "not within its time: $what"; sleep 0.5; done
}
leader() { ctl endpoint status --write-out=json | jq -re '[.[] | select(.Status.header.member_id == .Status.leader) | .Endpoint][0]'; }
for name in 1 2 3; do start $name; done
eventually 120 "three members are healthy" ctl endpoint health
for at in $(seq 1 50); do ctl put "key-$at" "value-$at" >/dev/null; done
first=$(leader)
number=${first#http://127.0.0.1:2} number=${number%379}
kill -KILL "${process[$number]}"
wait "${process[$number]}" 2>/dev/null || :
another() { local now; now=$(leader 2>/dev/null) && [ "$now" != "$first" ]; }
all=$(for name in 1 2 3; do [ $name = "$number" ] || client $name; done | paste -sd,)
eventually 60 "another one leads" another
ctl put after-the-kill yes >/dev/null
start "$number"
all="$(client 1),$(client 2),$(client 3)"
eventually 120 "the killed member is back" ctl endpoint health
[ "$(ctl get --prefix key- --count-only --write-out=fields | sed -n 's/^"Count" : //p')" = 50 ] || die "keys are missing"
hashes=$(ctl endpoint hashkv --write-out=json | jq '[.[].HashKV.hash] | unique | length')
[ "$hashes" = 1 ] || die "the members' hashes differ"
echo "51 writes, the leader killed, three members with equal hashes"
