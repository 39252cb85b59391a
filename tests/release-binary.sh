#!/usr/bin/env bash
# Fails if a release binary contains a planted fault, a simulator or the comparison with etcd: these are under
# features that only the tests enable. Call: tests/release-binary.sh BINARY
set -euo pipefail
binary=$1
holds() { grep -qaF "$1" "$binary"; }
# proves that the search finds strings of the binary
holds 'etcdserver: ' || { echo "release-binary.sh: $binary is no binary of Quorate" >&2; exit 1; }
for text in QUORATE_MUTANT ack-before-fsync mutants6switch mutants7planted AckBeforeFsync quorate5opsim quorate_core3sim quorate-versus; do
  ! holds "$text" || { echo "release-binary.sh: $binary holds \"$text\", which is for tests alone" >&2; exit 1; }
done
