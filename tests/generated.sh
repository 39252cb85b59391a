#!/usr/bin/env bash
# Fails if a generated file or image differs from the present output of the code, the chart or the data.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo run --locked --quiet --bin quorate -- generate --check
tests/docs/images.py --check
tests/kubernetes/install-yaml.sh --check
