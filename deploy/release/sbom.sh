#!/usr/bin/env bash
# sbom.sh FILE: the bill of materials of the server in the form of CycloneDX (JSON, version 1.5): every crate that the
# binaries for Linux contain or are built with, its licence, and which needs which.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ $# -eq 1 ] || die "usage: sbom.sh FILE"
export CARGO_NET_OFFLINE=true PATH=$tools/bin:$PATH
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
# It writes beside each Cargo.toml, so it works on a copy; the copy's place is then taken out of what it wrote.
mkdir "$work/quorate"
git archive HEAD | tar -C "$work/quorate" -x
cargo cyclonedx --quiet --manifest-path "$work/quorate/Cargo.toml" --format json --spec-version 1.5 \
  --target x86_64-unknown-linux-musl --override-filename bom
sed "s|$work/|/|g" "$work/quorate/bom.json" >"$1"
jq -e '.components | length > 100' "$1" >/dev/null || die "cargo-cyclonedx listed hardly any crate"
