# shellcheck shell=bash
# soak
# a deleted cluster leaves only what retention keeps, and a new one of its name never adopts old disks
apply_cluster demo 3 local
ready demo 3
# Volumes of this class are bound to their node: each member has its own node, and the sets that were created after
# the first volume was seen require it.
nodes() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\n' | sort -u | grep -c .; }
equal "nodes of three members" 3 "$(nodes)"
if [ -z "${E2E_EXISTING:-}" ]; then
  for member in demo-2 demo-3; do
    equal "what keeps $member apart" kubernetes.io/hostname "$(kubectl -n "$ns" get sts "$member" -o jsonpath='{.spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[*].topologyKey}')"
  done
fi
first=$(status demo clusterID)
etcdctl_pod demo put whose first >/dev/null
kubectl -n "$ns" delete qec demo --wait=true >/dev/null
operator_kill
eventually 90 "nothing is left but PVCs" gone demo
kept=$(kubectl -n "$ns" get pvc -o name | sort)
equal "pvcs that retention keeps" 3 "$(grep -c . <<<"$kept")"

apply_cluster demo 3 local
ready demo 3
second=$(status demo clusterID)
[ -n "$second" ] && [ "$second" != "$first" ] || die "the new cluster has the old identity, or none: \"$second\""
nothing "the old cluster's key in the new one" etcdctl_pod demo get whose --print-value-only
for pvc in $kept; do
  kubectl -n "$ns" get "$pvc" >/dev/null || die "$pvc, kept by retention, is gone"
done
log "left over and reported: $(status demo 'leftovers')"
drop_cluster demo
eventually 60 "no pvc is left once they are deleted by hand" none pvc
