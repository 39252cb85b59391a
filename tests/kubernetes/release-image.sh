#!/usr/bin/env bash
# release-image.sh VERSION: a released version of this repository, for tests of upgrades. Builds the commit that
# CHANGELOG.md names for it; leaves in target/releases/VERSION its chart (chart), its static binary (quorate) and
# an image archive (quorate.tar) named localhost/quorate:VERSION. Output of the same commit is not built again.
# Needs git with that commit, and the requirements of quorate-image.sh except buildah.
#   QUORATE_IMAGE_PROFILE=ci   as in quorate-image.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -eq 1 ] || { echo "usage: release-image.sh VERSION" >&2; exit 2; }
version=$1
commit=$(sed -n "/^## ${version//./\\.}\$/,/^## /s/^Commit \`\([0-9a-f]*\)\`.*/\1/p" CHANGELOG.md)
[ -n "$commit" ] || { echo "release-image.sh: CHANGELOG.md names no commit for version $version" >&2; exit 1; }
git cat-file -e "$commit^{commit}" 2>/dev/null || { echo "release-image.sh: commit $commit of version $version is not in this clone: git fetch --unshallow" >&2; exit 1; }
out=target/releases/$version
if [ "$(cat $out/commit 2>/dev/null)" = "$commit" ] && [ -x $out/quorate ] && [ -d $out/chart ] && [ $out/quorate.tar -nt $out/quorate ]; then
  echo "the image of $version is up to date"; exit
fi
tests/needs.sh rust cc musl
target=$(uname -m)-unknown-linux-musl
rm -rf $out; mkdir -p $out/source
git archive "$commit" | tar -C $out/source -x
if [ "${QUORATE_IMAGE_PROFILE:-release}" = ci ]; then # the profile with that name, which older versions do not have
  export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
fi
CARGO_TARGET_DIR=$PWD/$out/target cargo build --locked --release --target "$target" --bin quorate --manifest-path $out/source/Cargo.toml
install -m 0755 "$out/target/$target/release/quorate" $out/quorate
cp -r $out/source/charts/quorate $out/chart
rm -rf $out/target $out/source
tests/kubernetes/image.sh "localhost/quorate:$version" $out/quorate $out/quorate.tar
echo "$commit" >$out/commit
