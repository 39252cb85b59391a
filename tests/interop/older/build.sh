#!/usr/bin/env bash
# Builds the etcds before the newest minor version that a cluster can be moved from, each into
# target/interop/etcd-VERSION. Their versions are pinned in the go.mod and go.sum of each.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command -v go >/dev/null || { echo "peers: Go is not installed, so older etcds cannot be built" >&2; exit 1; }
export GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0
for module in "$here"/*/go.mod; do
  folder=$(dirname "$module")
  out=$here/../../../target/interop/etcd-$(basename "$folder")
  stamp=$(cat "$folder/go.mod" "$folder/go.sum" "$here/build.sh" | sha256sum | cut -d' ' -f1)
  if [ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ]; then continue; fi
  mkdir -p "$out"
  rm -f "$out/.stamp"
  for tool in etcd:server etcdctl:etcdctl etcdutl:etcdutl; do
    echo "peers: building ${tool%%:*} $(basename "$folder")" >&2
    (cd "$folder" && go build -trimpath -ldflags "-s -w" -o "$out/${tool%%:*}" "go.etcd.io/etcd/${tool##*:}/v3")
  done
  echo "$stamp" >"$out/.stamp"
done
