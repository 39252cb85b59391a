#!/usr/bin/env bash
# signature.sh ARCHIVE IMAGE DIGEST PUBLIC-KEY: whether an archive of an image layout holds the signature of the image with this
# digest, where cosign looks for it, and by this key. By openssl and jq alone: what signs it is no judge of it.
set -euo pipefail
archive=$(realpath "$1") image=$2 digest=$3 key=$(realpath "$4")
die() { echo "signature.sh: $*" >&2; exit 1; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
tar -C "$work" -xf "$archive"
cd "$work"
blob() { # blob DIGEST: its file, which must have that digest
  local file=blobs/${1/://}
  [ "sha256:$(sha256sum "$file" | cut -d ' ' -f 1)" = "$1" ] || die "$file is not what its name says"
  echo "$file"
}
jq -e --arg tag "${digest/:/-}.sig" '.manifests | length == 1 and .[0].annotations["org.opencontainers.image.ref.name"] == $tag' index.json >/dev/null ||
  die "cosign does not find it: $(cat index.json)"
manifest=$(blob "$(jq -r '.manifests[0].digest' index.json)")
layer='.layers | length == 1 and .[0].mediaType == "application/vnd.dev.cosign.simplesigning.v1+json"'
jq -e "$layer" "$manifest" >/dev/null || die "its layer is no payload: $(cat "$manifest")"
blob "$(jq -r .config.digest "$manifest")" >/dev/null
payload=$(blob "$(jq -r '.layers[0].digest' "$manifest")")
[ "$(jq -r '.layers[0].size' "$manifest")" = "$(stat -c %s "$payload")" ] || die "its payload has another size"
jq -e --arg image "$image" --arg digest "$digest" '.critical == {identity: {"docker-reference": $image},
  image: {"docker-manifest-digest": $digest}, type: "cosign container image signature"}' "$payload" >/dev/null ||
  die "it is of something else: $(cat "$payload")"
jq -r '.layers[0].annotations["dev.cosignproject.cosign/signature"]' "$manifest" | base64 --decode >signature
if openssl pkey -pubin -in "$key" -noout -text | grep -qi '^ed25519'; then
  openssl pkeyutl -verify -rawin -pubin -inkey "$key" -in "$payload" -sigfile signature >/dev/null || die "it is not by this key"
else
  openssl dgst -sha256 -verify "$key" -signature signature "$payload" >/dev/null || die "it is not by this key"
fi
