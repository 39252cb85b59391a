#!/usr/bin/env bash
# Builds porcupine, the second checker of recorded histories, into target/interop/bin. Its version is pinned in
# go.mod and go.sum; nothing is built if those have not changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${PEERS_OUT:-$here/../../../target/interop/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)
stamp=$(cat "$here"/go.mod "$here"/go.sum "$here"/*.go "$here/build.sh" | sha256sum | cut -d' ' -f1)
if [ -x "$out/porcupine" ] && [ "$(cat "$out/.porcupine-stamp" 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi
command -v go >/dev/null || { echo "peers: Go is not installed, so porcupine cannot be built" >&2; exit 1; }
echo "peers: building porcupine" >&2
cd "$here"
rm -f "$out/.porcupine-stamp"
GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$out/porcupine" .
echo "$stamp" > "$out/.porcupine-stamp"
