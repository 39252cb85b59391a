# Shared by the scenarios: querying a cluster, and what they do to it; checks.sh has the checks. Sourced, never run.
# Every wait polls its condition and has a timeout; there are no fixed sleeps.

etcdctl_image=${E2E_ETCDCTL_IMAGE:-localhost/etcdctl:1}
quorate_image=${E2E_IMAGE:-localhost/quorate:test}
image_values() { # image_values REFERENCE: as values of the chart
  local name=${1%%@*} values=
  [ "$name" = "$1" ] || values=,image.digest=${1#*@}
  case ${name##*/} in *:*) values=,image.tag=${name##*:}$values name=${name%:*} ;; esac
  echo "image.repository=$name$values"
}
store_image=${E2E_STORE_IMAGE:-localhost/versitygw:1}

. tests/e2e/checks.sh

# The plugin, found by kubectl by its name, as for a user: the binary of the image.
quorate_plugin() {
  local folder=target/image/plugin said
  mkdir -p "$folder"
  ln -sf ../context/out/quorate "$folder/kubectl-quorate"
  # The answer to whoever expects a refusal, and the reason where nobody does.
  said=$(PATH="$PWD/$folder:$PATH" with_operator kubectl quorate "$@" 2>&1) || { printf '%s\n' "$said"; die "kubectl quorate $*: $said"; }
  printf '%s\n' "$said"
}

status() { kubectl -n "$ns" get qec "$1" -o jsonpath="{.status.$2}"; }
condition() { kubectl -n "$ns" get qec "$1" -o jsonpath="{.status.conditions[?(@.type==\"$2\")].status}"; }
is_ready() { # is_ready CLUSTER VOTERS: the latest generation has so many voters, all ready
  kubectl -n "$ns" get qec "$1" -o json | jq -e --argjson voters "$2" '.status.observedGeneration == .metadata.generation and
    .status.replicas == $voters and .status.readyReplicas == $voters and
    any(.status.conditions[]?; .type == "Ready" and .status == "True")' >/dev/null
}
ready() { eventually "${3:-180}" "$1 has $2 ready voters" is_ready "$1" "$2"; }
members() { status "$1" 'members[*].name' | tr ' ' '\n' | sort; }
leader() { status "$1" leader; }
follower() { members "$1" | grep -vx "$(leader "$1")" | tail -1; }
node_of() { kubectl -n "$ns" get pod "$1-0" -o jsonpath='{.spec.nodeName}'; } # node_of MEMBER
whole() { is_ready "$1" "$2" && prints_nothing status "$1" step; } # whole CLUSTER VOTERS: and the plan is empty
is_no_member() { # is_no_member CLUSTER NAME: of members that the status names
  local names
  names=$(members "$1") && [ -n "$names" ] && ! grep -qx "$2" <<<"$names"
}

# The test cluster's classes, or on an existing one E2E_STORAGE_CLASS, else its default.
storage_class() {
  local class=$1
  [ -z "${E2E_EXISTING:-}" ] || class=${E2E_STORAGE_CLASS:-}
  [ -z "$class" ] || printf ', storageClassName: %s' "$class"
}

apply_cluster() { # apply_cluster NAME REPLICAS [CLASS]
  kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $1}
spec:
  replicas: $2
  image: $quorate_image
  storage: {size: 1Gi$(storage_class "${3:-shared}")}
  healing: {unhealthySeconds: 20, learnerDeadlineSeconds: 60}
EOF
}

policy() { # policy NAME POLICY: how evictions of its members are handled
  kubectl -n "$ns" patch qec "$1" --type=merge -p "{\"spec\": {\"disruption\": {\"policy\": \"$2\"}}}" >/dev/null
}

# An S3 gateway with one bucket, at http://s3.$ns.svc:7070: Kubernetes creates a mounted subdirectory.
s3_gateway() { # s3_gateway SECRET: of the access key "backup"
  kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Pod
metadata: {name: s3, labels: {app: s3}}
spec:
  securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: s3
    image: $store_image
    imagePullPolicy: IfNotPresent
    args: [--port, ":7070", --health, /health, posix, /data]
    env: [{name: ROOT_ACCESS_KEY, value: backup}, {name: ROOT_SECRET_KEY, value: $1}]
    readinessProbe: {httpGet: {path: /health, port: 7070}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /bucket, subPath: bucket}]
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: s3}
spec: {selector: {app: s3}, ports: [{port: 7070}]}
EOF
}
# s3_store SECRET: the EtcdBackupStore "s3" on that gateway, encrypted, with this secret of the access key
s3_store() {
  kubectl -n "$ns" create secret generic s3-credentials --from-literal=AWS_ACCESS_KEY_ID=backup --from-literal=AWS_SECRET_ACCESS_KEY="$1" >/dev/null
  kubectl -n "$ns" create secret generic backup-key --from-literal=key="$(head -c 32 /dev/urandom | base64)" >/dev/null
  kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackupStore
metadata: {name: s3}
spec:
  s3: {bucket: bucket, prefix: e2e, endpoint: "http://s3.$ns.svc:7070", region: us-east-1}
  credentialsSecretRef: {name: s3-credentials}
  encryption: {keySecretRef: {name: backup-key, key: key}}
EOF
}
backup_volume() { # backup_volume [FIELDS]: the PVC "backups" and the EtcdBackupStore "volume" on it
  kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: backups}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}$(storage_class shared)}
---
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackupStore
metadata: {name: volume}
spec: {volume: {claimName: backups${1:-}}}
EOF
}

# run_pod NAME IMAGE ARGUMENT...: a pod that runs once, under the restricted security standard; pod_user=null
# leaves its user to the platform
run_pod() {
  local pod=$1 image=$2; shift 2
  jq -n --arg pod "$pod" --arg image "$image" --argjson user "${pod_user:-65532}" '{apiVersion: "v1", kind: "Pod", metadata: {name: $pod},
    spec: {restartPolicy: "Never", securityContext: {runAsNonRoot: true, runAsUser: $user, seccompProfile: {type: "RuntimeDefault"}},
      containers: [{name: "main", image: $image, imagePullPolicy: "IfNotPresent", args: $ARGS.positional,
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}}]}}' --args -- "$@" |
    kubectl -n "$ns" apply -f - >/dev/null
}

# The same with a Secret's certificate below /tls, mounted as a volume, like any client.
run_secure_pod() { # run_secure_pod NAME SECRET IMAGE ARGUMENT...
  local pod=$1 secret=$2 image=$3; shift 3
  jq -n --arg pod "$pod" --arg image "$image" --arg secret "$secret" '{apiVersion: "v1", kind: "Pod", metadata: {name: $pod},
    spec: {restartPolicy: "Never", securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: "RuntimeDefault"}},
      volumes: [{name: "tls", secret: {secretName: $secret, defaultMode: 288}}],
      containers: [{name: "main", image: $image, imagePullPolicy: "IfNotPresent", args: $ARGS.positional,
        volumeMounts: [{name: "tls", mountPath: "/tls", readOnly: true}],
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}}]}}' --args -- "$@" |
    kubectl -n "$ns" apply -f - >/dev/null
}
etcdctl_with() { # etcdctl_with SECRET ENDPOINTS ARGUMENT...: with TLS and this certificate
  local secret=$1 endpoints=$2 pod=etcdctl-$BASHPID-${EPOCHREALTIME//[.,]/}; shift 2
  run_secure_pod "$pod" "$secret" "$etcdctl_image" --endpoints="$endpoints" --cacert=/tls/ca.crt --cert=/tls/tls.crt --key=/tls/tls.key "$@"
  pod_ends "$pod"
}

# etcdctl as a separate pod, through the client Service, like any client in the cluster
etcdctl_pod() { # etcdctl_pod CLUSTER ARGUMENT...
  local cluster=$1; shift
  etcdctl_at "http://$cluster-client:2379" "$@"
}
add_reader() { # add_reader CLUSTER KEY: a user "ann" who may read it
  etcdctl_pod "$1" role add reader >/dev/null
  etcdctl_pod "$1" role grant-permission reader read "$2" >/dev/null
  etcdctl_pod "$1" user add ann:secret >/dev/null
  etcdctl_pod "$1" user grant-role ann reader >/dev/null
}
# Names of pods are of a process and a microsecond: two subshells never make the same one.
etcdctl_at() { # etcdctl_at ENDPOINTS ARGUMENT...
  local endpoints=$1 pod=etcdctl-$BASHPID-${EPOCHREALTIME//[.,]/}; shift
  run_pod "$pod" "$etcdctl_image" --endpoints="$endpoints" "$@"
  pod_ends "$pod"
}
# pod_ends POD: waits for its end, prints its log and deletes it; returns its result. The state of one that failed goes
# to standard error, since some scenarios want a failure and others drop the result.
pod_ends() {
  local until=$((SECONDS + 60)) phase=
  until [ "$phase" = Succeeded ] || [ "$phase" = Failed ]; do
    [ $SECONDS -lt $until ] || die "did not end: $(pod_state "$1")"
    sleep 0.2
    phase=$(kubectl -n "$ns" get pod "$1" -o jsonpath='{.status.phase}')
  done
  pod_log "$1"
  [ "$phase" = Succeeded ] || pod_state "$1" >&2
  kubectl -n "$ns" delete pod "$1" --wait=false >/dev/null
  [ "$phase" = Succeeded ]
}
# pod_log POD: asked for again only if Kubernetes cannot read it, as when the kubelet does not answer; an empty log is
# an answer
pod_log() {
  local attempt text
  for attempt in 1 2 3 4 5; do
    if text=$(kubectl -n "$ns" logs "$1"); then
      [ -z "$text" ] || printf '%s\n' "$text"
      return 0
    fi
    sleep "$attempt"
  done
  die "its log cannot be read: $(pod_state "$1")"
}
pod_state() { # pod_state POD: one line: node, phase, reason, and each container's state with its exit code
  kubectl -n "$ns" get pod "$1" -o json | jq -r '"pod \(.metadata.name) on \(.spec.nodeName // "no node"): " +
    ([.status.phase, .status.reason, .status.message, (.status.containerStatuses[]? | "\(.name) \(.state | tojson)")] | map(select(. != null)) | join("; "))' ||
    echo "pod $1, whose state cannot be read"
}

# content CLUSTER [PREFIX]: how much is below it, and its checksum, to compare with another answer: assign it first
content() {
  local answer
  answer=$(etcdctl_pod "$1" get "${2:-}" --prefix) || die "the keys of $1 cannot be read"
  [ -n "$answer" ] || die "$1 has no keys below \"${2:-}\""
  printf '%s bytes, sha256 %s\n' "$(wc -c <<<"$answer")" "$(sha256sum <<<"$answer" | cut -d' ' -f1)"
}

witness_start() { # witness_start CLUSTER NAME: a pod that writes until it is stopped
  run_pod "witness-$2" "$quorate_image" witness --endpoints="http://$1-client:2379" --prefix="witness-$2/" --allow-failed="${3:-0}"
  eventually 60 "witness $2 writes" witness_writes "$1" "$2"
}
witness_writes() { [ -n "$(etcdctl_pod "$1" get "witness-$2/writes/" --prefix --limit=1 --keys-only)" ]; }
witness_stop() { # witness_stop CLUSTER NAME: stops it; fails unless every acknowledged write is present
  etcdctl_pod "$1" put "witness-$2/stop" now >/dev/null || die "cannot stop witness $2"
  local until=$((SECONDS + 120)) phase=
  until [ "$phase" = Succeeded ] || [ "$phase" = Failed ]; do
    [ $SECONDS -lt $until ] || die "witness $2 did not end: $(pod_state "witness-$2")"
    sleep 0.3
    phase=$(kubectl -n "$ns" get pod "witness-$2" -o jsonpath='{.status.phase}')
  done
  pod_log "witness-$2" | sed "s/^/          witness $2: /"
  [ "$phase" = Succeeded ] || die "witness $2: an acknowledged write is missing, or too many writes failed"
}

# The slots: one Service per desired voter, each in front of its own voter.
slot_endpoints() { status "$1" 'endpoints.slots[*]' | tr ' ' ','; }
slot_members() { # slot_members CLUSTER: "Service member", one line per slot, from the selectors
  kubectl -n "$ns" get services -l "app.kubernetes.io/instance=$1" -o json |
    jq -r --arg name "$1-client-" '.items[] | select(.metadata.name | startswith($name)) | "\(.metadata.name) \(.spec.selector["quorate.dev/member"])"' | sort
}
slots_are_mapped() { # slots_are_mapped CLUSTER VOTERS: so many, and they select all the voters
  local voters
  voters=$(kubectl -n "$ns" get qec "$1" -o json | jq -r '.status.members[] | select(.role == "Voter") | .name' | sort)
  [ "$(slot_members "$1" | wc -l)" = "$2" ] && [ "$(slot_members "$1" | cut -d' ' -f2 | sort)" = "$voters" ]
}
slots_answer() { # slots_answer CLUSTER VOTERS: every slot is healthy, and no two select the same member
  local answers health
  exec 3< <(etcdctl_at "$(slot_endpoints "$1")" endpoint health) # both pods in parallel
  answers=$(etcdctl_at "$(slot_endpoints "$1")" endpoint status --write-out=json) || return 1
  health=$(cat <&3)
  [ "$(jq '[.[].Status.header.member_id] | unique | length' <<<"$answers")" = "$2" ] && [ "$(grep -c 'is healthy' <<<"$health")" = "$2" ]
}
slots() { # slots CLUSTER VOTERS
  eventually 60 "$2 slots lead to the $2 voters of $1" slots_are_mapped "$1" "$2"
  eventually 60 "every slot of $1 answers" slots_answer "$1" "$2"
}

operator_pod() { kubectl -n quorate-system get pods -l app.kubernetes.io/name=quorate,app.kubernetes.io/component=operator -o jsonpath='{.items[0].metadata.name}'; }
# The operators' pods, if one of them acts: the holder's identity begins with its name. A killed one has no pod any
# more.
operators_at_work() {
  kubectl -n quorate-system get leases,pods -o json | jq -er '
    (.items | map(select(.kind == "Lease" and .metadata.name == "quorate-operator")) | .[0].spec.holderIdentity // "") as $holder |
    [.items[] | select(.kind == "Pod" and .metadata.labels["app.kubernetes.io/component"] == "operator") | .metadata.name] |
    if any(. as $pod | $holder | startswith($pod)) then join(" ") else empty end'
}
# with_operator COMMAND...: runs it when an operator acts, while no other scenario kills that one. A command that
# does it itself would wait for ever.
with_operator() {
  (
    flock 9
    until=$((SECONDS + 90))
    until operators=$(operators_at_work); do
      [ $SECONDS -lt $until ] || die "no operator acts"
      sleep 0.1
    done
    "$@" 9>&-
  ) 9>"$QUORATE_E2E_OPERATOR"
}
operator_kill() { # kills every operator, without releasing the Lease; the Deployment starts others
  with_operator operators_die
  log "the operator was killed"
}
operators_die() { # $operators comes from with_operator, since the kill must not be late
  local pod
  for pod in $operators; do
    # on an existing cluster SIGKILL is not possible, and the pod gets a SIGTERM
    [ -n "${E2E_EXISTING:-}" ] || tests/kubernetes/cluster.sh kill-pod quorate-system "$pod"
    kubectl -n quorate-system delete pod "$pod" --grace-period=0 --force >/dev/null 2>&1
  done
}

# A fourth node for a while. It is removed together with any pods of Kubernetes that were scheduled to it.
spare=4
spare_node_comes() {
  tests/kubernetes/cluster.sh node $spare
  log "a fourth node is there"
}
spare_node_goes() {
  kubectl drain "qrt-node$spare" --ignore-daemonsets --force --delete-emptydir-data --timeout=90s >/dev/null 2>&1 || true
  tests/kubernetes/cluster.sh forget $spare
  eventually 120 "the operator runs" kubectl -n quorate-system rollout status deployment/quorate --timeout=1s
  eventually 120 "cluster DNS runs" kubectl -n kube-system rollout status deployment/coredns --timeout=1s
}

# The cluster's own membership history, read from the member and not from the operator's status: one line per
# change, "kind name".
history_of() { kubectl -n "$ns" exec "$1" -- /quorate describe --changes 2>/dev/null; }

drop_cluster() { # drop_cluster NAME: deletes the resource and, through ownership, all its objects
  kubectl -n "$ns" delete qec "$1" --wait=true >/dev/null
  eventually 90 "nothing of $1 is left but its PVCs" gone "$1"
  kubectl -n "$ns" delete pvc -l "app.kubernetes.io/instance=$1" --wait=false >/dev/null
}
gone() { none sts,pods,svc,pdb,secrets -l "app.kubernetes.io/instance=$1"; }
has_members() { [ "$(members "$1" | grep -c .)" -ge "$2" ]; }
pod_uid() { kubectl -n "$ns" get pod "$1" -o jsonpath='{.metadata.uid}'; }
is_another_pod() { local now; now=$(pod_uid "$1") && [ -n "$now" ] && [ "$now" != "$2" ]; } # is_another_pod NAME UID

# The API server's metrics about its store: no consistent list fell back from the cache because the cache did not
# reach the store's revision in time, and no comparison of cache and store found a difference (an error is none:
# the cache's revision was compacted meanwhile). A list that failed without a fallback is not judged: the API
# server counts each client that disconnects in the middle of one, 78 of 400 connections that were closed within 4
# ms. Scenarios that test the store check their own lists.
store_verdict() {
  local metrics bad
  metrics=$(kubectl get --raw /metrics)
  [ -n "$metrics" ] || die "the API server has no metrics"
  bad=$(grep -E '^apiserver_watch_cache_consistent_read_total\{.*fallback="true"|^apiserver_storage_consistency_checks_total.*status="failure"' <<<"$metrics" || true)
  [ -z "$bad" ] || die "the API server says of its store: $bad"
}

# The API server's measurements of its store, all resources together.
store_figures() {
  kubectl get --raw /metrics | awk '
    function quantile(op, q,   i) {
      for (i = 1; i <= limits; i++) if (bucket[op, limit[i]] >= q * count[op]) return "<= " limit[i]
      return "-"
    }
    function label(name,   text) { text = $0; sub(".*" name "=\"", "", text); sub("\".*", "", text); return text }
    /^etcd_request_duration_seconds_bucket/ { le = label("le"); if (!(le in known)) { known[le]; limit[++limits] = le } bucket[label("operation"), le] += $NF }
    /^etcd_request_duration_seconds_sum/ { sum[label("operation")] += $NF }
    /^etcd_request_duration_seconds_count/ { count[label("operation")] += $NF }
    /^etcd_request_errors_total/ { errors[label("operation")] += $NF }
    /^etcd_bookmark_counts/ { bookmarks += $NF }
    /^apiserver_storage_events_received_total/ { events += $NF }
    /^apiserver_watch_cache_read_wait_seconds_sum/ { waited += $NF }
    /^apiserver_watch_cache_read_wait_seconds_count/ { waits += $NF }
    /^apiserver_watch_cache_consistent_read_total/ { consistent[label("fallback")] += $NF; if (label("success") == "false") left += $NF }
    /^apiserver_storage_consistency_checks_total/ { checks[label("status")] += $NF }
    /^apiserver_storage_size_bytes/ { size = $NF }
    END {
      printf "%-14s %9s %9s %12s %12s %9s\n", "operation", "requests", "mean ms", "p50 s", "p99 s", "errors"
      sorted = "sort"
      for (op in count) if (count[op]) printf "%-14s %9d %9.2f %12s %12s %9d\n", op, count[op], 1000 * sum[op] / count[op], quantile(op, 0.5), quantile(op, 0.99), errors[op] | sorted
      close(sorted)
      printf "events %d, progress notifications %d, size %.1f MB\n", events, bookmarks, size / 1e6
      printf "consistent lists from cache %d, fallen back %d, failed or given up %d, mean wait %.2f ms; comparisons of cache and store: %d equal, %d different, %d compacted meanwhile\n", consistent["false"], consistent["true"], left, waits ? 1000 * waited / waits : 0, checks["success"], checks["failure"], checks["error"]
    }'
}
