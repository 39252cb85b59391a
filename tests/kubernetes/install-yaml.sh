#!/usr/bin/env bash
# deploy/install.yaml is the chart, rendered: one file for those who do not use Helm.
#   install-yaml.sh           writes it
#   install-yaml.sh --check   fails when it differs from what the chart renders now
set -euo pipefail
cd "$(dirname "$0")/../.."
helm=target/kubernetes/bin/helm
[ -x $helm ] || { echo "install-yaml.sh: $helm is missing: make kubernetes builds it" >&2; exit 1; }
render() {
  printf '%s\n' "# Generated from charts/quorate by make generate; edit the chart." \
    "apiVersion: v1" "kind: Namespace" "metadata: {name: quorate-system}"
  $helm template quorate charts/quorate --kube-version 1.33.0 --namespace quorate-system --set allNamespaces=true |
    sed -e '/helm.sh\/chart:/d' -e 's/app.kubernetes.io\/managed-by: Helm/app.kubernetes.io\/managed-by: kubectl/' -e '/^# Source: /d'
}
if [ "${1:-}" = --check ]; then
  diff <(render) deploy/install.yaml >/dev/null || { echo "deploy/install.yaml is not what the chart renders: run make generate" >&2; exit 1; }
else
  text=$(render) # not straight into the file: a failure must not empty it
  printf "%s\n" "$text" >deploy/install.yaml
fi
