#!/usr/bin/env bash
# The console in a browser: `quorate local --console` with a cluster of three, looked at by headless Chromium (story.mjs).
# Screenshots are in target/console/screens; IMAGES=1 also writes docs/images/console-*.png. The packages are pinned in
# package-lock.json. Expects the program in target/debug, or in QUORATE.
#   run.sh --install   installs Chromium, Node and npm where they are missing: as root on Debian
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ "${1:-}" = --install ]; then
  need=()
  command -v chromium >/dev/null || need+=(chromium fonts-dejavu-core)
  command -v node >/dev/null || need+=(nodejs)
  command -v npm >/dev/null || need+=(npm)
  [ ${#need[@]} -eq 0 ] && exit 0
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "console: these are missing, and only root with apt-get can install them from here: ${need[*]}" >&2
    exit 1
  fi
  echo "installing ${need[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
  command -v chromium >/dev/null || { echo "console: Chromium is still missing" >&2; exit 1; }
  exit 0
fi
out=$root/target/console
mkdir -p "$out/screens"
stamp=$(sha256sum "$here/package.json" "$here/package-lock.json" | sha256sum | cut -d ' ' -f 1)
if [ "$(cat "$out/.stamp" 2>/dev/null)" != "$stamp" ]; then
  rm -rf "$out/node_modules" "$out/.stamp"
  cp "$here/package.json" "$here/package-lock.json" "$out/"
  (cd "$out" && npm ci --ignore-scripts --no-audit --no-fund --silent)
  echo "$stamp" >"$out/.stamp"
fi
# Node looks for packages beside the program.
cp "$here"/*.mjs "$out/"
GOLDEN=$here/document.json QUORATE=${QUORATE:-$root/target/debug/quorate} CHROMIUM=${CHROMIUM:-$(command -v chromium)} node "$out/story.mjs" "$out/screens"
if [ "${IMAGES:-}" = 1 ]; then
  cp "$out/screens/light.png" "$root/docs/images/console-light.png"
  cp "$out/screens/dark.png" "$root/docs/images/console-dark.png"
fi
