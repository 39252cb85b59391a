#!/usr/bin/env bash
# Where the members' processor time goes: docs/transcripts/profiles.txt. Three members on loopback under puts and gets of 1,000 clients and of
# one, without pauses; sampled by perf, which needs root. Prints shares by thread, by what is kernel and what is not, and by function.
#
#   tests/docs/profile.sh           builds, measures and prints; nothing else should run
#   tests/docs/profile.sh --record  writes the file as well
#   QUORATE_BINARY=file             measures this one, built with symbols
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${SECONDS_A_LOAD:-10} lines=${LINES_A_LOAD:-24}
command -v perf >/dev/null || { echo "profile.sh: perf is missing (Debian: linux-perf)" >&2; exit 1; }
# With symbols, and otherwise as shipped but for link-time optimisation.
quorate=${QUORATE_BINARY:-target/instructions/quorate}
[ -n "${QUORATE_BINARY:-}" ] || cargo build --locked --quiet --profile instructions --bin quorate
work=$(mktemp -d)
pids=()
cleanup() {
  if [ ${#pids[@]} -gt 0 ]; then kill "${pids[@]}" 2>/dev/null || true; fi
  wait
  rm -rf "$work"
}
trap cleanup EXIT

initial=a=http://127.0.0.1:24801,b=http://127.0.0.1:24802,c=http://127.0.0.1:24803
endpoints=http://127.0.0.1:24791,http://127.0.0.1:24792,http://127.0.0.1:24793
number=1
for name in a b c; do
  client=http://127.0.0.1:2479$number peer=http://127.0.0.1:2480$number
  $quorate server --name $name --data-dir "$work/$name" --listen-client-urls $client --advertise-client-urls $client \
    --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster $initial >"$work/$name.log" 2>&1 &
  pids+=($!)
  number=$((number + 1))
done
for number in 1 2 3; do
  until curl -sf "http://127.0.0.1:2479$number/readyz" >/dev/null; do kill -0 "${pids[@]}" || exit 1; sleep 0.2; done
done
$quorate bench fill --endpoints=$endpoints --key-space=1000000 >/dev/null

load() { # load TITLE put|get ARGUMENT...: a load while the members are sampled
  local title=$1; shift
  perf record -q -F 999 -o "$work/perf" -p "$(IFS=,; echo "${pids[*]}")" -- sleep "$seconds" &
  local sampler=$!
  sleep 0.3
  $quorate bench "$@" --endpoints=$endpoints --seconds="$seconds" --warm-up=0 >"$work/load"
  wait $sampler
  echo "== $title"
  grep 'answers in' "$work/load"
  local report=(perf report -i "$work/perf" --stdio --percent-limit 0.4)
  echo "-- by thread"
  "${report[@]}" --sort comm 2>/dev/null | grep -v '^#' | grep . || true
  echo "-- kernel and program"
  "${report[@]}" --sort dso 2>/dev/null | grep -v '^#' | grep . || true
  echo "-- by function, the first $lines"
  "${report[@]}" --sort symbol 2>/dev/null | grep -v '^#' | grep . | head -n "$lines" || true
  echo
}
{
  echo "\$ tests/docs/profile.sh, 1,000,000 keys of 32 bytes with values of 256, $(nproc) cores, commit $(git rev-parse --short HEAD)"
  echo
  load "puts, 1,000 clients on 100 connections" put --key-space=1000000 --clients=1000 --connections=100
  load "gets, 1,000 clients on 100 connections" get --key-space=1000000 --clients=1000 --connections=100
  load "puts, 1 client" put --key-space=1000000 --clients=1 --connections=1
  load "gets, 1 client" get --key-space=1000000 --clients=1 --connections=1
} | sed -E 's/ +-( +-)? *$//; s/ +$//' >"$work/profiles"
cat "$work/profiles"
if [ "${1:-}" = --record ]; then cp "$work/profiles" docs/transcripts/profiles.txt; fi
