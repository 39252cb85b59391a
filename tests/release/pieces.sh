#!/usr/bin/env bash
# The parts of make release that need no compiler, twice, with binaries that are none: chart, install.yaml, bundle and its
# image, plugin's manifest, Debian packages and signatures of images say what they should (check.py, and openssl for the
# signatures), and are the same bytes both times. tests/release/whole.sh tests the rest. Needs openssl, helm (tests/kubernetes/build.sh helm), python3 with yaml, and dpkg-deb.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
for script in deploy/release/*.sh tests/release/*.sh; do
  [ -x "$script" ] || ! head -n 1 "$script" | grep -q '^#!' || die "$script is called, and is not executable: git update-index --chmod=+x $script"
done
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
image=registry.example:5000/team/quorate url=https://downloads.example/v$version
export MAINTAINER='Quorate <releases@quorate.dev>'
digest=sha256:$(echo quorate | sha256sum | cut -d ' ' -f 1)
for architecture in $architectures; do
  mkdir -p "$work/binaries/$architecture"
  echo "no binary for $architecture" >"$work/binaries/$architecture/quorate"
done
for target in "${targets[@]}"; do
  mkdir -p "$work/binaries/plugins/$target"
  echo "no plugin for $target" >"$work/binaries/plugins/$target/$(plugin_of "$target")"
done
openssl genpkey -quiet -algorithm ed25519 -out "$work/ed25519.pem"
openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/ecdsa.pem"
for time in first second; do
  out=$work/$time
  mkdir "$out"
  deploy/release/chart.sh $image "$digest" "$out"
  deploy/release/bundle.py "$version" "$out/install.yaml" 2026-01-01T00:00:00Z "$work/bundle-$time"
  archive "$out/quorate-$version-olm-bundle.tar.gz" "$work/bundle-$time" Dockerfile manifests metadata
  bundle=$(deploy/release/layout.sh "$out/quorate-$version-olm-bundle-image.tar" bundle "$work/bundle-$time" "$version")
  echo "$image-bundle:$version@$bundle" >"$out/olm-bundle-image.txt"
  deploy/release/layout.sh "$out/quorate-$version-image.sig.tar" signature $image "$digest" "$work/ed25519.pem" >/dev/null
  deploy/release/layout.sh "$out/quorate-$version-olm-bundle-image.sig.tar" signature $image-bundle "$bundle" "$work/ed25519.pem" >/dev/null
  deploy/release/plugin.sh "$work/binaries" "$url" "$out"
  deploy/release/deb.sh "$work/binaries" "$out"
  echo "$image:$version@$digest" >"$out/image.txt"
done
diff -r "$work/first" "$work/second" || die "two builds of the same commit differ"
tests/release/check.py --pieces "$work/first" $image "$url"

# With the key that others use most, and as cosign does it: the payload names the image, and the signature is one of the
# payload, and of no other.
bundle=$(sed 's/.*@//' "$work/first/olm-bundle-image.txt")
deploy/release/layout.sh "$work/ecdsa.tar" signature $image-bundle "$bundle" "$work/ecdsa.pem" >/dev/null
for algorithm in ed25519 ecdsa; do openssl pkey -in "$work/$algorithm.pem" -pubout -out "$work/$algorithm.pub"; done
tests/release/signature.sh "$work/first/quorate-$version-image.sig.tar" $image "$digest" "$work/ed25519.pub"
tests/release/signature.sh "$work/first/quorate-$version-olm-bundle-image.sig.tar" $image-bundle "$bundle" "$work/ed25519.pub"
tests/release/signature.sh "$work/ecdsa.tar" $image-bundle "$bundle" "$work/ecdsa.pub"
openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 | openssl pkey -pubout -out "$work/other.pub"
! tests/release/signature.sh "$work/ecdsa.tar" $image-bundle "$bundle" "$work/other.pub" 2>/dev/null || die "a signature fits another key"
! tests/release/signature.sh "$work/ecdsa.tar" $image-bundle "$digest" "$work/ecdsa.pub" 2>/dev/null || die "a signature fits another image"
echo "signatures: of both images, by Ed25519 and by ECDSA"
