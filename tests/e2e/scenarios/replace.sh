# shellcheck shell=bash
# every member is replaced, one at a time, by spec.replaceMembers: no write fails; at rest nothing is written
version() { kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.resourceVersion}'; }
replaced() { # none of the first members is left, and there are three ready ones
  is_ready demo 3 && [ "$(comm -12 <(members demo) <(printf '%s\n' "$first") | wc -l)" = 0 ]
}
apply_cluster demo 3
ready demo 3
first=$(members demo)
witness_start demo replace
names=$(jq -Rnc '[inputs]' <<<"$first")
kubectl -n "$ns" patch qec demo --type=merge -p "{\"spec\":{\"replaceMembers\":$names}}" >/dev/null
export first
begun() { [ "$(members demo | grep -c .)" -gt 3 ]; }
eventually 90 "the first successor has joined" begun
operator_kill
eventually 240 "every member is replaced" replaced
say "members now: $(members demo | tr '\n' ' ')"
history=$(history_of "$(leader demo)-0")
for name in $(members demo); do
  equal "how $name came" "AddLearner Promote" "$(awk -v name="$name" '$2 == name && /AddLearner|Promote/ {print $1}' <<<"$history" | paste -sd' ')"
done
witness_stop demo replace

# The names of members that are gone mean nothing, and at rest the operator writes nothing.
settled() { [ "$(status demo step)" = "" ]; }
eventually 60 "the cluster is at rest" settled
before=$(version)
written() { [ "$(version)" != "$before" ]; }
never 25 "a write of the resource at rest" written
drop_cluster demo
