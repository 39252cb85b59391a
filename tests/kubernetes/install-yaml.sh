#!/usr/bin/env bash
# deploy/install.yaml is the chart, rendered: one file for those who do not use Helm.
#   install-yaml.sh           writes it
#   install-yaml.sh --check   fails if it differs from what the chart renders now or, if helm is not built
#                             yet, if the chart has changed since it was rendered
set -euo pipefail
cd "$(dirname "$0")/../.."
helm=target/kubernetes${KUBERNETES:+-$KUBERNETES}/bin/helm
# The hash of names and contents, in an order that no locale changes.
chart() { (cd charts/quorate && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d ' ' -f 1); }
render() {
  printf '%s\n' "# Generated from charts/quorate by make generate; edit the chart." "# sha256 of the chart's files: $(chart)"
  deploy/release/rendered.sh charts/quorate
}
same() {
  if [ -x $helm ]; then
    diff <(render) deploy/install.yaml >/dev/null
  else
    grep -qxF "# sha256 of the chart's files: $(chart)" deploy/install.yaml
  fi
}
if [ "${1:-}" = --check ]; then
  same || { echo "deploy/install.yaml is not what the chart renders: run make generate" >&2; exit 1; }
else
  [ -x $helm ] || { echo "install-yaml.sh: $helm is missing: make kubernetes builds it" >&2; exit 1; }
  text=$(render) # not straight into the file: a failure must not empty it
  printf "%s\n" "$text" >deploy/install.yaml
fi
