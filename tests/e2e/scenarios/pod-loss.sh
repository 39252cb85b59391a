# shellcheck shell=bash
# soak
# a deleted pod comes back as the same member with its data, also while the operator is away
apply_cluster demo 3
ready demo 3
before=$(members demo)
etcdctl_pod demo put kept value >/dev/null
victim=$(leader demo)
uid=$(pod_uid "$victim-0")
identity=$(status demo "members[?(@.name==\"$victim\")].id")

kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
operator_kill
eventually 90 "$victim has a new pod" is_another_pod "$victim-0" "$uid"
ready demo 3
equal "names of the members" "$before" "$(members demo)"
equal "identity of $victim" "$identity" "$(status demo "members[?(@.name==\"$victim\")].id")"
equal "the value" value "$(etcdctl_pod demo get kept --print-value-only)"
drop_cluster demo
