#!/usr/bin/env bash
# Builds the object store that the tests of backups start, an S3 gateway, into target/stores/bin. Its version is pinned
# in go.mod and go.sum; nothing is built if those have not changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../target/stores/bin
mkdir -p "$out"
out=$(cd "$out" && pwd)
stamp=$(cat "$here/go.mod" "$here/go.sum" "$here/build.sh" | sha256sum | cut -d' ' -f1)
if [ -x "$out/versitygw" ] && [ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi
command -v go >/dev/null || { echo "stores: Go is not installed, so no object store can be built" >&2; exit 1; }
cd "$here"
export GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0
rm -f "$out/.stamp"
echo "stores: building versitygw" >&2
go build -trimpath -ldflags "-s -w" -o "$out/versitygw" github.com/versity/versitygw/cmd/versitygw
echo "$stamp" > "$out/.stamp"
