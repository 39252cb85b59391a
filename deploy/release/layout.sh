#!/usr/bin/env bash
# layout.sh ARCHIVE COMMAND ARGUMENT...: an archive of the image layout that oci.py writes by this command; prints its digest.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ $# -ge 2 ] || die "usage: layout.sh ARCHIVE COMMAND ARGUMENT..."
archive=$1; shift
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
deploy/release/oci.py "$@" "$work/layout"
archive "$archive" "$work/layout" blobs index.json oci-layout
