#!/usr/bin/env bash
# Installs what a release is made with, below target/release-tools where it can be: after it, make release needs no network.
# One C compiler for every target (zig, by cargo-zigbuild), so that the files do not depend on the machine's own; the
# standard library of Rust for these targets, by rustup; cargo-cyclonedx; helm; the crates themselves. Needs Rust, Go and
# python3, and on Debian root for the packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
command -v rustup >/dev/null || die "rustup is missing, which has the standard library for other targets: https://rustup.rs"

need=()
for pair in buildah:buildah dpkg-deb:dpkg openssl:openssl jq:jq; do
  command -v "${pair%%:*}" >/dev/null || need+=("${pair##*:}")
done
python3 -c 'import ensurepip' 2>/dev/null || need+=(python3-venv)
if [ ${#need[@]} -gt 0 ]; then
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || die "these packages are missing: ${need[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi

wanted=deploy/release/tools/requirements.txt
if ! cmp -s $wanted "$tools/venv/requirements.txt"; then
  rm -rf "$tools/venv"
  python3 -m venv "$tools/venv"
  "$tools/venv/bin/pip" install --quiet --no-deps --only-binary :all: --require-hashes -r $wanted
  cp $wanted "$tools/venv/requirements.txt"
fi
for target in "${targets[@]}"; do
  rustup target add "$target" 2>/dev/null || die "rustup has no standard library for $target"
done
cyclonedx=0.5.9
if [ ! -x "$tools/bin/cargo-cyclonedx" ] || [ "$("$tools/bin/cargo-cyclonedx" cyclonedx --version)" != "cargo-cyclonedx-cyclonedx $cyclonedx" ]; then
  # unoptimised: it is built in a third of the time, and runs for a second
  cargo install --quiet --debug --locked --force --root "$tools" "cargo-cyclonedx@$cyclonedx"
fi
tests/kubernetes/build.sh helm
cargo fetch --locked --quiet
