#!/usr/bin/env bash
# Builds the programs for `make bench` into target/interop/bin: etcd's own load generator, and the disk with slow
# syncs. Their versions are pinned in go.mod and go.sum; nothing is built if those have not changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${PEERS_OUT:-$here/../../target/interop/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)
command -v go >/dev/null || { echo "peers: Go is not installed, so etcd's benchmark cannot be built" >&2; exit 1; }

build() {
  local module=$1 package=$2 stamp
  stamp=$(cd "$here/$module" && cat ./* "$here/build-bench.sh" | sha256sum | cut -d' ' -f1)
  if [ -x "$out/$module" ] && [ "$(cat "$out/.$module-stamp" 2>/dev/null)" = "$stamp" ]; then
    return
  fi
  echo "peers: building $module"
  rm -f "$out/.$module-stamp"
  (cd "$here/$module" && GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0 \
    go build -trimpath -ldflags "-s -w" -o "$out/$module" "$package")
  echo "$stamp" > "$out/.$module-stamp"
}

build benchmark go.etcd.io/etcd/v3/tools/benchmark
build slowdisk .
