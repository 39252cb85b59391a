#!/usr/bin/env bash
# plugin.sh BINARIES URL OUT: the kubectl plugin for each target as an archive, and the manifest for krew, which names them
# below URL with their digests.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ $# -eq 3 ] || die "usage: plugin.sh BINARIES URL OUT"
binaries=$1 url=$2 out=$3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cp LICENSE "$work/LICENSE"
manifest=$out/quorate.krew.yaml
cat >"$manifest" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: quorate
spec:
  version: v$version
  homepage: $url
  shortDescription: Status and forecasts of Quorate's clusters
  description: |
    Shows the members of an EtcdCluster and their logs, what Quorate's operator does and what comes next, what it
    would do if a manifest were applied, and what is left of a cluster that has lost its quorum. Runs your etcdctl
    against a cluster. It asks by the installed kubectl.
  platforms:
END
for target in "${targets[@]}"; do
  case $target in *linux*) os=linux ;; *darwin*) os=darwin ;; *windows*) os=windows ;; *) die "what system is $target?" ;; esac
  architecture=$(customary "${target%%-*}")
  file=$(plugin_of "$target")
  name=kubectl-quorate-$version-$os-$architecture.tar.gz
  install -m 0755 "$binaries/plugins/$target/$file" "$work/$file"
  archive "$out/$name" "$work" LICENSE $file
  cat >>"$manifest" <<END
    - selector:
        matchLabels: {os: $os, arch: $architecture}
      uri: $url/$name
      sha256: $(sha256sum "$out/$name" | cut -d ' ' -f 1)
      bin: $file
END
done
