#!/usr/bin/env bash
# Builds the test programs of the Rust client etcd-client into target/interop/rust, with Cargo alone: its packages
# are pinned in Cargo.lock. Quick if nothing has changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export CARGO_TARGET_DIR=$here/../../../target/interop/rust
cargo=${CARGO:-cargo}
"$cargo" build --quiet --locked --manifest-path "$here/Cargo.toml" --features protoc --bin protoc
PROTOC=$CARGO_TARGET_DIR/debug/protoc \
  "$cargo" build --quiet --locked --manifest-path "$here/Cargo.toml" --features story --bin story --bin connect
