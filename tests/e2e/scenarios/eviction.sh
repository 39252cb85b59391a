# shellcheck shell=bash
# alone
# an eviction is held by the PDB (disruption.policy: Gate): a drain waits, and no member is lost to it
apply_cluster demo 3
policy demo Gate
ready demo 3
victim=$(members demo | head -1)
uid=$(pod_uid "$victim-0")
evict() { kubectl create --raw "/api/v1/namespaces/$ns/pods/$victim-0/eviction" -f - 2>&1 <<EOF
{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$victim-0", "namespace": "$ns"}}
EOF
}
operator_kill # the PDB works without an operator
if message=$(evict); then die "the eviction of $victim-0 was allowed: $message"; fi
grep -qi 'disruption budget' <<<"$message" || die "the eviction failed for another reason: $message"
log "held: $message"
node=$(kubectl -n "$ns" get pod "$victim-0" -o jsonpath='{.spec.nodeName}')
# a cordon that the operator ignores: no member is moved, so that the drain is held for good
kubectl annotate node "$node" quorate.dev/ignore-cordon=true >/dev/null
if timeout 15 kubectl drain "$node" --ignore-daemonsets --force --pod-selector=app.kubernetes.io/instance=demo >/dev/null 2>&1; then
  kubectl uncordon "$node" >/dev/null; kubectl annotate node "$node" quorate.dev/ignore-cordon- >/dev/null; die "the drain of $node went through"
fi
kubectl uncordon "$node" >/dev/null
kubectl annotate node "$node" quorate.dev/ignore-cordon- >/dev/null
equal "the pod after the drain gave up" "$uid" "$(pod_uid "$victim-0")"
ready demo 3
drop_cluster demo
