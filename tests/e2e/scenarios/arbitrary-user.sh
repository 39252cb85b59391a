# shellcheck shell=bash
# soak
# by chart
# own cluster
# an OpenShift comes, with its constraint restricted-v2: operator, members and Jobs run as a user that no image knows, on volumes of root's; a cluster of before goes on with its data; one is made, grown, rolled, backed up, put to sleep and woken, a member is replaced, no write fails; then a mesh adds containers to members' pods, and one of them fails
#
# User 65532 was written into every member's pod, so that OpenShift refused each of them, and the chart's operator.
# Since then the platform may choose (memberUser), which was untested for servers: the user is in no /etc/passwd,
# its primary group is root's, and only the group for files allows it to write to a volume.
# tests/kubernetes/manifests/openshift.yaml makes Kubernetes' own admission treat pods in this way.
user=1000680000 operator_user=1000690000
manifest=tests/kubernetes/manifests/openshift.yaml
mesh=tests/kubernetes/manifests/sidecar.yaml
own=$ns

make_cluster() { # make_cluster NAME [REPLICAS]: peers with TLS, so that servers have keys to read; volumes bound to their node
  kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $1}
spec:
  replicas: ${2:-3}
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
  kubectl label namespace quorate-system "$own" quorate.dev/e2e-platform- quorate.dev/e2e-mesh- >/dev/null 2>&1
  kubectl delete --ignore-not-found --wait=false -f "$manifest" -f "$mesh" >/dev/null 2>&1
  kubectl delete --ignore-not-found --wait=false namespace "$own-refused" >/dev/null 2>&1
  helm rollback quorate --namespace quorate-system >/dev/null 2>&1
}
trap gone_again EXIT
kubectl apply -f "$manifest" >/dev/null
kubectl wait --for=condition=Established crd/securitycontextconstraints.security.openshift.io --timeout=30s >/dev/null
project() { # project NAMESPACE FIRST: what OpenShift gives a namespace: its users, its group for files, its SELinux level
  kubectl annotate --overwrite namespace "$1" "openshift.io/sa.scc.uid-range=$2/10000" \
    "openshift.io/sa.scc.supplemental-groups=$2/10000" openshift.io/sa.scc.mcs=s0:c26,c15 >/dev/null
  kubectl label --overwrite namespace "$1" quorate.dev/e2e-platform=openshift >/dev/null
}
kubectl create namespace "$own-refused" >/dev/null
project quorate-system $operator_user
project "$own" $user
project "$own-refused" $user
would_run_as() { # would_run_as SECURITY-CONTEXT: the user that a pod gets
  kubectl -n "$ns" create --dry-run=server -o jsonpath='{.spec.containers[0].securityContext.runAsUser}' -f - <<END
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

# Each of its rules refuses a pod that breaks it. Where the restricted security standard is not enforced: that
# would refuse some of these first.
kept='{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "anybody"}, "spec": {"securityContext": {}, "containers": [{"name": "main", "image": "any",
  "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}'
asked() { jq "$1" <<<"$kept" | kubectl -n "$own-refused" create --dry-run=server -o json -f - 2>&1; } # asked CHANGE: what is answered to a pod that is changed so
ruled() { if asked '.spec.hostNetwork = true'; then return 1; fi; asked .; }
eventually 60 "the constraint is that of the namespace for refusals, too" ruled
equal "what a pod that names nothing gets" "[$user,$user,\"s0:c26,c15\",\"RuntimeDefault\"]" \
  "$(asked . | jq -c '[.spec.containers[0].securityContext.runAsUser, .spec.securityContext.fsGroup, .spec.securityContext.seLinuxOptions.level, .spec.securityContext.seccompProfile.type]')"
broken() { # broken CHANGE WORDS: a pod that is changed so is refused, with these words of the first rule that it breaks
  local said
  if said=$(asked "$1"); then die "a pod is admitted with $1"; fi
  contains "$said" "unable to validate against any security context constraint: $2"
}
equal "a user of the namespace's" $((user + 9999)) "$(asked ".spec.securityContext.runAsUser = $((user + 9999))" | jq '.spec.containers[0].securityContext.runAsUser')"
broken '.spec.securityContext.runAsUser = 65532' 'runAsUser must be in the ranges: [1000680000, 1000689999]'
broken ".spec.containers[0].securityContext.runAsUser = $((user + 10000))" 'runAsUser must be in the ranges'
broken '.spec.initContainers = [.spec.containers[0] | .name = "first" | .securityContext.runAsUser = 1]' 'runAsUser must be in the ranges'
broken ".spec.securityContext.fsGroup = $((user + 1))" 'fsGroup is not an allowed group'
broken '.spec.securityContext.seLinuxOptions.level = "s0:c1,c2"' "seLinuxOptions are not the namespace's"
broken '.spec.containers[0].securityContext.seLinuxOptions.type = "spc_t"' "seLinuxOptions are not the namespace's"
broken '.spec.securityContext.seccompProfile.type = "Unconfined"' 'seccomp may be runtime/default only'
# Kubernetes itself refuses a privileged container that rules out escalation: this one breaks a later rule too.
broken '.spec.containers[0].securityContext |= (.privileged = true | del(.allowPrivilegeEscalation))' 'privileged containers are not allowed'
broken '.spec.containers[0].securityContext.allowPrivilegeEscalation = true' 'allowPrivilegeEscalation is not allowed'
broken 'del(.spec.containers[0].securityContext.capabilities)' 'ALL capabilities must be dropped'
broken '.spec.containers[0].securityContext.capabilities.add = ["SYS_TIME"]' 'capabilities may not be added'
broken '.spec.hostNetwork = true' 'host network is not allowed'
broken '.spec.hostPID = true' 'host PID is not allowed'
broken '.spec.hostIPC = true' 'host IPC is not allowed'
broken '.spec.containers[0].ports = [{"containerPort": 80, "hostPort": 80}]' 'host ports are not allowed'
broken '.spec.volumes = [{"name": "root", "hostPath": {"path": "/"}}]' 'a type of volume is not allowed'
kubectl delete --wait=false namespace "$own-refused" >/dev/null
log "each rule of restricted-v2 refuses a pod that breaks it"

# The chart detects it, and the operator does when it starts.
helm upgrade quorate charts/quorate --namespace quorate-system --reuse-values >/dev/null
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
alone() { [ "$(kubectl -n quorate-system get pods -l app.kubernetes.io/component=operator -o name | grep -c .)" = 1 ]; }
eventually 60 "the operator of before is gone" alone
equal "user, group, further groups of the operator" "$operator_user:0:0,$operator_user" "$(runs_as quorate-system "$(operator_pod)")"

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

# --- a cluster that is created here: grown, rolled, backed up, put to sleep and woken
drop_cluster moved
make_cluster demo 1
ready demo 1 240
kubectl -n "$ns" scale qec demo --replicas=3 >/dev/null
ready demo 3 240
all_run_as demo "$user:0:0,$user"
witness_start demo grown
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"podTemplate":{"metadata":{"annotations":{"example.org/platform":"once"}}}}}' >/dev/null
rolled_of() { is_ready "$1" 3 && [ "$(status "$1" updatedReplicas)" = 3 ]; }
eventually 240 "every member has the changed spec" rolled_of demo
witness_stop demo grown
backup_volume
contains "$(quorate_plugin backup demo -n "$ns" --store=volume --as=kept --verify --wait --timeout=240s)" 'etcdbackup.quorate.dev/kept verified'
first=$(members demo)
kubectl -n "$ns" scale qec demo --replicas=0 >/dev/null
asleep() { none pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member && [ "$(kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Ready")].reason}')" = Hibernated ]; }
eventually 120 "demo sleeps" asleep
kubectl -n "$ns" scale qec demo --replicas=3 >/dev/null
ready demo 3 240
equal "the members after waking" "$first" "$(members demo)"
all_run_as demo "$user:0:0,$user"

# --- a member that loses its disk
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

# --- a mesh comes: its webhook adds containers to the pods of members, also under the constraint
sed "s|SERVER-IMAGE|$quorate_image|" "$mesh" | kubectl apply -f - >/dev/null
kubectl label namespace "$own" quorate.dev/e2e-mesh=works >/dev/null
names_of() { kubectl -n "$ns" get pod "$1" -o json | jq -r '[.spec.initContainers[]?.name, .spec.containers[].name] | sort | join(" ")'; } # names_of POD: its containers
like_a_member=$(jq '.metadata.labels = {"quorate.dev/member": "none"} | .spec.securityContext.runAsNonRoot = true' <<<"$kept")
meshed() { kubectl -n "$ns" create --dry-run=server -o json -f - <<<"$like_a_member" | jq -e --arg words "$1" '.spec.initContainers[0].args == [$words]'; } # meshed WORDS: what its init container is told
eventually 60 "the mesh adds its containers" meshed --version
none_restarts() { [ "$(for member in $(members demo); do pod_uid "$member-0"; done)" != "$uids" ]; }
uids=$(for member in $(members demo); do pod_uid "$member-0"; done)
never 15 "a member is restarted because of the mesh" none_restarts
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"podTemplate":{"metadata":{"annotations":{"example.org/platform":"mesh"}}}}}' >/dev/null
eventually 240 "every member has come back with the mesh" rolled_of demo
for pod in $(pods demo); do
  equal "containers of $pod" "a-mesh-proxy member mesh-init mesh-native" "$(names_of "$pod")"
  equal "the mesh's label on $pod" default "$(kubectl -n "$ns" get pod "$pod" -o jsonpath='{.metadata.labels.mesh\.example/rev}')"
done
log_lines=$(quorate_plugin logs demo -n "$ns" --tail=3)
equal "containers whose logs are shown" member "$(grep -oE '^\[pod/[^]]*' <<<"$log_lines" | cut -d/ -f3 | sort -u)"
uids=$(for member in $(members demo); do pod_uid "$member-0"; done)
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"resources":{"requests":{"cpu":"110m"}}}}' >/dev/null
requests() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json | jq -r '[.items[].spec.containers[] | select(.name == "member") | .resources.requests.cpu] | unique | join(" ")'; }
resized() { [ "$(requests)" = 110m ] && rolled_of demo; }
eventually 120 "every server has the requests" resized
equal "the pods, resized in place" "$uids" "$(for member in $(members demo); do pod_uid "$member-0"; done)"

# Its init container fails in the next pod of one member: told as such, and nobody is removed for it.
first=$(members demo)
kubectl label --overwrite namespace "$own" quorate.dev/e2e-mesh=broken >/dev/null
victim=$(follower demo)
eventually 60 "the mesh is broken" meshed no-such-command
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
told() { [ "$(kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Stalled")].reason}')" = SidecarFailing ]; }
eventually 300 "the status says that a sidecar fails" told
contains "$(kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Stalled")].message}')" "$victim" 'init container mesh-init'
sleep 30 # longer than healing.unhealthySeconds
equal "the members beside a broken mesh" "$first" "$(members demo)"
kubectl label --overwrite namespace "$own" quorate.dev/e2e-mesh=works >/dev/null
eventually 60 "the mesh works again" meshed --version
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
ready demo 3 240
equal "the members after the mesh" "$first" "$(members demo)"
kubectl label namespace "$own" quorate.dev/e2e-mesh- >/dev/null
kubectl delete -f "$mesh" >/dev/null
drop_cluster demo
kubectl label namespace quorate-system "$own" quorate.dev/e2e-platform- >/dev/null
kubectl delete --wait=true -f "$manifest" >/dev/null
helm rollback quorate --namespace quorate-system >/dev/null
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
trap - EXIT
