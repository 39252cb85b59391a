#!/usr/bin/env bash
# make release, whole, as part of make soak: twice, from two checkouts of the same commit in different folders, the second time
# in a network namespace without any network. Both are the same bytes; check.py reads every file; other people's judges read
# the bundle, the plugin's manifest and the base of kustomize; the Debian package is installed, removed and purged; and the
# binary for arm64 runs as a cluster of three under qemu; the whole binary compiles for macOS. Needs root on Linux, Go, and the registries the first time.
#   PROFILE=ci   both builds compiled in less than half of the time
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ "$(id -u)" = 0 ] || die "needs root: it makes a network namespace, and installs a package in a copy of this system"
[ -z "$(git status --porcelain)" ] || die "there are changes that are in no commit"
commit=$(git rev-parse HEAD)
work=$PWD/target/release-test
bin=$work/bin
rm -rf "$work"
mkdir -p "$bin"
step() { echo "--- $*"; }

step "tools"
need=()
for pair in qemu-aarch64:qemu-user lintian:lintian unshare:util-linux; do command -v "${pair%%:*}" >/dev/null || need+=("${pair##*:}"); done
if [ ${#need[@]} -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi
tests/interop/build.sh
deploy/release/tools.sh
judge() { (cd tests/release/tools/"$1" && CGO_ENABLED=0 go build -mod=readonly -trimpath -o "$bin/$1" "$2"); }
judge operator-verify github.com/operator-framework/api/cmd/operator-verify
judge krew sigs.k8s.io/krew/cmd/krew
judge kustomize sigs.k8s.io/kustomize/kustomize/v5

step "a laptop with macOS"
tests/release/macos.sh

step "keys"
openssl genpkey -algorithm ed25519 -out "$work/ed25519.pem"
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/ecdsa.pem"

step "what is refused"
image=registry.example:5000/team/quorate url=https://downloads.example/v$version
export MAINTAINER='Quorate <releases@quorate.dev>'
refused() { # refused TEXT [VARIABLE=VALUE...]
  local text=$1 said; shift
  if said=$(env "$@" OUT="$work/refused" deploy/release/build.sh 2>&1); then die "a release was made with $*"; fi
  [[ $said == *"$text"* ]] || die "with $*, which is refused: $said"
}
refused "IMAGE is where" URL="$url"
refused "IMAGE is where" IMAGE="$image:latest" URL="$url"
refused "IMAGE is where" IMAGE="$image@sha256:0" URL="$url"
refused "URL is where" IMAGE="$image"
for wrong in "" Quorate quorate@localhost "Quorate <quorate@localhost>" "a|b <a@b.example>"; do
  refused "MAINTAINER is who" IMAGE="$image" URL="$url" MAINTAINER="$wrong"
done
refused "is no private key" IMAGE="$image" URL="$url" KEY=README.md
touch not-in-a-commit
refused "in no commit" IMAGE="$image" URL="$url"
rm not-in-a-commit
mkdir "$work/there"
if OUT=$work/there IMAGE=$image URL=$url deploy/release/build.sh >"$work/said" 2>&1; then die "a folder was written over"; fi
grep -q "exists already" "$work/said" || die "a folder that is there: $(cat "$work/said")"
git clone --quiet . "$work/released"
(
  cd "$work/released"
  git config user.name test
  git config user.email test@localhost
  sed -i "s/^## Unreleased$/## $version\n\nCommit \`$commit\`.\n/" CHANGELOG.md
  git commit --quiet --all --message "after the release"
  if IMAGE=$image URL=$url deploy/release/build.sh >"$work/said" 2>&1; then echo "a released version was built from another commit" >&2; exit 1; fi
  grep -q "was released from commit $commit" "$work/said"
) || die "a version that was released: $(cat "$work/said")"

step "the first"
make --no-print-directory release IMAGE="$image" URL="$url" OUT="$work/first" KEY="$work/ed25519.pem"
step "the second: another checkout, another folder, no network"
(umask 077 && git clone --quiet . "$work/checkout" && git -C "$work/checkout" checkout --quiet "$commit")
mkdir -p "$work/checkout/target/kubernetes"
cp -r "$tools" "$work/checkout/target/release-tools"
cp -r target/kubernetes/bin "$work/checkout/target/kubernetes/bin"
unshare --net make --no-print-directory -C "$work/checkout" release IMAGE="$image" URL="$url" OUT="$work/second" KEY="$work/ed25519.pem"
diff -r "$work/first" "$work/second" || die "two builds of the same commit differ"

step "its files"
tests/release/check.py "$work/first" $image "$url"
cd "$work/first"
sha256sum --quiet --check SHA256SUMS
openssl pkeyutl -verify -rawin -pubin -inkey SHA256SUMS.pub -in SHA256SUMS -sigfile SHA256SUMS.sig >/dev/null
for one in image:"$image" olm-bundle-image:"$image-bundle"; do
  named=$(cat "${one%%:*}.txt")
  "$OLDPWD/tests/release/signature.sh" "quorate-$version-${one%%:*}.sig.tar" "${one#*:}" "${named#*@}" SHA256SUMS.pub
done
openssl dgst -sha256 -sign "$work/ecdsa.pem" -out "$work/ecdsa.sig" SHA256SUMS
openssl pkey -in "$work/ecdsa.pem" -pubout -out "$work/ecdsa.pub"
openssl dgst -sha256 -verify "$work/ecdsa.pub" -signature "$work/ecdsa.sig" SHA256SUMS >/dev/null
echo tampered >"$work/tampered"
! openssl pkeyutl -verify -rawin -pubin -inkey SHA256SUMS.pub -in "$work/tampered" -sigfile SHA256SUMS.sig >/dev/null 2>&1 || die "a signature fits another file"

step "judges"
mkdir "$work/bundle" "$work/kustomize" "$work/krew"
tar -C "$work/bundle" -xf "quorate-$version-olm-bundle.tar.gz"
"$bin/operator-verify" manifests "$work/bundle/manifests"
tar -C "$work/kustomize" -xf "quorate-$version-kustomize.tar.gz"
"$bin/kustomize" build "$work/kustomize" >"$work/kustomized.yaml"
[ "$(grep -c '^kind: ' "$work/kustomized.yaml")" = "$(grep -c '^kind: ' install.yaml)" ] || die "kustomize has other objects than install.yaml"
# the overlay of docs/tasks/install.md, over this base
mkdir "$work/overlay"
sed -n '/^# kustomization.yaml$/,/^```$/p' "$OLDPWD/docs/tasks/install.md" | sed -e '/^```$/d' -e "s|resources: .*|resources: [../kustomize]|" >"$work/overlay/kustomization.yaml"
"$bin/kustomize" build "$work/overlay" >"$work/overlaid.yaml"
grep -q 'image: mirror.example/quorate:NEW$' "$work/overlaid.yaml" && grep -q -- '- --image=mirror.example/quorate:NEW$' "$work/overlaid.yaml" ||
  die "the overlay of docs/tasks/install.md changes nothing"
KREW_ROOT=$work/krew "$bin/krew" install --manifest quorate.krew.yaml --archive "kubectl-quorate-$version-linux-amd64.tar.gz"
"$work/krew/bin/kubectl-quorate" --help | grep -q 'kubectl quorate' || die "the plugin that krew installed does not run"
lintian --fail-on error --tag-display-limit 0 --suppress-tags-from-file "$OLDPWD/tests/release/lintian.txt" ./*.deb
cd "$OLDPWD"

step "the Debian package, in a copy of this system"
unshare --mount tests/release/debian.sh "$work/first/quorate_${version}_amd64.deb" "$version"

step "three members for arm64, under qemu"
mkdir "$work/arm64"
tar -C "$work/arm64" -xf "$work/first/quorate-$version-linux-arm64.tar.gz" quorate
tests/release/arm64.sh "$work/arm64/quorate" "$version"
echo "test result: ok. 1 passed; 0 failed: make release, $version"
