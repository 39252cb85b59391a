#!/usr/bin/env bash
# Installs the object stores that the tests of backups start into target/stores/bin: versitygw, an S3 gateway (built,
# needs Go); Azurite, with Azure's API (Node); and moto, a second implementation of S3's API (Python). Versions and hashes
# are pinned in go.sum, azure/package-lock.json and moto/requirements.txt; nothing is done if those have not changed. With
# a NAME (versitygw, azure, moto) only that one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../target/stores
mkdir -p "$out/bin"
out=$(cd "$out" && pwd)
only=${1:-}

# needed NAME FILE...: whether it is not there as these files want it
needed() {
  local name=$1; shift
  if [ -n "$only" ] && [ "$only" != "$name" ]; then return 1; fi
  stamp=$(cat "$here/build.sh" "$@" | sha256sum | cut -d' ' -f1)
  [ "$(cat "$out/$name.stamp" 2>/dev/null)" != "$stamp" ] || return 1
  rm -f "$out/$name.stamp"
  echo "stores: installing $name" >&2
}
needs() { command -v "$1" >/dev/null || { echo "stores: $1 is not installed, so $2 cannot be" >&2; exit 1; }; }

if needed versitygw "$here/go.mod" "$here/go.sum"; then
  needs go versitygw
  (cd "$here" && GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0 \
    go build -trimpath -ldflags "-s -w" -o "$out/bin/versitygw" github.com/versity/versitygw/cmd/versitygw)
  echo "$stamp" >"$out/versitygw.stamp"
fi
if needed azure "$here/azure/package-lock.json"; then
  needs npm Azurite
  rm -rf "$out/azure"
  mkdir "$out/azure"
  cp "$here"/azure/package*.json "$out/azure"
  (cd "$out/azure" && npm ci --silent --ignore-scripts --no-audit --no-fund)
  ln -sf ../azure/node_modules/.bin/azurite-blob "$out/bin/azurite-blob"
  echo "$stamp" >"$out/azure.stamp"
fi
if needed moto "$here/moto/requirements.txt"; then
  needs python3 moto
  rm -rf "$out/moto"
  python3 -m venv "$out/moto"
  "$out/moto/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$here/moto/requirements.txt"
  ln -sf ../moto/bin/moto_server "$out/bin/moto_server"
  echo "$stamp" >"$out/moto.stamp"
fi
