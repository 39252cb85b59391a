# shellcheck shell=bash
# alone
# real etcd under a kube-apiserver becomes a cluster of ours without a stop: seeded from a snapshot, then fed from its watch, with the Job and the operator killed; at the cutover etcd is closed by its own alarm, every revision is the same, and the API server's watches go on
work=$(mktemp -d)
cleanup() {
  local pid
  touch "$work/stop"
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
export hosted="$work/kubeconfig"
# shellcheck source=tests/e2e/hosted.sh
source tests/e2e/hosted.sh
follow() { status demo "follow.$1"; }
is_in() { [ "$(follow phase)" = "$1" ]; }
lags() { # lags MOST: at most so many revisions
  local lag
  lag=$(follow lagRevisions)
  [ -n "$lag" ] && [ "$lag" -le "$1" ]
}
# of ENDPOINT status|hashkv FIELD
of() {
  local answer
  answer=$(etcdctl_at "$1" endpoint "$2" --write-out=json) || die "endpoint $2 of $1: $answer"
  jq -e ".[0].$3" <<<"$answer" || die "endpoint $2 of $1: $answer"
}
source=http://source:2379

# --- a control plane on etcd
hosted_image 1
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: source, labels: {app: source}}
spec:
  nodeName: qrt-node1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: etcd
    image: localhost/etcd:1
    imagePullPolicy: IfNotPresent
    args: [--data-dir=/data/etcd, "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=$source"]
    readinessProbe: {httpGet: {path: /health, port: 2379}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: source}
# etcd is not ready under the alarms by which it is closed
spec: {selector: {app: source}, publishNotReadyAddresses: true, ports: [{port: 2379}]}
---
# What the API server stores in: at the cutover it leads to the new cluster.
apiVersion: v1
kind: Service
metadata: {name: store}
spec: {selector: {app: source}, ports: [{port: 2379}]}
YAML
eventually 60 "etcd is ready" pod_is_ready source
hosted_setup
hosted_apiserver 1 http://store:2379
hosted_kubectl create namespace moved >/dev/null
map() { hosted_kubectl -n moved create configmap "$1" --from-literal=n=1 >/dev/null; }
map before
test-informer "$hosted" moved >"$work/informer" 2>&1 &
informer=$!
knows() { tail -1 "$work/informer" | grep -q " $1@"; }
eventually 30 "the informer has its cache" knows before
(
  number=0
  while [ ! -e "$work/stop" ]; do
    number=$((number + 1))
    hosted_kubectl -n moved annotate configmap before "n=$number" --overwrite >/dev/null 2>&1 && echo $number >"$work/written"
  done
) &
lease=$(etcdctl_at $source lease grant 3600 | grep -oE 'lease [0-9a-f]+' | cut -d' ' -f2)
etcdctl_at $source put data/leased value --lease="$lease" >/dev/null
etcdctl_at $source user add ann:secret >/dev/null

# --- the cluster that follows
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  bootstrap: {follow: {endpoints: ["$source"]}}
YAML
eventually 120 "demo follows" is_in Following
voters() { [ "$(status demo readyReplicas)" = 3 ]; }
eventually 180 "demo has 3 voters" voters
kubectl -n "$ns" delete pod -l quorate.dev/backup-job=follow --wait=false >/dev/null
operator_kill
map meanwhile
lease_is_here() { etcdctl_pod demo lease timetolive "$lease" --keys | grep -q data/leased; }
eventually 120 "the lease is here" lease_is_here
if refused=$(etcdctl_pod demo put own value 2>&1); then die "a cluster that follows took a write"; fi
contains "$refused" "follows another one"
eventually 120 "the lag is small" lags 20

# --- the cutover
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"bootstrap":{"follow":{"cutover":"WhenCaughtUp"}}}}' >/dev/null
eventually 120 "demo has taken over" is_in CutOver
log "$(follow writeGapMilliseconds) ms without writes"
if refused=$(etcdctl_at $source put late value 2>&1); then die "etcd still takes writes"; fi
contains "$refused" "Error: " # from etcdctl, and not from the pod
ours=http://demo-client:2379
for field in "status Status.header.revision" "hashkv HashKV.hash"; do
  # shellcheck disable=SC2086
  theirs=$(of $source $field)
  # shellcheck disable=SC2086
  equal "$field" "$theirs" "$(of $ours $field)"
done
contains "$(etcdctl_pod demo user list)" ann
contains "$(etcdctl_pod demo lease timetolive "$lease" --keys)" data/leased "granted with TTL(3600s)"

# --- the API server goes on, with what it has, where it was
written=$(cat "$work/written")
kubectl -n "$ns" patch service store --type=json -p '[{"op": "replace", "path": "/spec/selector", "value": {"quorate.dev/cluster": "demo", "app.kubernetes.io/component": "member"}}]' >/dev/null
kubectl -n "$ns" delete pod source --grace-period=1 >/dev/null
eventually 90 "the API server takes new objects" map after
eventually 60 "the informer gets them" knows after
goes_on() { [ "$(cat "$work/written")" -gt "$written" ]; }
eventually 60 "the writer goes on" goes_on
touch "$work/stop"
kill -TERM $informer
if ! wait $informer; then cat "$work/informer"; die "the informer's cache is not what a list shows"; fi
tail -1 "$work/informer"
equal "restarts of the API server" 0 "$(kubectl -n "$ns" get pod hosted -o jsonpath='{.status.containerStatuses[0].restartCount}')"
ready demo 3
kubectl -n "$ns" delete pod hosted --wait=true >/dev/null
drop_cluster demo
