#!/usr/bin/env bash
# Fails when a generated file or image differs from what the code, the chart or the data make now.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo run --locked --quiet --bin quorate -- generate --check
tests/docs/images.py --check
tests/kubernetes/install-yaml.sh --check
