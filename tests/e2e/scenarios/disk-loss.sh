# shellcheck shell=bash
# a member that loses its pod and its volume is removed first, then replaced under a new name
apply_cluster demo 3
ready demo 3
witness_start demo disk
victim=$(members demo | tail -1)
pvc=$(status demo "members[?(@.name==\"$victim\")].volumeClaimName")
kubectl -n "$ns" delete pvc "$pvc" --wait=false >/dev/null
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
log "the pod and the volume of $victim were deleted"
eventually 120 "$victim is no member any more" is_no_member demo "$victim"
operator_kill
ready demo 3
newcomer=$(members demo | tail -1)
[ "$newcomer" != "$victim" ] || die "the name $victim was used again"
history=$(history_of "$(leader demo)-0")
sed 's/^/          /' <<<"$history"
removed=$(grep -n "Remove $victim\$" <<<"$history" | cut -d: -f1)
added=$(grep -n "AddLearner $newcomer\$" <<<"$history" | cut -d: -f1)
[ "$removed" -lt "$added" ] || die "$newcomer was added before $victim was removed"
witness_stop demo disk
drop_cluster demo
