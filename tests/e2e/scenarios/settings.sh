# shellcheck shell=bash
# soak
# alone
# pause, priority and requests that no node can meet: nothing happens while paused; a pod that cannot be scheduled costs one member and is reported; a correction heals at once; the leader is fenced, stays so with its volume, and comes back, and no write fails
pods() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o jsonpath='{range .items[*]}{.metadata.name}={.metadata.uid}{"\n"}{end}' | sort; }
patch() { kubectl -n "$ns" patch qec demo --type=merge -p "{\"spec\":$1}" >/dev/null; }
rolled() { is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ] && prints_nothing still "$before" pods; }
changed() { [ "$(pods)" != "$before" ]; }
export before

apply_cluster demo 3
ready demo 3
patch '{"updateStrategy":{"minReadySeconds":3,"progressDeadlineSeconds":20}}'
first=$(members demo)
witness_start demo settings

# Paused: a changed template, another size and a lost pod; only Kubernetes itself acts.
patch '{"paused":true}'
paused() { status demo summary | grep -qi paused; }
eventually 30 "the status reports that the cluster is paused" paused
before=$(pods)
priority=quorate-e2e-$RANDOM
kubectl create priorityclass "$priority" --value=1000 >/dev/null
patch "{\"podTemplate\":{\"spec\":{\"priorityClassName\":\"$priority\"}}}"
operator_kill
never 20 "a pod is made anew while paused" changed
equal "the members while paused" "$first" "$(members demo)"
victim=$(members demo | grep -vx "$(leader demo)" | tail -1)
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
again() { changed && kubectl -n "$ns" wait --for=condition=Ready "pod/$victim-0" --timeout=1s; }
eventually 90 "a deleted pod comes back while paused" again
before=$(pods)
patch '{"paused":false}'
eventually 240 "every member has the priority" rolled
equal "priorities" "1000" "$(kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json | jq -r '[.items[].spec.priority] | unique | map(tostring) | join(" ")')"
equal "the members" "$first" "$(members demo)"
witness_stop demo settings

# Requests that no node can satisfy.
witness_start demo requests 5
before=$(pods)
patch '{"resources":{"requests":{"cpu":"1000"}}}'
stalled() { [ "$(condition demo Stalled)" = True ] && status demo summary | grep -q 'UpdateFailed'; }
eventually 120 "the update is called failed" stalled
log "$(status demo summary)"
contains "$(status demo 'members[*].reason') $(kubectl -n "$ns" get qec demo -o json | jq -r '.status.conditions[].message')" 'Insufficient cpu'
old=$(still "$before" pods)
equal "pods that were left alone" 2 "$(count "$old")"
patch '{"resources":{"requests":{"cpu":"10m"}}}'
corrected() { is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ]; }
eventually 240 "every member runs with the corrected requests" corrected
equal "requests" 10m "$(kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json | jq -r '[.items[].status.containerStatuses[].resources.requests.cpu] | unique | join(" ")')"
equal "pods that were corrected while they ran" "$(count "$old")" "$(count "$(still "$before" pods)")"
equal "the members" "$first" "$(members demo)"
witness_stop demo requests

# A member is fenced, the leader: stopped, with its volume as it is, and no write fails; no second one is.
witness_start demo fence
fenced=$(status demo leader)
claims() { kubectl -n "$ns" get pvc -l app.kubernetes.io/instance=demo -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.uid} {.spec.volumeName}{"\n"}{end}' | sort; }
ids() { etcdctl_pod demo member list --write-out=json | jq -r '.members[] | "\(.name) \(.ID)"' | sort; }
disks=$(claims) numbers=$(ids)
contains "$(quorate_plugin fence demo "$fenced" -n "$ns")" "kubectl quorate unfence demo $fenced"
stopped() { none pods -l "quorate.dev/member=$fenced" && [ "$(kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Degraded")].reason}')" = Fenced ]; }
eventually 120 "$fenced is fenced" stopped
log "$(status demo summary)"
fence_fails() { PATH="$PWD/target/image/plugin:$PATH" kubectl quorate "$@" 2>&1; }
other=$(members demo | grep -vx "$fenced" | tail -1)
if said=$(fence_fails fence demo "$other" -n "$ns"); then die "a second member is fenced: $said"; fi
contains "$said" 'are a quorum, so it is not stopped'
comes() {
  local there
  there=$(kubectl -n "$ns" get pods -l "quorate.dev/member=$fenced" -o name) || die "the pods of $fenced cannot be listed"
  [ -n "$there" ]
}
never 45 "a member that is fenced is started or replaced" comes # longer than healing.unhealthySeconds
equal "volumes beside a fence" "$disks" "$(claims)"
equal "members beside a fence" "$numbers" "$(ids)"
quorate_plugin unfence demo "$fenced" -n "$ns" >/dev/null
eventually 120 "$fenced is back" is_ready demo 3
equal "volumes after a fence" "$disks" "$(claims)"
equal "members after a fence" "$numbers" "$(ids)"
witness_stop demo fence
drop_cluster demo
kubectl delete priorityclass "$priority" >/dev/null
