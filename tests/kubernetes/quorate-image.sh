#!/usr/bin/env bash
# Builds the static binary and, from the Dockerfile's own final stage, the image archive target/image/quorate.tar.
# Needs a Rust toolchain with the musl target (installed with rustup if it is missing), musl-gcc and buildah.
#   QUORATE_IMAGE_PROFILE=ci   without link-time optimisation, for tests of behaviour; else as shipped
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(uname -m)-unknown-linux-musl
out=target/image
command -v buildah >/dev/null || { echo "quorate-image.sh: buildah is missing: tests/kubernetes/packages.sh installs it" >&2; exit 1; }
tests/needs.sh rust cc musl
profile=${QUORATE_IMAGE_PROFILE:-release}
cargo build --locked --profile "$profile" --target "$target" --bin quorate
tests/release-binary.sh "target/$target/$profile/quorate"
mkdir -p $out/context/out
install -m 0755 "target/$target/$profile/quorate" $out/context/out/quorate
if [ -f $out/quorate.tar ] && cmp -s $out/context/out/quorate $out/built-from && [ $out/quorate.tar -nt Dockerfile ]; then
  echo "image is up to date"; exit
fi
state=$(mktemp -d); trap 'rm -rf "$state"' EXIT
tool=(buildah --storage-driver vfs --root "$state/root" --runroot "$state/run")
"${tool[@]}" bud --quiet --isolation chroot --build-context "build=$PWD/$out/context" -t localhost/quorate:test . >/dev/null
rm -f $out/quorate.tar
"${tool[@]}" push --quiet localhost/quorate:test "docker-archive:$PWD/$out/quorate.tar:localhost/quorate:test"
cp $out/context/out/quorate $out/built-from
printf 'image: %s MiB, archive %s MiB\n' "$(($(stat -c %s $out/context/out/quorate) >> 20))" "$(($(stat -c %s $out/quorate.tar) >> 20))"
