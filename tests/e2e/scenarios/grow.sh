# shellcheck shell=bash
# soak
# an applied cluster grows to three voters, each but the seed joined as a learner; clients use it
apply_cluster demo 3
eventually 60 "the seed is a member" has_members demo 1
operator_kill
ready demo 3

# Not from the operator's status: the members' replicated history of configuration changes.
seed=$(members demo | head -1)
log "membership history of $seed:"
history_of "$seed-0" | sed 's/^/          /'
history=$(history_of "$seed-0")
for name in $(members demo); do
  [ "$name" = "$seed" ] && continue
  added=$(grep -n "AddLearner $name\$" <<<"$history" | cut -d: -f1)
  promoted=$(grep -n "Promote $name\$" <<<"$history" | cut -d: -f1)
  [ -n "$added" ] && [ -n "$promoted" ] && [ "$added" -lt "$promoted" ] || die "$name did not join as a learner and become a voter after that"
done
if grep -q AddVoter <<<"$history"; then die "a member joined as a voter at once"; fi

equal "put through the client Service" OK "$(etcdctl_pod demo put greeting hello)"
equal "get from another pod" hello "$(etcdctl_pod demo get greeting --print-value-only)"
equal "members that etcdctl sees" 3 "$(etcdctl_pod demo member list | grep -c started)"
kubectl -n "$ns" get qec demo
drop_cluster demo
