# shellcheck shell=bash
# soak
# own cluster
# nodes lose power: one boots again and carries the same member; the leader's, which has the operator as well, stays away, another operator and another member take their places, and nothing of the lost one is deleted while its pod might still run
number() { printf '%s' "${1##*[!0-9]}"; }
# operator_moves to|from NODE: its pods are on this node alone, or on any other one.
operator_moves() {
  local others pods
  others=$(kubectl get nodes -o name | grep -vx "node/$2")
  [ "$1" = to ] || others=node/$2
  # shellcheck disable=SC2086 # several nodes
  kubectl cordon $others >/dev/null
  pods=$(kubectl -n quorate-system get pods -l app.kubernetes.io/component=operator -o json | jq -r --arg node "$2" --arg to "$1" \
    '.items[] | select((.spec.nodeName == $node) != ($to == "to")) | "pod/" + .metadata.name')
  # shellcheck disable=SC2086 # several pods
  [ -z "$pods" ] || kubectl -n quorate-system delete $pods >/dev/null
  eventually 120 "the operator runs $1 $2" kubectl -n quorate-system rollout status deployment/quorate --timeout=1s
  # shellcheck disable=SC2086
  kubectl uncordon $others >/dev/null
}
heal() { kubectl -n "$ns" patch qec demo --type=merge -p "{\"spec\":{\"healing\":{\"unhealthySeconds\":$1}}}" >/dev/null; }

apply_cluster demo 3
heal 300
ready demo 3
spare_node_comes
first=$(members demo)
witness_start demo reboot 20

# A reboot: longer than the API server takes to mark the node as lost, shorter than unhealthySeconds.
victim=$(follower demo)
node=$(node_of "$victim")
uid=$(pod_uid "$victim-0")
operator_moves from "$node"
tests/kubernetes/cluster.sh lose "$(number "$node")"
log "$node lost power, with $victim on it"
began=$SECONDS
waits() { status demo "members[?(@.name==\"$victim\")].reason" | grep -q "its node $node does not report"; }
eventually 90 "the status reports that the node does not report" waits
log "$(status demo summary)"
contains "$(quorate_plugin status demo -n "$ns")" "$victim" 'waits for' 'its node to come back'
operator_kill
tests/kubernetes/cluster.sh revive "$(number "$node")"
log "$node booted after $((SECONDS - began)) s"
began=$SECONDS
eventually 180 "the cluster is whole again" whole demo 3
log "it was whole $((SECONDS - began)) s after the boot"
equal "the members after a reboot" "$first" "$(members demo)"
equal "the pod after a reboot" "$uid" "$(pod_uid "$victim-0")"
witness_stop demo reboot

# For good, and it is the node of the leader and of the only operator.
heal 20
ready demo 3
victim=$(leader demo)
node=$(node_of "$victim")
operator_moves to "$node"
uid=$(pod_uid "$victim-0")
pvc=$(status demo "members[?(@.name==\"$victim\")].volumeClaimName")
witness_start demo loss 20
tests/kubernetes/cluster.sh lose "$(number "$node")"
log "$node lost power, with $victim on it, which led, and with the operator"
began=$SECONDS
noticed() { kubectl -n "$ns" get qec demo && ! is_ready demo 3; }
eventually 120 "another operator runs and sees the loss" noticed
log "the status reported it after $((SECONDS - began)) s, 16 s until the API server calls the node lost and the operator's tolerationSeconds of 30 among them"
eventually 120 "the cluster has three ready voters again" whole demo 3
log "full redundancy $((SECONDS - began)) s after the loss of a node, unhealthySeconds of 20 among them"
equal "what is left of $victim" Leaving "$(status demo "members[?(@.name==\"$victim\")].role")"
slots demo 3
witness_stop demo loss
pod_is_another() { [ "$(pod_uid "$victim-0")" != "$uid" ]; }
# It is unknown whether its processes ended: the pod and the PVC stay, and the status reports it.
never 20 "the pod of $victim is deleted for good while its node is only silent" pod_is_another
equal "the PVC of $victim" "$pvc" "$(kubectl -n "$ns" get pvc "$pvc" -o jsonpath='{.metadata.name}')"
tests/kubernetes/cluster.sh forget "$(number "$node")"
eventually 150 "with its node everything of $victim is gone" none "pod/$victim-0" "sts/$victim" "pvc/$pvc"
whole demo 3 || die "the cluster is not whole at the end: $(status demo summary)"
drop_cluster demo

# The machine has three nodes again, for later scenarios.
tests/kubernetes/cluster.sh node "$(number "$node")"
spare_node_goes
