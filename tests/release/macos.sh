#!/usr/bin/env bash
# Compiles server, operator and `quorate local` for a laptop with macOS, with its C code, without a warning: what is of Linux alone has its
# counterpart. Nothing is linked, for which Apple's frameworks would be needed, and nothing is run. Needs what
# deploy/release/tools.sh installs. Part of tests/release/whole.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ -x "$tools/venv/bin/cargo-zigbuild" ] || deploy/release/tools.sh
target=aarch64-apple-darwin
export PATH=$tools/venv/bin:$PATH CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$PWD/target/macos RUSTFLAGS=-Dwarnings
cargo-zigbuild check --locked --target "$target" --package quorate --bin quorate
echo "it compiles for $target"
