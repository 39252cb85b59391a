#!/usr/bin/env bash
# Tests that are too long for every change: the seeded tests with many times their seeds, at release speed with
# every assertion on, and the fuzzer. Ends with a dated table for docs/soak.md; the first failure ends the run, and
# its seed is in the output.
#
#   tests/soak.sh              about six hours on two cores: two of sim-operator, more than one each of e2e and
#                              robustness
#   SCALE=10 tests/soak.sh     a tenth of the seeds and minutes; SCALE=1000 ten times as many. It does not change
#                              sim-operator below 200, nor e2e
#   ONLY=sim tests/soak.sh     one part: sim raft node store plan operator sim-operator properties
#                              differential older java full fuzz robustness release kubeadm
#                              e2e newest alerts
#   BASE=n                     the first seed of a part that takes one (default: days since 1970
#                              times a million, so that each day uses other seeds)
set -euo pipefail
cd "$(dirname "$0")/.."

scale=${SCALE:-100}
only=${ONLY:-}
base=${BASE:-$(($(date -u +%s) / 86400 * 1000000))}
seeds() { echo $((($1 * scale + 99) / 100)); }

rows=()
part() {
  local name=$1 what=$2; shift 2
  if [ -n "$only" ] && [ "$only" != "$name" ]; then return; fi
  echo "=== $name: $what"
  local began=$SECONDS log
  log=$(mktemp)
  if ! "$@" 2>&1 | tee "$log"; then
    echo "soak: $name FAILED: $what"; rm -f "$log"; exit 1
  fi
  # A filter that matches no test passes as well: count what ran.
  local ran
  ran=$({ grep -oE '^test result: ok\. [0-9]+ passed' "$log" || true; } | awk '{sum += $4} END {print sum + 0}')
  rm -f "$log"
  if [ "$ran" -eq 0 ]; then echo "soak: $name ran no test"; exit 1; fi
  rows+=("| $name | $what | $((SECONDS - began)) |")
}

n=$(seeds 2500)
part sim "$n seeds from $base" \
  env SEEDS="$n" SEED_BASE="$base" cargo test --locked --profile sim --test sim -- --nocapture seeds
n=$(seeds 3000)
part raft "$n random runs of the core" \
  env RAFT_SEEDS="$n" cargo test --locked --profile sim -p quorate-core --lib -- raft::tests::random
n=$(seeds 20000)
part raft "$n schedules of the core beside etcd's, from seed $base" \
  env SEEDS="$n" SEED_BASE="$base" QUORATE_REQUIRE_INTEROP=1 \
  cargo test --locked --profile sim -p quorate-core --lib -- raft::tests::differential
n=$(seeds 1000)
part node "$n random runs of whole members" \
  env SEEDS="$n" cargo test --locked --profile sim -p quorate-core --lib -- node::tests::chaos
n=$(seeds 500)
part store "$n random runs of 2,000 operations against a naive model" \
  env SEEDS="$n" OPS=2000 cargo test --locked --profile sim -p quorate-core --lib -- store::tests::random
n=$(seeds 5000)
part plan "$n random clusters come to rest" \
  env SEEDS="$n" cargo test --locked --profile sim -p quorate-planner --lib -- plan::tests::random
part operator "a crash before, after and in the answer of every act" \
  env CRASH_EVERYWHERE=1 cargo test --locked --profile sim --lib -- operator::world
n=$(seeds 1)
part sim-operator "$n seeds from $base of the operator's simulation, every scenario with every fault" \
  env SEEDS="$n" SEED_BASE="$base" cargo test --locked --profile sim --test sim_operator -- --nocapture
n=$(seeds 200000)
part properties "$n cases a property" \
  env PROPTEST_CASES="$n" cargo test --locked --profile sim -p quorate-core --lib -- raft::quorum raft::progress
n=$(seeds 40)
part differential "$n conversations of 5,200 random requests beside real etcd, from seed $base" \
  env SEEDS="$n" SEED_BASE="$base" QUORATE_REQUIRE_INTEROP=1 \
  cargo test --locked --test differential
if [ -z "$only" ] || [ "$only" = older ]; then tests/interop/older/build.sh; fi
for version in 3.5 3.6; do
  part older "etcd $version is followed, left, and restored from" \
    env QUORATE_PEERS="target/interop/etcd-$version" QUORATE_REQUIRE_INTEROP=1 \
    cargo test --locked --test cluster -- of_etcd any_snapshot_of_etcds
done
if [ -z "$only" ] || [ "$only" = java ]; then tests/interop/build.sh; fi
part java "the Java client with a connection Secret; needs default-jdk-headless and maven" \
  env QUORATE_JAVA=1 QUORATE_REQUIRE_INTEROP=1 cargo test --locked --test interop for_java
part full "a volume of 300 MiB, filled to its last byte" \
  env VOLUME_MIB=300 cargo test --locked --test cluster -- --nocapture full::
# After the time is over, each run lasts until its last round of faults ends.
n=$(((60 * scale + 99) / 100))
if [ -z "$only" ] || [ "$only" = robustness ]; then tests/interop/porcupine/build.sh; fi
for members in 3 5; do
  part robustness "$(((n + 1) / 2)) minutes of faults for $members real servers, from seed $base" \
    env MINUTES=$(((n + 1) / 2)) MEMBERS=$members SEED="$base" QUORATE_REQUIRE_INTEROP=1 \
    cargo test --locked --test robustness -- --nocapture
done
if [ "$only" = release ] || { [ -z "$only" ] && [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ]; }; then
  part release "a release made twice, without network, and looked at" tests/release/whole.sh
elif [ -z "$only" ]; then
  echo "soak: the release is left out: its test needs Linux and root"
fi
if [ "$only" = kubeadm ] || { [ -z "$only" ] && [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ]; }; then
  part kubeadm "kubeadm on three hosts, with external etcd and stacked" make --no-print-directory kubeadm
elif [ -z "$only" ]; then
  echo "soak: kubeadm is left out: its test needs Linux and root"
fi
if [ "$only" = e2e ] || { [ -z "$only" ] && [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ]; }; then
  part e2e "every end-to-end scenario" env E2E_SOAK=1 tests/e2e/run.sh
elif [ -z "$only" ]; then
  echo "soak: the end-to-end scenarios are left out: they need Linux and root"
fi
if [ -z "$only" ] || [ "$only" = newest ]; then KUBERNETES=newest tests/kubernetes/build.sh; fi
part newest "the newest kube-apiserver on a cluster, with nothing but a connection Secret; it streams its lists" \
  env KUBERNETES=newest QUORATE_REQUIRE_INTEROP=1 QUORATE_REQUIRE_KUBERNETES=1 cargo test --locked --test interop kube_apiserver
if [ "$only" = newest ] || { [ -z "$only" ] && [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ]; }; then
  part newest "keys that kubelets make, and CAs in a ClusterTrustBundle, on the newest Kubernetes" \
    env KUBERNETES=newest tests/e2e/run.sh pod-certificates trust-bundle
fi
part alerts "alerts under a real Prometheus, by faults between an operator and an API server, and those of etcd's mixin" make --no-print-directory alerts-live
n=$(seeds 1500)
part fuzz "every decoder under libFuzzer, $n s in all" tests/fuzz.sh "$n"

[ ${#rows[@]} -gt 0 ] || { echo "soak: there is no part \"$only\"" >&2; exit 2; }
echo
echo "## $(date -u +%F), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(nproc) cores"
echo
echo "| part | what ran, all of it passed | seconds |"
echo "|---|---|---|"
printf '%s\n' "${rows[@]}"
