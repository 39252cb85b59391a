#!/usr/bin/env bash
# rendered.sh CHART [FLAG...]: the chart (a folder or a package) as one file for kubectl, for clusters in every namespace, with
# the operator's namespace. The flags are helm's. Needs helm, as tests/kubernetes/build.sh helm makes it.
set -euo pipefail
cd "$(dirname "$0")/../.."
helm=target/kubernetes/bin/helm
[ -x $helm ] || { echo "rendered.sh: $helm is missing: tests/kubernetes/build.sh helm makes it" >&2; exit 1; }
chart=$1; shift
cat <<'END'
apiVersion: v1
kind: Namespace
metadata:
  name: quorate-system
  labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}
END
$helm template quorate "$chart" --kube-version 1.33.0 --namespace quorate-system --set allNamespaces=true "$@" |
  sed -e '/helm.sh\/chart:/d' -e 's/app.kubernetes.io\/managed-by: Helm/app.kubernetes.io\/managed-by: kubectl/' -e '/^# Source: /d'
