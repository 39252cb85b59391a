# shellcheck shell=bash
# alone
# the default, disruption.policy: Auto: at rest the PDB lets one member go, so that an autoscaler chooses its node; it is closed once the node is marked, opens again, and one eviction goes through where nothing is marked, also without an operator
labels=app.kubernetes.io/instance=demo,app.kubernetes.io/component=member
pdb() { kubectl -n "$ns" get pdb demo -o json; }
keeps() { pdb | jq -r '"\(.spec.minAvailable // "")/\(.spec.maxUnavailable // "")"'; }
is_open() { [ "$(pdb | jq -r 'if .status.observedGeneration == .metadata.generation then "\(.spec.minAvailable) \(.status.disruptionsAllowed)" else "" end')" = "2 1" ]; }
is_closed() { [ "$(keeps)" = /0 ]; }
reason() { kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="DisruptionAllowed")].reason}'; }
has_reason() { [ "$(reason)" = "$1" ]; }
evict() { kubectl create --raw "/api/v1/namespaces/$ns/pods/$1-0/eviction" -f - 2>&1 <<EOT
{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$1-0", "namespace": "$ns"}}
EOT
}

apply_cluster demo 3
ready demo 3
eventually 60 "the PDB lets one member go" is_open
eventually 30 "the condition says so" has_reason OneAtATime
first=$(members demo)

# --- an autoscaler marks a node: the PDB is closed, and refuses from the write on
victim=$(members demo | head -1)
node=$(node_of "$victim")
# as Karpenter, on a node that it is not to delete; the operator cannot move the member while no other node has room
trap 'kubectl taint node "$node" karpenter.sh/disrupted- >/dev/null 2>&1 || true' EXIT
kubectl taint node "$node" karpenter.sh/disrupted=:NoSchedule >/dev/null
eventually 20 "the PDB is closed" is_closed
eventually 20 "the condition says why" has_reason NodeDrained
if message=$(evict "$(members demo | tail -1)"); then die "an eviction was allowed while a node is drained: $message"; fi
grep -qi 'disruption budget' <<<"$message" || die "the eviction failed for another reason: $message"
log "held: $message"
kubectl taint node "$node" karpenter.sh/disrupted- >/dev/null
trap - EXIT
ready demo 3
eventually 90 "the PDB lets one member go again" is_open

# --- the mark and the eviction in the same moment, and no operator: one member goes, and no second one
operator_kill
victim=$(leader demo)
uid=$(pod_uid "$victim-0")
message=$(evict "$victim") || die "the eviction of $victim was refused: $message"
other=$(members demo | grep -vx "$victim" | head -1)
if message=$(evict "$other"); then die "a second eviction was allowed: $message"; fi
grep -qi 'disruption budget' <<<"$message" || die "the eviction failed for another reason: $message"
eventually 60 "$victim has another pod" is_another_pod "$victim-0" "$uid"
ready demo 3
eventually 90 "the PDB lets one member go again" is_open
equal "the members: one was restarted, and they are the same" "$first" "$(members demo)"

# --- what closes it, and what does not restart anybody
uids=$(kubectl -n "$ns" get pods -l $labels -o jsonpath='{.items[*].metadata.uid}')
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec": {"paused": true}}' >/dev/null
eventually 30 "the PDB of a paused cluster is closed" is_closed
eventually 30 "the condition says why" has_reason Paused
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec": {"paused": false}}' >/dev/null
eventually 60 "the PDB is open" is_open
policy demo Gate
eventually 30 "the PDB is a gate" is_closed
policy demo Auto
eventually 60 "the PDB is open" is_open
equal "the pods" "$uids" "$(kubectl -n "$ns" get pods -l $labels -o jsonpath='{.items[*].metadata.uid}')"
drop_cluster demo
