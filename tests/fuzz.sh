#!/usr/bin/env bash
# Fuzzes every decoder with libFuzzer, one after another, each on one core and for an equal share of the time.
# Needs the Rust toolchain of the project and a C++ compiler; no nightly toolchain. An input that makes a decoder
# panic, hang, or use more memory than its size justifies ends the run: the input is then in
# tests/fuzz/corpus/TARGET, from where `cargo test --test decoders` runs it from then on.
#
#   tests/fuzz.sh 600                  ten minutes in all, and the build
#   TARGET=json tests/fuzz.sh 60       a minute of one target
#
# The corpus is kept in target/fuzz/corpus and extended by the next run; KEEP=1 adds to tests/fuzz/corpus the
# inputs that reach code which none there reaches, as small as they were found.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-600}
root=$PWD
list=tests/fuzz/src/targets/mod.rs
all=$(sed -nE 's/^ *target\("([a-z0-9]+)".*/\1/p' $list)
targets=${TARGET:-$all}
if ! grep -qx "$targets" <<<"$all" && [ -n "${TARGET:-}" ]; then
  echo "fuzz: TARGET=$TARGET is none of: $(tr '\n' ' ' <<<"$all")" >&2
  exit 2
fi
number=$(wc -w <<<"$targets")
each=$((seconds / number))
if [ "$each" -lt 1 ]; then
  echo "fuzz: $seconds s are too few for $number targets: give each a second at least" >&2
  exit 2
fi

# The versions with which the server is built; libFuzzer and its dependencies are pinned in the manifest. The
# dependencies are those of `cargo build`, in the same folder: they are not built twice.
cp Cargo.lock tests/fuzz/Cargo.lock
RUSTC_WRAPPER=$root/tests/fuzz/rustc.sh CARGO_TARGET_DIR=$root/target \
  cargo build --quiet --manifest-path tests/fuzz/Cargo.toml

runs=0
for target in $targets; do
  learnt=$root/target/fuzz/corpus/$target kept=$root/tests/fuzz/corpus/$target log=$root/target/fuzz/$target.log
  mkdir -p "$learnt" "$kept"
  longest=$(($(sed -nE 's/^ *target\("'"$target"'", *([0-9]+ << 10),.*/\1/p' $list)))
  # The targets count what they allocate, to the byte; the limit here is for allocations that they do not count.
  if ! TARGET=$target target/debug/quorate-fuzz "$learnt" "$kept" -artifact_prefix="$kept/" \
    -max_total_time="$each" -max_len="$longest" -len_control=50 -timeout=10 -rss_limit_mb=512 \
    -print_final_stats=1 >"$log" 2>&1; then
    tail -40 "$log"
    echo "fuzz: $target FAILED; the input lies in tests/fuzz/corpus/$target"
    exit 1
  fi
  ran=$(sed -nE 's/^stat::number_of_executed_units: *([0-9]+)/\1/p' "$log")
  memory=$(sed -nE 's/^stat::peak_rss_mb: *([0-9]+)/\1/p' "$log")
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -1 | cut -d' ' -f2 || true)
  if [ "${ran:-0}" -eq 0 ] || [ "${edges:-0}" -eq 0 ]; then
    tail -40 "$log"
    echo "fuzz: $target ran nothing, or nothing was counted"
    exit 1
  fi
  if [ -n "${KEEP:-}" ]; then
    TARGET=$target target/debug/quorate-fuzz -merge=1 -max_len="$longest" "$kept" "$learnt" >>"$log" 2>&1
  fi
  echo "| $target | $ran | $each | $edges | $(find "$learnt" -type f | wc -l) | $memory |"
  runs=$((runs + ran))
done
echo "fuzz: target, runs, seconds, edges reached, inputs learnt, MiB at most"
# tests/soak.sh parses this line
echo "test result: ok. $number passed; $runs runs of decoders, $each s each, none failed"
