#!/usr/bin/env bash
# Builds the real etcd, etcdctl and etcdutl for the comparing tests into target/interop/bin, and the Go client's
# test programs, the printer of etcd's descriptors, the cluster of etcd's Raft library and porcupine. Their versions
# are pinned in go.mod and go.sum; nothing is built if those have not changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${PEERS_OUT:-$here/../../target/interop/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)
PEERS_OUT=$out "$here/porcupine/build.sh"
stamp=$(cat "$here/go.mod" "$here/go.sum" "$here/build.sh" "$here"/go/*.go "$here"/go/connect/*.go "$here"/descriptors/*.go "$here"/raft/*.go | sha256sum | cut -d' ' -f1)
if [ -x "$out/etcd" ] && [ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi
command -v go >/dev/null || { echo "peers: Go is not installed, so real etcd cannot be built" >&2; exit 1; }
cd "$here"
export GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0
rm -f "$out/.stamp"
for tool in etcd:server etcdctl:etcdctl etcdutl:etcdutl; do
  echo "peers: building ${tool%%:*}" >&2
  go build -trimpath -ldflags "-s -w" -o "$out/${tool%%:*}" "go.etcd.io/etcd/${tool##*:}/v3"
done
for tool in story-go:go connect-go:go/connect descriptors:descriptors raft-driver:raft; do
  echo "peers: building ${tool%%:*}" >&2
  go build -trimpath -ldflags "-s -w" -o "$out/${tool%%:*}" "./${tool##*:}"
done
echo "$stamp" > "$out/.stamp"
