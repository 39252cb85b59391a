# shellcheck shell=bash
# soak
# by chart
# own cluster
# an OpenShift comes: operator and members run as a user that no image knows, on volumes of root's; a cluster of before goes on with its data, one is made, a member is replaced, no write fails
#
# User 65532 was written into every member's pod, so that OpenShift refused each of them, and the chart's operator.
# Since then the platform may choose (memberUser), which was untested for servers: the user is in no /etc/passwd,
# its primary group is root's, and only the group for files allows it to write to a volume.
# tests/kubernetes/manifests/openshift.yaml makes Kubernetes' own admission treat pods in this way.
user=1000680000
manifest=tests/kubernetes/manifests/openshift.yaml
own=$ns

make_cluster() { # make_cluster NAME: peers with TLS, so that servers have keys to read; volumes bound to their node
  kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $1}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi, storageClassName: local}
  tls: {plaintext: Accepted}
  updateStrategy: {minReadySeconds: 3}
  healing: {unhealthySeconds: 20, learnerDeadlineSeconds: 60}
END
}
folder_of() { # folder_of CLUSTER MEMBER: the folder of its volume on this machine
  local pvc; pvc=$(status "$1" "members[?(@.name==\"$2\")].volumeClaimName")
  kubectl get pv "$(kubectl -n "$ns" get pvc "$pvc" -o jsonpath='{.spec.volumeName}')" -o jsonpath='{.spec.local.path}'
}
runs_as() { # runs_as NAMESPACE POD: user, group and supplementary groups of its processes, from the kernel
  local uid p
  uid=$(kubectl -n "$1" get pod "$2" -o jsonpath='{.metadata.uid}')
  find /sys/fs/cgroup/pids/qrt-node* -path "*pod$uid*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | while read -r p; do
    [ "$(cat "/proc/$p/comm")" = pause ] || awk '/^Uid:/ {user = $3} /^Gid:/ {group = $3} /^Groups:/ {for (i = 2; i <= NF; i++) further = further (i > 2 ? "," : "") $i} END {print user ":" group ":" further}' "/proc/$p/status"
  done | sort -u
}
pods() { kubectl -n "$ns" get pods -l "quorate.dev/cluster=$1,app.kubernetes.io/component=member" -o jsonpath='{.items[*].metadata.name}'; }
all_run_as() { # all_run_as CLUSTER IDS
  local pod
  for pod in $(pods "$1"); do equal "user, group, further groups of $pod" "$2" "$(runs_as "$ns" "$pod")"; done
}

# --- before: the usual user
make_cluster moved
ready moved 3 240
all_run_as moved 65532:65532:65532
first=$(members moved)
witness_start moved moved

# --- the platform changes
gone_again() {
  kubectl label namespace quorate-system "$own" quorate.dev/e2e-platform- >/dev/null 2>&1
  kubectl delete --ignore-not-found --wait=false -f "$manifest" >/dev/null 2>&1
  helm rollback quorate --namespace quorate-system >/dev/null 2>&1
}
trap gone_again EXIT
kubectl apply -f "$manifest" >/dev/null
kubectl wait --for=condition=Established crd/securitycontextconstraints.security.openshift.io --timeout=30s >/dev/null
kubectl label namespace quorate-system "$own" quorate.dev/e2e-platform=openshift >/dev/null
would_run_as() { # would_run_as SECURITY-CONTEXT: the user that a pod gets
  kubectl -n "$ns" create --dry-run=server -o jsonpath='{.spec.securityContext.runAsUser}' -f - <<END
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "anybody"}, "spec": {"securityContext": $1,
  "containers": [{"name": "main", "image": "$quorate_image", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}
END
}
chooses() { [ "$(would_run_as '{"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}')" = $user ]; }
eventually 60 "the platform chooses the user of pods" chooses
refuses() {
  local said
  if said=$(would_run_as '{"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}' 2>&1); then return 1; fi
  grep -q 'security context constraint' <<<"$said"
}
eventually 60 "it refuses pods that name another" refuses
pod_user=null

# The chart detects it, and the operator does when it starts.
helm upgrade quorate charts/quorate --namespace quorate-system --reuse-values >/dev/null
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
alone() { [ "$(kubectl -n quorate-system get pods -l app.kubernetes.io/component=operator -o name | grep -c .)" = 1 ]; }
eventually 60 "the operator of before is gone" alone
equal "user, group, further groups of the operator" "$user:0:0,$user" "$(runs_as quorate-system "$(operator_pod)")"

# A deleted pod of before cannot be created again as it was; with the next change every member gets another user.
victim=$(follower moved)
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
is_refused() { kubectl -n "$ns" get events -o json | jq -e '[.items[] | select(.reason == "FailedCreate" and (.message | test("security context constraint")))] | length > 0'; }
eventually 60 "the platform refuses $victim as it was" is_refused
kubectl -n "$ns" patch qec moved --type=merge -p '{"spec":{"podTemplate":{"metadata":{"annotations":{"example.org/platform":"another"}}}}}' >/dev/null
rolled() { is_ready moved 3 && [ "$(status moved updatedReplicas)" = 3 ]; }
eventually 240 "every member of before has come back" rolled
equal "the members" "$first" "$(members moved)"
all_run_as moved "$user:0:0,$user"
witness_stop moved moved
equal "keys of before, read by the new user" 1 "$(etcdctl_pod moved get witness-moved/writes/ --prefix --limit=1 --keys-only | grep -c witness)"

# --- a cluster that is created here, and a member that loses its disk
drop_cluster moved
make_cluster demo
ready demo 3 240
all_run_as demo "$user:0:0,$user"
witness_start demo demo
victim=$(follower demo)
pvc=$(status demo "members[?(@.name==\"$victim\")].volumeClaimName")
kubectl -n "$ns" delete pvc "$pvc" --wait=false >/dev/null
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
eventually 120 "$victim, whose volume is gone, is no member any more" is_no_member demo "$victim"
operator_kill
ready demo 3
all_run_as demo "$user:0:0,$user"
for member in $(members demo); do
  folder=$(folder_of demo "$member")
  equal "the volume of $member" "0:$user" "$(stat -c %u:%g "$folder")"
  nothing "files of $member that are another user's" find "$folder" -mindepth 1 ! -uid $user
  [ -n "$(find "$folder" -mindepth 1 -type f -uid $user)" ] || die "$member has written nothing"
done
witness_stop demo demo
drop_cluster demo
kubectl label namespace quorate-system "$own" quorate.dev/e2e-platform- >/dev/null
kubectl delete --wait=true -f "$manifest" >/dev/null
helm rollback quorate --namespace quorate-system >/dev/null
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
trap - EXIT
