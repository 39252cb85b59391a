# shellcheck shell=bash
# every rendering of tests/chart/cases is taken by the API server, strictly and by its admission, as a dry run; who may view or edit a namespace may do so with EtcdClusters
for namespace in shop tenants; do
  kubectl create namespace $namespace >/dev/null
  kubectl label namespace $namespace quorate.dev/e2e=scenario >/dev/null
done
trap 'kubectl delete namespace shop tenants --wait=false >/dev/null' EXIT
server=$(kubectl version -o json | jq -r .serverVersion.gitVersion)
taken=0
for file in tests/chart/cases/*.yaml; do
  versions=()
  # The definitions of the Prometheus operator are not on this cluster, so their objects are left out, and it has no IPv6.
  for version in $(sed -n 's/^# api-versions: //p' "$file"); do versions+=("--api-versions=$version"); done
  helm template q charts/quorate --kube-version "$server" --namespace quorate-system --set crds.enabled=false "${versions[@]}" -f "$file" |
    awk 'BEGIN {RS = "---\n"; ORS = RS} !/\nkind: (PodMonitor|ServiceMonitor|PrometheusRule)\n/' | sed '/^    - IPv6$/d' >"/tmp/chart-$$"
  kubectl apply --server-side --dry-run=server --validate=strict -f "/tmp/chart-$$" >/dev/null || die "the API server refuses ${file##*/}"
  taken=$((taken + 1))
done
rm -f "/tmp/chart-$$"
[ $taken -ge 7 ] || die "only $taken cases were rendered"

# Kubernetes' own roles have the rights that the chart adds to them, once its controller has seen that.
for role in view edit; do kubectl -n "$ns" create rolebinding "e2e-$role" --clusterrole=$role --user="e2e-$role" >/dev/null; done
# may ROLE VERB [FLAG...]: EtcdClusters, or their subresource
may() { kubectl auth can-i "$2" etcdclusters.quorate.dev "${@:3}" --as="e2e-$1" -n "$ns" 2>/dev/null || true; }
may_list() { [ "$(may view list)" = yes ]; }
eventually 60 "who may view lists EtcdClusters" may_list
equal "who may view creates EtcdClusters" no "$(may view create)"
equal "who may edit creates EtcdClusters" yes "$(may edit create)"
equal "who may edit scales EtcdClusters" yes "$(may edit patch --subresource=scale)"
equal "who may edit writes their status" no "$(may edit patch --subresource=status)"
