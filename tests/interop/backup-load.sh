#!/usr/bin/env bash
# What a backup costs those who write: three members with MIB of data on loopback, writers at a fixed rate at the
# leader, and the 99th percentile of their latency with and without `quorate backup save` beside them, in turn. Then the
# seconds and the most memory of the save, the seconds of a verification, and those of a recovery on one host: from the
# backup in the store to a member that answers a linearizable read.
#
#   MIB=1024 ROUNDS=3 RATE=1000 [SAVE="--rate=50"] tests/interop/backup-load.sh
#
# Needs target/release/quorate and what tests/interop/build.sh and build-bench.sh build; everything else is on loopback
# and below a directory of its own, which it removes.
set -euo pipefail
cd "$(dirname "$0")/../.."
mib=${MIB:-1024} rounds=${ROUNDS:-3} rate=${RATE:-1000} seconds=${SECONDS_A_ROUND:-40}
read -ra save <<<"${SAVE:-}"
quorate=$PWD/target/release/quorate tools=$PWD/target/interop/bin
for tool in "$quorate" "$tools/benchmark" "$tools/etcdctl"; do
  [ -x "$tool" ] || { echo "backup-load.sh: $tool is missing: make bench builds it" >&2; exit 1; }
done
dir=$(mktemp -d)
servers=()
end() { [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"; }
trap end EXIT
mkdir "$dir/store" "$dir/scratch"

cluster= endpoints=
for n in 1 2 3; do
  cluster+=${cluster:+,}m$n=http://127.0.0.1:2138$n
  endpoints+=${endpoints:+,}http://127.0.0.1:2137$n
done
for n in 1 2 3; do
  "$quorate" server --name=m$n --data-dir="$dir/m$n" --initial-cluster="$cluster" --initial-cluster-token=load \
    --listen-peer-urls=http://127.0.0.1:2138$n --initial-advertise-peer-urls=http://127.0.0.1:2138$n \
    --listen-client-urls=http://127.0.0.1:2137$n --advertise-client-urls=http://127.0.0.1:2137$n \
    --quota-backend-bytes=$((8 << 30)) >"$dir/m$n.log" 2>&1 &
  servers+=($!)
done
export ETCDCTL_ENDPOINTS=$endpoints
until "$tools/etcdctl" endpoint health >/dev/null 2>&1; do sleep 0.2; done
leader=$("$tools/etcdctl" endpoint status --write-out=fields | awk '
  /^"MemberID"/ { member = $3 } /^"Leader"/ { leader = $3 } /^"Endpoint"/ { gsub("\"", "", $3); if (member == leader) print $3 }')
[ -n "$leader" ] || { echo "backup-load.sh: no member leads" >&2; exit 1; }

"$tools/benchmark" --endpoints="$leader" --conns=8 --clients=64 put --total=$((mib * 16)) --key-space-size=$((mib * 1024)) \
  --key-size=32 --val-size=65536 --sequential-keys >/dev/null 2>"$dir/benchmark.log" || { tail -n 5 "$dir/benchmark.log" >&2; exit 1; }
"$tools/etcdctl" endpoint status --write-out=table

writers() { # prints the 99th percentile of a put in milliseconds
  "$tools/benchmark" --precise --endpoints="$leader" --conns=4 --clients=32 put --rate="$rate" --total=$((rate * seconds)) \
    --key-space-size=100000 --key-size=32 --val-size=256 2>"$dir/benchmark.log" |
    awk '/99% in/ {print $3 * 1000; found = 1} END {exit !found}' || { tail -n 5 "$dir/benchmark.log" >&2; return 1; }
}
saving() { # saves one backup after the other until it is ended
  local n=0
  while [ ! -e "$dir/enough" ]; do
    n=$((n + 1))
    /usr/bin/time -a -o "$dir/times" -f '%e %M' "$quorate" backup save --to "file://$dir/store" --id="round$1-$n" --scratch="$dir/scratch" "${save[@]}" >/dev/null
  done
}
ratios=()
for round in $(seq "$rounds"); do
  without=$(writers)
  rm -f "$dir/enough"
  saving "$round" & backup=$!
  with=$(writers)
  touch "$dir/enough"
  wait $backup
  rm -rf "$dir"/store/round*
  ratios+=("$(awk -v a="$with" -v b="$without" 'BEGIN {printf "%.2f", a / b}')")
  echo "round $round: p99 of a put $without ms, with backups $with ms: ${ratios[-1]} x"
done
echo "median $(printf '%s\n' "${ratios[@]}" | sort -n | sed -n "$(((rounds + 1) / 2))p") x"
awk '{s += $1; if ($2 > m) m = $2} END {printf "a save: %.1f s, at most %d MiB of memory, %d saves\n", s / NR, m / 1024, NR}' "$dir/times"
"$quorate" backup save --to "file://$dir/store" --id=last --scratch="$dir/scratch" "${save[@]}" >/dev/null
began=$(date +%s%N)
"$quorate" backup verify --to "file://$dir/store" --scratch="$dir/scratch" last
echo "a verification: $((($(date +%s%N) - began) / 1000000)) ms; stored: $(du -sm "$dir/store" | cut -f1) MiB"
kill "${servers[@]}"
wait "${servers[@]}" || true
servers=()
began=$(date +%s%N)
url=http://127.0.0.1:21384 client=http://127.0.0.1:21374
"$quorate" backup fetch --to "file://$dir/store" last "$dir/last.db" >/dev/null
"$quorate" restore "$dir/last.db" --name=m4 --data-dir="$dir/m4" --initial-cluster="m4=$url" --initial-cluster-token=again \
  --initial-advertise-peer-urls=$url --bump-revision=1000000000 --mark-compacted >/dev/null
restored=$((($(date +%s%N) - began) / 1000000))
"$quorate" server --name=m4 --data-dir="$dir/m4" --initial-cluster="m4=$url" --initial-cluster-token=again \
  --listen-peer-urls=$url --initial-advertise-peer-urls=$url --listen-client-urls=$client --advertise-client-urls=$client \
  --quota-backend-bytes=$((8 << 30)) >"$dir/m4.log" 2>&1 &
servers=($!)
export ETCDCTL_ENDPOINTS=$client
until "$tools/etcdctl" get '' --prefix --limit=1 >/dev/null 2>&1; do sleep 0.05; done
echo "a recovery: $((($(date +%s%N) - began) / 1000000)) ms, of them $restored ms until its data directory was there"
