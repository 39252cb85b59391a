#!/usr/bin/env bash
# binaries.sh DIR: the static server for each architecture as DIR/ARCHITECTURE/quorate, and the plugin for each target as
# DIR/plugins/TARGET/kubectl-quorate[.exe]. Uses no network: tools.sh has fetched what is needed.
#   PROFILE=ci   compiled in less than half of the time, for tests of what a release contains
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ $# -eq 1 ] || die "usage: binaries.sh DIR"
out=$1
profile=${PROFILE:-release}
[ -x "$tools/venv/bin/cargo-zigbuild" ] || die "the tools are missing: deploy/release/tools.sh installs them"
PATH=$tools/venv/bin:$PATH
export CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0 CARGO_TARGET_DIR
# Another compiler for C, or other flags, get a folder of their own: cargo would not compile anew for them.
CARGO_TARGET_DIR=$PWD/target/release-build/$(cat deploy/release/tools/requirements.txt deploy/release/binaries.sh | sha256sum | cut -c 1-8)
# C sources that ask for the time of their compilation (mimalloc) get this one. That of the commit would be the time of
# an earlier commit wherever an object is taken from a cache, cargo's or the compiler's.
SOURCE_DATE_EPOCH=0
# What a user has set for builds of their own is not for these.
unset RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
for name in $(compgen -e | grep -E '^(CARGO_PROFILE_|CARGO_TARGET_.*_|(CC|CXX|AR|CFLAGS|CXXFLAGS)_)' || :); do unset "$name"; done
# Where the sources are is not in the binaries, or they would differ from one checkout to the next. Nor where Rust's own are:
# whoever has installed them (rust-src) would have their folder in the binaries, and others the one that rustc puts there.
home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
hash=$(rustc -vV | sed -n 's/^commit-hash: //p')
remapped=()
for pair in "$home=/cargo" "$CARGO_TARGET_DIR=/target" "$PWD=/quorate" "$sysroot/lib/rustlib/src/rust=/rustc/$hash"; do
  remapped+=("--remap-path-prefix=$pair")
done
flags() { # flags ARGUMENT...: for rustc, whatever characters are in them
  local IFS=$'\x1f'
  export CARGO_ENCODED_RUSTFLAGS="$*"
}
CFLAGS="-ffile-prefix-map=$home=/cargo -ffile-prefix-map=$CARGO_TARGET_DIR=/target"
export CFLAGS CXXFLAGS=$CFLAGS
build() { # build TARGET PACKAGE BINARY TO
  local file=$CARGO_TARGET_DIR/$1/$profile/$3 more=()
  # Apple's frameworks are not there: these are names for the linker, of which nothing in the binary is used.
  case $1 in *apple*) more=("-Clink-arg=-F$PWD/deploy/release/macos") ;; esac
  flags "${remapped[@]}" "${more[@]}"
  cargo zigbuild --locked --profile "$profile" --target "$1" --package "$2" --bin "${3%.exe}"
  if grep -qaF -e "$home/" -e "$sysroot/" -e "$CARGO_TARGET_DIR/" -e "$PWD/" "$file"; then die "$file names a folder of this machine"; fi
  install -D -m 0755 "$file" "$4/$3"
}
for architecture in $architectures; do
  build "$architecture-unknown-linux-musl" quorate quorate "$out/$architecture"
  tests/release-binary.sh "$out/$architecture/quorate"
done
for target in "${targets[@]}"; do
  build "$target" quorate-plugin "$(plugin_of "$target")" "$out/plugins/$target"
done
