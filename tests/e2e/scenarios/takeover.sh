# shellcheck shell=bash
# by chart
# two operators for two of three namespaces: the acting one dies, the other takes its Lease; the third namespace is let alone
lease() { kubectl -n quorate-system get lease quorate-operator -o jsonpath="{.spec.$1}"; }
holder() { lease holderIdentity; }
acting_pod() { # the holder's identity begins with the name of its pod
  local pod
  for pod in $(kubectl -n quorate-system get pods -l app.kubernetes.io/component=operator -o jsonpath='{.items[*].metadata.name}'); do
    case $(holder) in "$pod"*) echo "$pod" ;; esac
  done
}
other=$ns-other stranger=$ns-stranger own=$ns
for namespace in "$other" "$stranger"; do
  kubectl create namespace "$namespace" >/dev/null
  kubectl label namespace "$namespace" quorate.dev/e2e=scenario pod-security.kubernetes.io/enforce=restricted >/dev/null
done
# Operators and members name a Secret for their image that does not exist: kubelets do without it.
helm upgrade quorate charts/quorate --namespace quorate-system --reuse-values --set-json 'imagePullSecrets=[{"name":"absent"}]' --set replicas=2 --set allNamespaces=false --set "watchNamespaces={$own,$other}" --set clusterRead=false >/dev/null
trap 'helm rollback quorate --namespace quorate-system >/dev/null 2>&1; kubectl delete namespace "$other" "$stranger" --wait=false >/dev/null' EXIT
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
# the pods of the old template end after the rollout, and one of them may still hold the Lease
two_left() { [ "$(kubectl -n quorate-system get pods -l app.kubernetes.io/component=operator -o name | grep -c .)" = 2 ] && [ -n "$(acting_pod)" ]; }
eventually 60 "two operators run, and one of them acts" two_left

ns=$stranger apply_cluster demo 1
ns=$other apply_cluster demo 1
apply_cluster demo 3
eventually 60 "the seed is a member" has_members demo 1
before=$(holder)
count=$(lease leaseTransitions)
victim=$(acting_pod)
if [ -n "${E2E_EXISTING:-}" ]; then kubectl -n quorate-system delete pod "$victim" --grace-period=0 --force >/dev/null 2>&1
else tests/kubernetes/cluster.sh kill-pod quorate-system "$victim"; fi
log "the acting operator $victim was killed while the cluster grew"
taken() { local now; now=$(holder) && [ -n "$now" ] && [ "$now" != "$before" ]; }
eventually 60 "another one holds the Lease" taken
[ "$(lease leaseTransitions)" -gt "$count" ] || die "the Lease changed hands under the same epoch $count"
ready demo 3
(ns=$other; ready demo 1)
equal "the Secrets with which members are pulled" absent "$(kubectl -n "$own" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json | jq -r '[.items[].spec.imagePullSecrets[].name] | unique | join(" ")')"

# An operator that is stopped releases its Lease: its successor does not wait for the expiry.
before=$(holder)
kubectl -n quorate-system delete pod "$(acting_pod)" --wait=false >/dev/null
eventually 10 "an operator that is stopped hands over" taken
kubectl -n "$own" scale qec demo --replicas=1 >/dev/null
ready demo 1
# This one started without permission to read cluster-scoped objects: it works, and reports that.
rights() { [ "$(kubectl -n "$own" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Degraded")].reason}')" = RightsMissing ]; }
eventually 30 "the missing rights are named" rights

ns=$stranger nothing "what the status of a cluster in a namespace that is not watched says" status demo observedGeneration
nothing "objects made in the namespace that is not watched" kubectl -n "$stranger" get sts,pods,pvc,pdb -o name
helm rollback quorate --namespace quorate-system >/dev/null
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
(ns=$stranger; ready demo 1)
log "watched everywhere again, the third cluster is served"
drops=()
for namespace in "$other" "$stranger" "$own"; do (ns=$namespace; drop_cluster demo) & drops+=($!); done
for drop in "${drops[@]}"; do wait "$drop"; done
trap 'kubectl delete namespace "$other" "$stranger" --wait=false >/dev/null' EXIT
