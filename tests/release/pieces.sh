#!/usr/bin/env bash
# The parts of make release that need no compiler, twice, with binaries that are none: chart, install.yaml, bundle, plugin's
# manifest and Debian packages say what they should (check.py), and are the same bytes both times. tests/release/whole.sh
# tests the rest. Needs helm (tests/kubernetes/build.sh helm), python3 with yaml, and dpkg-deb.
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
for time in first second; do
  out=$work/$time
  mkdir "$out"
  deploy/release/chart.sh $image "$digest" "$out"
  deploy/release/bundle.py "$version" "$out/install.yaml" 2026-01-01T00:00:00Z "$work/bundle-$time"
  archive "$out/quorate-$version-olm-bundle.tar.gz" "$work/bundle-$time" Dockerfile manifests metadata
  deploy/release/plugin.sh "$work/binaries" "$url" "$out"
  deploy/release/deb.sh "$work/binaries" "$out"
  echo "$image:$version@$digest" >"$out/image.txt"
done
diff -r "$work/first" "$work/second" || die "two builds of the same commit differ"
tests/release/check.py --pieces "$work/first" $image "$url"
