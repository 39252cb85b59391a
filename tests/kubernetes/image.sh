#!/usr/bin/env bash
# image.sh NAME BINARY ARCHIVE: an image archive with one static binary, created without any image tool: a layer, a
# configuration and a manifest in one tar file.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: image.sh NAME BINARY ARCHIVE" >&2; exit 2; }
name=$1 binary=$2 archive=$3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
install -m 0755 "$binary" "$work/$(basename "$binary")"
tar -C "$work" --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$work/layer.tar" "$(basename "$binary")"
layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/%s"],"User":"65532:65532"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
  "$(basename "$binary")" "$layer" > "$work/config.json"
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" > "$work/manifest.json"
mkdir -p "$(dirname "$archive")"
tar -C "$work" -cf "$archive" layer.tar config.json manifest.json
