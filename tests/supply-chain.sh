#!/usr/bin/env bash
# Licences, bans and sources of every dependency, by cargo-deny (deny.toml), offline once the crates
# are fetched. Advisories too, where their database can be reached: if it cannot, that is
# said, and the rest still counts.
#   supply-chain.sh --install   installs cargo-deny when it is missing
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
if [ "${1:-}" = --install ]; then
  # unoptimised: it is built in a third of the time, and looks at some 400 crates once
  cargo deny --version 2>/dev/null | grep -q "$version" || cargo install --quiet --debug --locked "cargo-deny@$version"
  exit
fi
if ! cargo deny --version >/dev/null 2>&1; then
  echo "supply chain: cargo-deny is missing: tests/supply-chain.sh --install" >&2
  exit 1
fi
# the crates of every platform are looked at, also those that were not built here
cargo fetch --locked --quiet
cargo deny --locked --offline check --hide-inclusion-graph licenses bans sources
# the fuzzer's own package: the same versions, and libFuzzer
cp Cargo.lock tests/fuzz/Cargo.lock
cargo fetch --quiet --manifest-path tests/fuzz/Cargo.toml
cargo deny --manifest-path tests/fuzz/Cargo.toml --config deny.toml --locked --offline check --hide-inclusion-graph licenses bans sources
if output=$(timeout 120 cargo deny --locked check advisories 2>&1); then
  echo "advisories: none"
elif grep -qiE 'failed to fetch|failed to open advisory database|unable to (fetch|clone)|network|IO error|could not connect' <<<"$output"; then
  echo "advisories: NOT CHECKED, their database cannot be reached from here"
else
  printf '%s\n' "$output"; exit 1
fi
