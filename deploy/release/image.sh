#!/usr/bin/env bash
# image.sh BINARIES NAME ARCHIVE: the image for every architecture, from the Dockerfile's own last stage and the binaries of
# binaries.sh, as an archive of an OCI image layout; prints the digest by which it is pulled. Needs buildah, and nothing else
# of a container runtime: no step runs anything in the image.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ $# -eq 3 ] || die "usage: image.sh BINARIES NAME ARCHIVE"
binaries=$1 name=$2 archive=$3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
tool() { buildah --storage-driver vfs --root "$work/root" --runroot "$work/run" "$@"; }
revision=$(git rev-parse HEAD)
for architecture in $architectures; do
  mkdir -p "$work/$architecture/out"
  install -m 0755 "$binaries/$architecture/quorate" "$work/$architecture/out/quorate"
  tool bud --quiet --isolation chroot --timestamp "$SOURCE_DATE_EPOCH" --platform "linux/$(customary "$architecture")" \
    --build-arg "VERSION=$version" --label "org.opencontainers.image.revision=$revision" \
    --build-context "build=$work/$architecture" --manifest "$name" . >/dev/null
done
tool manifest push --quiet --all --format oci "$name" "oci:$work/layout:${name##*:}" >/dev/null
archive "$archive" "$work/layout" blobs index.json oci-layout
jq -re '.manifests | if length == 1 then .[0].digest else error("more than one image") end' "$work/layout/index.json"
