#!/usr/bin/env bash
# Builds etcd's own load generator into target/peers/bin/benchmark, for `make bench`. Its version
# is pinned in go.mod and go.sum; nothing is built when those have not changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${PEERS_OUT:-$here/../../../target/peers/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)
stamp=$(cat "$here/go.mod" "$here/go.sum" "$here/build.sh" | sha256sum | cut -d' ' -f1)
if [ -x "$out/benchmark" ] && [ "$(cat "$out/.benchmark-stamp" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi
command -v go >/dev/null || { echo "peers: Go is not installed, so etcd's benchmark cannot be built" >&2; exit 1; }
cd "$here"
rm -f "$out/.benchmark-stamp"
GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0 \
  go build -trimpath -ldflags "-s -w" -o "$out/benchmark" go.etcd.io/etcd/v3/tools/benchmark
echo "$stamp" > "$out/.benchmark-stamp"
