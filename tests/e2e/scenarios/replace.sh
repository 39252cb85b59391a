# shellcheck shell=bash
# soak
# alone
# every member is replaced, one at a time, by spec.replaceMembers: no write fails, the slots outlive them; at rest nothing is written
version() { kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.resourceVersion}'; }
replaced() { # none of the first members is left, and three members are ready
  is_ready demo 3 && prints_nothing still "$first" members demo
}
apply_cluster demo 3
ready demo 3
first=$(members demo)
slots demo 3
# A client that lists the slots, like kube-apiserver, and never learns another name.
slot_uids() { kubectl -n "$ns" get services demo-client-0 demo-client-1 demo-client-2 -o jsonpath='{.items[*].metadata.uid} {.items[*].spec.clusterIP}'; }
kept=$(slot_uids)
witness_start demo replace
names=$(jq -Rnc '[inputs]' <<<"$first")
kubectl -n "$ns" patch qec demo --type=merge -p "{\"spec\":{\"replaceMembers\":$names}}" >/dev/null
export first
begun() { [ "$(members demo | grep -c .)" -gt 3 ]; }
eventually 90 "the first successor has joined" begun
operator_kill
eventually 240 "every member is replaced" replaced
log "members now: $(members demo | tr '\n' ' ')"
history=$(history_of "$(leader demo)-0")
for name in $(members demo); do
  equal "how $name came" "AddLearner Promote" "$(awk -v name="$name" '$2 == name && /AddLearner|Promote/ {print $1}' <<<"$history" | paste -sd' ')"
done
witness_stop demo replace

slots demo 3
equal "the slots' Services and addresses" "$kept" "$(slot_uids)"
mapped=$(slot_members demo)
for name in $first; do
  if grep -q " $name\$" <<<"$mapped"; then die "a slot still leads to $name"; fi
done

# The names of removed members have no effect, and at rest the operator writes nothing.
eventually 60 "the cluster is at rest" prints_nothing status demo step
before=$(version)
services_version() { kubectl -n "$ns" get services -o jsonpath='{.items[*].metadata.resourceVersion}'; }
services=$(services_version)
written() { [ "$(version)" != "$before" ]; }
never 25 "a write of the resource at rest" written
equal "the Services' versions at rest" "$services" "$(services_version)"
drop_cluster demo
