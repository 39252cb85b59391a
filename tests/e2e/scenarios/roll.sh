# shellcheck shell=bash
# a changed spec restarts every member, one at a time, the leader last: no write fails; changed requests restart none; a bad image costs one member and is set back
pods() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o jsonpath='{range .items[*]}{.metadata.name}={.metadata.uid}{"\n"}{end}' | sort; }
rolled() { # every pod was replaced, and all run the current spec
  is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ] && prints_nothing still "$before" pods
}
apply_cluster demo 3
ready demo 3
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"updateStrategy":{"minReadySeconds":3,"progressDeadlineSeconds":20}}}' >/dev/null
first=$(members demo)
last=$(leader demo)
before=$(pods)
[ "$(grep -c . <<<"$before")" = 3 ] || die "the pods of three members were wanted, got: $before"
export before
witness_start demo roll
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"podTemplate":{"metadata":{"annotations":{"example.org/round":"1"}}}}}' >/dev/null
one_is_new() { local old; old=$(still "$before" pods) && [ "$(count "$old")" -lt 3 ]; }
eventually 120 "the first pod is made anew" one_is_new
old=$(still "$before" pods)
grep -q "^$last-0=" <<<"$old" || die "the leader $last was not the last one"
operator_kill
eventually 240 "every member runs the current spec" rolled
equal "the members" "$first" "$(members demo)"
now=$(leader demo)
if [ "$now" = "$last" ]; then die "$last still leads: it did not hand over"; fi
witness_stop demo roll
slots demo 3

# Other requests: the kubelets give them to the containers that run.
before=$(pods)
witness_start demo resize
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"resources":{"requests":{"cpu":"130m","memory":"300Mi"}}}}' >/dev/null
has() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json | jq -r "[.items[].status.containerStatuses[] | select(.name == \"member\") | $1] | unique | map(tostring) | join(\" \")"; }
resized() { is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ] && [ "$(has .resources.requests.cpu) $(has .resources.requests.memory)" = "130m 300Mi" ]; }
eventually 60 "every container has the changed requests" resized
equal "the pods after the resize" "$before" "$(pods)"
equal "restarts of containers" 0 "$(has .restartCount)"
equal "who leads" "$now" "$(leader demo)"
witness_stop demo resize

# A bad image: one member does not come back, the others serve, and the status names it and the reason.
witness_start demo bad 5
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"image":"localhost/no-such-image:1"}}' >/dev/null
stalled() { [ "$(condition demo Stalled)" = True ] && status demo summary | grep -q 'UpdateFailed: demo-[0-9]*: it did not become ready'; }
eventually 120 "the update is called failed" stalled
log "$(status demo summary)"
serving=$(kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json | jq '[.items[] | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))] | length')
equal "members that serve" 2 "$serving"
kubectl -n "$ns" patch qec demo --type=merge -p "{\"spec\":{\"image\":\"$quorate_image\"}}" >/dev/null
ready demo 3 120
equal "the members" "$first" "$(members demo)"
witness_stop demo bad
drop_cluster demo
