# shellcheck shell=bash
# soak
# own cluster
# evictions are counted (disruption.policy: Budget): every member's node is drained by kubectl alone, two at once, members are evicted without a cordon, at three and at five, under load; a quorum is ready all the time, no request fails
labels=app.kubernetes.io/instance=demo,app.kubernetes.io/component=member
here() { kubectl -n "$ns" get pods -l $labels -o json | jq -r --arg node "$1" '.items[] | select(.spec.nodeName == $node) | .metadata.name'; }
drain() { timeout 200 kubectl drain "$1" --ignore-daemonsets --force --pod-selector=app.kubernetes.io/instance=demo --timeout=190s; }
evict() { kubectl create --raw "/api/v1/namespaces/$ns/pods/$1-0/eviction" -f - 2>&1 <<EOT
{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$1-0", "namespace": "$ns"}}
EOT
}
keeps() { kubectl -n "$ns" get pdb demo -o jsonpath='{.spec.minAvailable}/{.spec.maxUnavailable}'; }
keeps_only() { [ "$(keeps)" = "$1/" ]; }
allows() { [ "$(kubectl -n "$ns" get pdb demo -o json | jq 'if .status.observedGeneration == .metadata.generation then .status.disruptionsAllowed else -1 end')" = "$1" ]; }
pdbs() { kubectl -n "$ns" get pdb -o name | wc -l; }

# The PDB's settings and the number of ready members, sampled all the time.
work=${QUORATE_E2E_DIR:-/tmp/quorate-e2e}
mkdir -p "$work"
watch_all() {
  local kept
  while :; do
    kept=$(keeps) && echo "$kept" >>"$work/pdb-kept" || true
    kubectl -n "$ns" get pods -l $labels -o json |
      jq '[.items[] | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))] | length' >>"$work/pdb-ready" || true
    sleep 0.3
  done
}
watch_start() { : >"$work/pdb-kept"; : >"$work/pdb-ready"; watch_all 2>/dev/null & watcher=$!; }
watch_stop() { # watch_stop LEAST SETTINGS...: at least so many were ready, and the PDB had exactly these settings, in this order
  local ready=$1 least; shift
  kill "$watcher"; wait "$watcher" 2>/dev/null || true
  echo "$(keeps)" >>"$work/pdb-kept" # the last sample
  least=$(sort -n "$work/pdb-ready" | sed -n 1p)
  [ "${least:-0}" -ge "$ready" ] || die "$least members were ready at the least, $ready were wanted"
  equal "what the PDB kept available" "$*" "$(grep . "$work/pdb-kept" | uniq | tr -d / | tr '\n' ' ' | sed 's/ $//')"
  log "$least members were ready at the least ($(wc -l <"$work/pdb-ready") looks), and the PDB kept $* available"
}

apply_cluster demo 3
policy demo Gate
ready demo 3
equal "the PDB, as a gate" /0 "$(keeps)"
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec": {"disruption": {"policy": "Budget"}, "healing": {"unhealthySeconds": 120}}}' >/dev/null
eventually 30 "the PDB keeps 2 available" keeps_only 2
ready demo 3
spare_node_comes
first=$(members demo)
eventually 60 "three slots" slots_are_mapped demo 3
witness_start demo pdb
run_pod witness-pdb-slots "$quorate_image" witness --endpoints="$(slot_endpoints demo)" --prefix=witness-pdb-slots/ --allow-failed=0
eventually 60 "witness pdb-slots writes" witness_writes demo pdb-slots

# --- every node, with kubectl drain alone
watch_start
for member in $first; do
  node=$(node_of "$member")
  began=$SECONDS
  drain "$node" >"$work/drain" 2>&1 || { cat "$work/drain"; die "the drain of $node failed"; }
  log "$node was drained of $member in $((SECONDS - began)) s, $(grep -c 'disruption budget' "$work/drain" || true) evictions were refused"
  nothing "members that are still on $node" here "$node"
  ready demo 3
  eventually 30 "the PDB lets one go again" allows 1
  kubectl uncordon "$node" >/dev/null
done

# --- a node that is cordoned but not drained: the operator evicts
member=$(leader demo)
node=$(node_of "$member")
kubectl cordon "$node" >/dev/null
is_empty() { prints_nothing here "$1"; }
eventually 120 "the operator evicts who leads from $node" is_empty "$node"
ready demo 3
kubectl uncordon "$node" >/dev/null
[ "$(kubectl -n "$ns" get events -o json | jq '[.items[] | select(.reason == "PodEvicted")] | length')" -ge 1 ] || die "no event reports the eviction"

# --- two at once: one drain waits for the other's member
eventually 30 "the PDB lets one go again" allows 1
one=$(node_of "$(members demo | head -1)")
two=$(node_of "$(members demo | tail -1)")
if [ "$one" = "$two" ]; then two=$(node_of "$(members demo | sed -n 2p)"); fi
drain "$one" >/dev/null 2>&1 & drain_one=$!
drain "$two" >/dev/null 2>&1 & drain_two=$!
wait $drain_one || die "the drain of $one failed"
wait $drain_two || die "the drain of $two failed"
for node in "$one" "$two"; do nothing "members that are still on $node" here "$node"; done
kubectl uncordon "$one" "$two" >/dev/null
ready demo 3

# --- without a cordon, and without an operator: the leader's pod is evicted, and no second one
operator_kill
eventually 30 "the PDB lets one go again" allows 1
victim=$(leader demo)
uid=$(pod_uid "$victim-0")
message=$(evict "$victim") || die "the eviction of $victim was refused: $message"
other=$(members demo | grep -vx "$victim" | head -1)
if message=$(evict "$other"); then die "a second eviction was allowed: $message"; fi
grep -qi 'disruption budget' <<<"$message" || die "the eviction failed for another reason: $message"
log "held: $message"
eventually 60 "$victim has another pod" is_another_pod "$victim-0" "$uid"
ready demo 3
watch_stop 2 2
equal "the members: they moved or were restarted, and are the same" "$first" "$(members demo)"

# --- five: three stay available before a fourth votes, and two may be evicted at once
watch_start
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec": {"replicas": 5}}' >/dev/null
ready demo 5
eventually 30 "the PDB lets two go" allows 2
for member in $(members demo | tail -2); do
  message=$(evict "$member") || die "the eviction of $member was refused: $message"
done
if message=$(evict "$(members demo | head -1)"); then die "a third eviction was allowed: $message"; fi
ready demo 5
watch_stop 2 2 3
watch_start
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec": {"replicas": 3}}' >/dev/null
ready demo 3
eventually 60 "the PDB keeps 2 available" keeps_only 2
watch_stop 2 3 2
equal "PDBs" 1 "$(pdbs)"

# --- and back: no eviction is allowed any more
policy demo Gate
is_gate() { [ "$(keeps)" = /0 ]; }
eventually 30 "the PDB is a gate again" is_gate
if message=$(evict "$(members demo | head -1)"); then die "the gate let a pod go: $message"; fi
ready demo 3
witness_stop demo pdb
witness_stop demo pdb-slots
slots demo 3
drop_cluster demo
spare_node_goes
