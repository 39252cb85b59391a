# shellcheck shell=bash
# soak
# alone
# replicas 0 stops every member and keeps PVCs and identity; scaled up again, the same members serve the same data
pvcs() { kubectl -n "$ns" get pvc -l "app.kubernetes.io/instance=$1" -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.uid} {.spec.volumeName}{"\n"}{end}' | sort; }
identities() { etcdctl_pod demo member list --write-out=json | jq -r '"cluster \(.header.cluster_id)", (.members[] | "\(.name) \(.ID)")' | sort; }
stopped() {
  [ "$(status demo observedGeneration)" = "$(kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.generation}')" ] &&
    [ "$(kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Ready")].reason}')" = Hibernated ] &&
    [ "$(status demo replicas)" = 0 ] &&
    none pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member
}
sleeps() { kubectl -n "$ns" scale qec demo --replicas=0 >/dev/null && eventually 120 "every member of demo has stopped" stopped; }

apply_cluster demo 3
ready demo 3
for n in 1 2 3 4 5; do etcdctl_pod demo put "night/$n" "value $n" >/dev/null; done
data=$(etcdctl_pod demo get night/ --prefix)
first=$(identities)
disks=$(pvcs demo)
id=$(status demo clusterID)
equal "PVCs" 3 "$(grep -c . <<<"$disks")"

sleeps
log "$(status demo summary)"
equal "the PVCs in hibernation" "$disks" "$(pvcs demo)"
equal "the sets in hibernation" 3 "$(kubectl -n "$ns" get sts -l quorate.dev/cluster=demo -o name | grep -c .)"
rests() { [ "$(kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.resourceVersion}')" != "$version" ]; }
version=$(kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.resourceVersion}')
never 15 "the status of a sleeping cluster is written" rests

kubectl -n "$ns" scale qec demo --replicas=3 >/dev/null
ready demo 3
equal "cluster and member IDs after waking" "$first" "$(identities)"
equal "the cluster's ID in the status" "$id" "$(status demo clusterID)"
equal "the PVCs after waking" "$disks" "$(pvcs demo)"
equal "the data after waking" "$data" "$(etcdctl_pod demo get night/ --prefix)"

# Once more, with the operator killed half-way, a changed template, and another size to resume with.
kubectl -n "$ns" scale qec demo --replicas=0 >/dev/null
operator_kill
eventually 120 "every member of demo has stopped, by the next operator" stopped
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"replicas":1,"podTemplate":{"metadata":{"annotations":{"example.org/woken":"1"}}}}}' >/dev/null
ready demo 1
equal "the cluster's ID after the second night" "$id" "$(status demo clusterID)"
equal "the data after the second night" "$data" "$(etcdctl_pod demo get night/ --prefix)"
drop_cluster demo
