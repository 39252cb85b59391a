#!/usr/bin/env bash
# make release: everything that a release of this commit has, in one folder, and a file with the digests of all of it. README.md
# beside this says what each file is. Uses no network, once tools.sh has run. The same commit gives the same bytes,
# but for a signature whose algorithm takes random numbers.
#   IMAGE=registry.example/team/quorate    where the image will be: manifests name it with the version and its digest
#   URL=https://downloads.example/v0.2.0   where the files will be: the plugin's manifest names them there
#   MAINTAINER='Name <name@example.com>'   who answers for the Debian packages
#   KEY=private.pem                        signs SHA256SUMS and the images with this key: Ed25519, ECDSA or RSA; without it
#                                          nothing is signed
#   OUT=target/release-files               the folder, which must not exist yet
#   PROFILE=ci                             compiled in less than half of the time, for tests; no release
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
out=${OUT:-target/release-files}
image=${IMAGE:-} url=${URL:-} key=${KEY:-}
export MAINTAINER=${MAINTAINER:-}
began=$SECONDS

# --- what is asked for
component='[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*'
[[ $image =~ ^([A-Za-z0-9.-]+(:[0-9]+)?/)?$component(/$component)*$ ]] ||
  die "IMAGE is where the image will be, without tag and digest, such as registry.example/team/quorate; it is \"$image\""
[[ $url =~ ^https?://[^[:space:]]+[^/[:space:]]$ ]] || die "URL is where the files will be, such as https://downloads.example/v$version; it is \"$url\""
[[ $MAINTAINER =~ ^[^\<\>\&\|\\]+\ \<[A-Za-z0-9._+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+\>$ ]] ||
  die "MAINTAINER is who answers for the Debian packages, such as 'Ada Lovelace <ada@example.com>'; it is \"$MAINTAINER\""
[ ! -e "$out" ] || die "$out exists already: remove it, or name another folder with OUT"
[ -z "$key" ] || openssl pkey -in "$key" -noout || die "KEY=$key is no private key that openssl reads"
[ -z "$(git status --porcelain --untracked-files=all)" ] || die "there are changes that are in no commit: a release is of a commit"
released=$(sed -n "/^## ${version//./\\.}\$/,/^## /s/^Commit \`\([0-9a-f]*\)\`.*/\1/p" CHANGELOG.md)
[ -z "$released" ] || [ "$released" = "$(git rev-parse "HEAD^{commit}")" ] ||
  die "version $version was released from commit $released: raise the version in Cargo.toml and Chart.yaml"
for tool in "$tools/venv/bin/cargo-zigbuild" "$tools/bin/cargo-cyclonedx" target/kubernetes/bin/helm; do
  [ -x "$tool" ] || die "$tool is missing: deploy/release/tools.sh installs it"
done
for tool in buildah dpkg-deb jq gzip tar openssl python3; do command -v $tool >/dev/null || die "$tool is missing: deploy/release/tools.sh installs it"; done

work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
part() { # part NAME COMMAND...
  local name=$1 from=$SECONDS; shift
  "$@"
  printf '%6d s  %s\n' $((SECONDS - from)) "$name"
}
files=$work/files binaries=$work/binaries
mkdir "$files"
servers() {
  local architecture
  for architecture in $architectures; do
    cp LICENSE "$binaries/$architecture/LICENSE"
    archive "$files/quorate-$version-linux-$(customary "$architecture").tar.gz" "$binaries/$architecture" LICENSE quorate
  done
}
container_image() { deploy/release/image.sh "$binaries" "$image:$version" "$files/quorate-$version-image.tar" >"$work/digest"; }
bundle() {
  deploy/release/bundle.py "$version" "$files/install.yaml" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" "$work/bundle"
  archive "$files/quorate-$version-olm-bundle.tar.gz" "$work/bundle" Dockerfile manifests metadata
  deploy/release/layout.sh "$files/quorate-$version-olm-bundle-image.tar" bundle "$work/bundle" "$version" >"$work/bundle-digest"
}
# Beside the images and not in them: who builds the same commit without the key has the same images.
signed_images() {
  deploy/release/layout.sh "$files/quorate-$version-image.sig.tar" signature "$image" "$(cat "$work/digest")" "$key" >/dev/null
  deploy/release/layout.sh "$files/quorate-$version-olm-bundle-image.sig.tar" signature "$image-bundle" "$(cat "$work/bundle-digest")" "$key" >/dev/null
}
signed() { # Ed25519 signs the whole file; the others sign its digest
  local sums=$files/SHA256SUMS
  openssl pkey -in "$key" -pubout -out "$files/SHA256SUMS.pub"
  if openssl pkey -in "$key" -noout -text | grep -qi '^ed25519'; then
    openssl pkeyutl -sign -rawin -inkey "$key" -in "$sums" -out "$sums.sig"
  else
    openssl dgst -sha256 -sign "$key" -out "$sums.sig" "$sums"
  fi
}
part "binaries" deploy/release/binaries.sh "$binaries"
part "servers' archives" servers
part "image" container_image
part "chart, install.yaml, kustomize" deploy/release/chart.sh "$image" "$(cat "$work/digest")" "$files"
part "bundle" bundle
part "plugin" deploy/release/plugin.sh "$binaries" "$url" "$files"
part "Debian packages" deploy/release/deb.sh "$binaries" "$files"
part "bill of materials" deploy/release/sbom.sh "$files/quorate-$version.cdx.json"
echo "$image:$version@$(cat "$work/digest")" >"$files/image.txt"
echo "$image-bundle:$version@$(cat "$work/bundle-digest")" >"$files/olm-bundle-image.txt"
(cd "$files" && sha256sum -- * >"$work/SHA256SUMS")
mv "$work/SHA256SUMS" "$files/SHA256SUMS"
[ -z "$key" ] || part "signature" signed
[ -z "$key" ] || part "images' signatures" signed_images
mkdir -p "$(dirname "$out")"
mv "$files" "$out"
echo "$version of $(git rev-parse --short HEAD) in $out, in $((SECONDS - began)) s; the image is $(cat "$out/image.txt")"
[ -n "$key" ] || echo "neither SHA256SUMS nor the images are signed: KEY names a private key"
