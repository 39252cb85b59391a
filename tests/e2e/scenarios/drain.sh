# shellcheck shell=bash
# soak
# own cluster
# disruption.policy: Gate: every member's node is drained by kubectl alone, one at a time and two at once, under load: members move with their volumes, or are replaced first where these stay; no request fails
here() { kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=member -o json | jq -r --arg node "$1" '.items[] | select(.spec.nodeName == $node) | .metadata.name'; }
drain() { timeout 200 kubectl drain "$1" --ignore-daemonsets --force --pod-selector=app.kubernetes.io/instance=demo --timeout=190s; }
empty() { prints_nothing here "$1"; }

# The load: one writer through the client Service, and one that only knows the slots, like kube-apiserver.
load_start() {
  eventually 60 "three slots" slots_are_mapped demo 3
  witness_start demo "$1"
  run_pod "witness-$1-slots" "$quorate_image" witness --endpoints="$(slot_endpoints demo)" --prefix="witness-$1-slots/" --allow-failed=0
  eventually 60 "witness $1-slots writes" witness_writes demo "$1-slots"
}
load_stop() { witness_stop demo "$1"; witness_stop demo "$1-slots"; }

# The smallest number of ready members, sampled all the time.
samples=${QUORATE_E2E_DIR:-/tmp/quorate-e2e}/drain-samples
watch_ready() {
  while :; do
    kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=member -o json |
      jq '[.items[] | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))] | length' >>"$samples" || true
    sleep 0.3
  done
}
watch_start() { : >"$samples"; watch_ready 2>/dev/null & watcher=$!; }
watch_stop() { # watch_stop LEAST
  kill "$watcher"; wait "$watcher" 2>/dev/null || true
  local least; least=$(sort -n "$samples" | sed -n 1p)
  [ "${least:-0}" -ge "$1" ] || die "$least members were ready at the least, $1 were wanted"
  log "$least members were ready at the least ($(wc -l <"$samples") looks)"
}

one_by_one() { # one_by_one WORD: drains the node of every present member
  local member node began killed=
  for member in $(members demo); do
    node=$(node_of "$member")
    began=$SECONDS
    drain "$node" >/tmp/drain-$$ 2>&1 || { cat /tmp/drain-$$; die "the drain of $node failed"; }
    log "$node was drained of $member in $((SECONDS - began)) s, $(grep -c 'disruption budget' /tmp/drain-$$ || true) evictions were refused"
    rm -f /tmp/drain-$$
    empty "$node" || die "$(here "$node") is still on $node"
    [ -n "$killed" ] || { operator_kill; killed=yes; }
    ready demo 3
    equal "$1" "$(kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo -o json | jq '[.items[] | select(.metadata.labels["quorate.dev/released"])] | length')" 0
    kubectl uncordon "$node" >/dev/null
  done
}

apply_cluster demo 3
policy demo Gate
ready demo 3
spare_node_comes
load_start control
control() { [ "$(etcdctl_pod demo get witness-control/writes/ --prefix --limit=300 --keys-only | grep -c .)" -ge 300 ]; }
eventually 120 "the control, without any drain, has written" control
load_stop control

first=$(members demo)
load_start drain
watch_start
one_by_one "released pods that are left"
watch_stop 2
equal "the members: they moved, and are the same" "$first" "$(members demo)"

# Two at once, with room for one: the other drain is held, and the status gives the reason, until a node is free
# again.
one=$(node_of "$(members demo | head -1)")
two=$(node_of "$(members demo | tail -1)")
watch_start
drain "$one" >/dev/null 2>&1 & drain_one=$!
drain "$two" >/dev/null 2>&1 & drain_two=$!
held() { [ "$(status demo step.reason)" = NoSpareNode ] && { empty "$one" || empty "$two"; }; }
eventually 150 "one of two drains is through, and the other is held" held
log "$(status demo summary)"
if empty "$one"; then free=$one; else free=$two; fi
kubectl uncordon "$free" >/dev/null
wait "$drain_one" || die "the drain of $one failed"
wait "$drain_two" || die "the drain of $two failed"
kubectl uncordon "$one" "$two" >/dev/null
ready demo 3
watch_stop 2
equal "the members: they moved, and are the same" "$first" "$(members demo)"
load_stop drain
slots demo 3
drop_cluster demo

# Volumes bound to their nodes: a successor is a voter before its member is removed.
apply_cluster demo 3 local
policy demo Gate
ready demo 3
first=$(members demo)
load_start local
one_by_one "released pods that are left"
nothing "members that were there before" still "$first" members demo
log "members now: $(members demo | tr '\n' ' ')"
history=$(history_of "$(leader demo)-0")
sed 's/^/          /' <<<"$history"
# Two promotions completed the cluster, and each removal follows a promotion.
promoted=0 removed=0
while read -r kind _; do
  case $kind in
    Promote) promoted=$((promoted + 1)) ;;
    Remove) removed=$((removed + 1)); [ $promoted -ge $((removed + 2)) ] || die "removal $removed came after $promoted promotions" ;;
  esac
done <<<"$history"
equal "removals" 3 "$removed"
load_stop local
slots demo 3
drop_cluster demo

spare_node_goes
