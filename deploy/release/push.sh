#!/usr/bin/env bash
# push.sh FOLDER: pushes the images in the folder that make release wrote to the registries that they are named for, with the
# same digests, and each one's signature to where cosign looks for it. Needs skopeo, which is logged in there.
#   SKOPEO_FLAGS=--dest-tls-verify=false   further flags of skopeo copy, for a registry without TLS
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: push.sh FOLDER" >&2; exit 2; }
cd "$1"
read -ra flags <<<"${SKOPEO_FLAGS:-}"
push() { skopeo copy --all --preserve-digests "${flags[@]}" "oci-archive:$1" "docker://$2"; }
for kind in image olm-bundle-image; do
  named=$(cat $kind.txt) # registry/repository:tag@digest
  tagged=${named%@*} digest=${named#*@}
  version=${tagged##*:}
  push "quorate-$version-$kind.tar" "$tagged"
  signature=quorate-$version-$kind.sig.tar
  if [ -e "$signature" ]; then push "$signature" "${tagged%:*}:${digest/:/-}.sig"; fi
done
