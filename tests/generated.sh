#!/usr/bin/env bash
# Fails when a generated file differs from what the code generates now.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo run --locked --quiet --bin quorate -- generate --check
tests/kubernetes/install-yaml.sh --check
