#!/usr/bin/env bash
# Builds the object stores that the tests of backups start, an S3 gateway and a server of Google's API, into
# target/stores/bin. Their versions are pinned in go.mod and go.sum; nothing is built if those have not changed.
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
for tool in github.com/versity/versitygw/cmd/versitygw github.com/fsouza/fake-gcs-server; do
  echo "stores: building ${tool##*/}" >&2
  go build -trimpath -ldflags "-s -w" -o "$out/${tool##*/}" "$tool"
done
echo "$stamp" > "$out/.stamp"
