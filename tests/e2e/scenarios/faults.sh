# shellcheck shell=bash
# soak
# own cluster
# every fault of a member heals by itself under load: crash loop, hung, read-only, damaged log, removed by hand, a second server on its disk
process_of() { pgrep -f -- "server --name=$1 " | head -1; }
volume_of() { # the folder of a member's volume on this machine
  local pvc volume
  pvc=$(status demo "members[?(@.name==\"$1\")].volumeClaimName")
  volume=$(kubectl -n "$ns" get pvc "$pvc" -o jsonpath='{.spec.volumeName}')
  kubectl get pv "$volume" -o json | jq -er '.spec.hostPath.path // .spec.local.path'
}
healed() { # healed WHAT SECONDS: waits until it is whole again, and prints how long that took
  eventually "$2" "after $1 the cluster is whole" whole demo 3
  slots demo 3
}
summary_has() { # summary_has WORDS: the status mentions the problem
  status demo 'summary' | grep -qE "$1" || status demo 'members[*].reason' | grep -qE "$1"
}

apply_cluster demo 3
ready demo 3
witness_start demo faults

# A crash loop that ends: Kubernetes restarts the container, and the member is the same.
victim=$(follower demo)
first=$(members demo)
for _ in 1 2 3; do
  kill -KILL "$(process_of "$victim")"
  runs() { [ -n "$(process_of "$victim")" ]; }
  eventually 90 "the container of $victim runs again" runs
done
healed "three crashes of $victim" 120
equal "the members after crashes" "$first" "$(members demo)"

# Alive but not serving: no exit, no answer. Its pod is replaced, and the member is the same.
victim=$(follower demo)
uid=$(pod_uid "$victim-0")
kill -STOP "$(process_of "$victim")"
hung() { summary_has "no contact"; }
eventually 60 "the status reports that $victim has no contact" hung
eventually 180 "$victim has a new pod" is_another_pod "$victim-0" "$uid"
healed "$victim hung" 180
equal "the members after a hung one" "$first" "$(members demo)"

# The log is damaged in acknowledged entries: the server refuses to start, and the member is replaced.
victim=$(follower demo)
folder=$(volume_of "$victim")
segment=$(find "$folder/data" -type f -size +8k -path '*log*' | sort | head -1)
[ -n "$segment" ] || die "no segment of the log in $folder: $(find "$folder" -type f)"
printf 'damaged damaged damaged' | dd of="$segment" bs=1 seek=4200 conv=notrunc status=none
kill -KILL "$(process_of "$victim")"
operator_kill
lost() { is_no_member demo "$victim"; }
eventually 120 "$victim, whose log is damaged, is no member any more" lost
healed "a damaged log" 180

# The volume becomes read-only: the server does not start, and stays down.
victim=$(follower demo)
folder=$(volume_of "$victim")
chown 0:0 "$folder/data" && chmod 0555 "$folder/data"
kill -KILL "$(process_of "$victim")"
eventually 240 "$victim, whose volume is read-only, is no member any more" lost
healed "a read-only volume" 180

# A member is removed by hand: it is replaced, and its objects are deleted.
victim=$(follower demo)
id=$(status demo "members[?(@.name==\"$victim\")].id")
etcdctl_pod demo member remove "$id" >/dev/null || die "cannot remove $victim"
eventually 60 "$victim, removed by hand, is no member any more" lost
healed "a removal by hand" 180
eventually 60 "nothing of $victim is left" none sts "$victim"

# A second server on a member's volume, under another pod's name: refused, and no other member is affected.
victim=$(follower demo)
first=$(members demo)
kubectl -n "$ns" get pod "$victim-0" -o json | jq '{apiVersion, kind, metadata: {name: "double"}, spec: (.spec | del(.nodeName, .hostname, .subdomain, .priority, .tolerations, .topologySpreadConstraints, .affinity) | .restartPolicy = "Never" | .nodeSelector = {} | .containers[0] |= del(.livenessProbe, .readinessProbe, .startupProbe))}' |
  jq --arg node "$(kubectl -n "$ns" get pod "$victim-0" -o jsonpath='{.spec.nodeName}')" '.spec.nodeName = $node' | kubectl -n "$ns" apply -f - >/dev/null
ended() { [ "$(kubectl -n "$ns" get pod double -o jsonpath='{.status.phase}')" = Failed ]; }
eventually 60 "a second server on the volume of $victim ends" ended
log "$(kubectl -n "$ns" get pod double -o jsonpath='{.status.containerStatuses[0].state.terminated.message}')"
kubectl -n "$ns" delete pod double --wait=false >/dev/null
whole demo 3 || die "a second server on the volume of $victim disturbed the cluster: $(status demo summary)"
equal "the members after a second server" "$first" "$(members demo)"

history=$(history_of "$(leader demo)-0")
sed 's/^/          /' <<<"$history"
witness_stop demo faults
drop_cluster demo
