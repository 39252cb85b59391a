# shellcheck shell=bash
# soak
# by chart
# own cluster
# a real Prometheus scrapes operator and members: the dashboards' queries return data, but for two, and faults fire alerts
#
# It runs on this machine and reaches the pods through the API server, which takes no bearer token for them: so metrics are
# for everybody here. Of the rules only durations are shorter: a fault of seconds counts as one of minutes, days or a week.
command -v prometheus >/dev/null || die "there is no Prometheus: apt-get install prometheus"
work=$(mktemp -d)
port=19090
helm upgrade quorate charts/quorate --namespace quorate-system --reuse-values --set metrics=everybody >/dev/null
stop() { kill "${prometheus:-}" "${discovery:-}" 2>/dev/null || true; helm rollback quorate --namespace quorate-system >/dev/null 2>&1 || true; kubectl -n quorate-system delete role,rolebinding e2e-scraper >/dev/null 2>&1 || true; rm -rf "$work"; }
trap stop EXIT
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null

kubectl config view --raw --flatten --minify -o json >"$work/kubeconfig.json"
jq -r '.clusters[0].cluster["certificate-authority-data"]' "$work/kubeconfig.json" | base64 -d >"$work/ca.crt"
kubectl -n "$ns" create serviceaccount scraper >/dev/null
for namespace in "$ns" quorate-system; do
  kubectl -n "$namespace" create role e2e-scraper --verb=get --resource=pods/proxy >/dev/null
  kubectl -n "$namespace" create rolebinding e2e-scraper --role=e2e-scraper --serviceaccount="$ns:scraper" >/dev/null
done
kubectl -n "$ns" create token scraper --duration=2h >"$work/token"
server=$(jq -r '.clusters[0].cluster.server' "$work/kubeconfig.json")
sed -E -e 's/for: [0-9]+[mhd]$/for: 2s/' -e 's/> (900|3600|172800|691200)$/> 4/' -e 's/> 180$/> 20/' deploy/monitoring/rules.yaml >"$work/rules.yaml"
job() { # job NAME: its targets are in NAME.json
  cat <<END
- job_name: $1
  honor_labels: true
  scheme: https
  tls_config: {ca_file: ca.crt}
  authorization: {credentials_file: token}
  file_sd_configs: [{files: [$1.json], refresh_interval: 2s}]
END
}
{
  printf '%s\n' 'global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}' 'rule_files: [rules.yaml]' scrape_configs:
  job operator
  job members
} >"$work/prometheus.yaml"
# Debian's Prometheus asks no API server which pods there are.
targets() { # targets NAME NAMESPACE COMPONENT PORT
  kubectl -n "$2" get pods -l "app.kubernetes.io/component=$3" -o json |
    jq --arg server "${server#https://}" --arg port "$4" '[.items[] | select(.status.podIP) | {targets: [$server], labels: ({
      __metrics_path__: "/api/v1/namespaces/\(.metadata.namespace)/pods/\(.metadata.name):\($port)/proxy/metrics", instance: .status.podIP, pod: .metadata.name
    } + if .metadata.labels["quorate.dev/cluster"] then {namespace: .metadata.namespace, name: .metadata.labels["quorate.dev/cluster"]} else {} end)}]' >"$work/$1.new"
  mv "$work/$1.new" "$work/$1.json"
}
discover() {
  while [ -d "$work" ]; do
    targets operator quorate-system operator 8080 || true
    targets members "$ns" member 2381 || true
    sleep 2
  done
}
discover 2>/dev/null &
discovery=$!
promtool check config "$work/prometheus.yaml" >"$work/check" || die "$(cat "$work/check")"
prometheus --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/data" --web.listen-address=127.0.0.1:$port >"$work/log" 2>&1 &
prometheus=$!
began=$(date +%s)
ask() { curl -sf --get "http://127.0.0.1:$port/api/v1/$1" --data-urlencode "query=$2" "${@:3}" | jq -e '.data.result'; }
fires() { ask query "ALERTS{alertname=\"$1\",alertstate=\"firing\"}" | jq -e 'length > 0'; }
fire() { # fire ALERT...: all of them, at some time within so long
  local alert
  for alert in "$@"; do eventually 120 "$alert fires" fires "$alert"; done
}
are_quiet() { ask query 'ALERTS{alertstate="firing", name="demo"}' | jq -e 'map(select(.metric.alertname | test("Backup") | not)) | length == 0'; }

# --- a cluster with all that there is to see
s3_gateway secret
s3_store secret
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi, storageClassName: sized}
  tls: {}
  server: {quota: 64Mi, extraArgs: [{name: metrics, value: extensive}]}
---
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackupSchedule
metadata: {name: often}
spec:
  clusterRef: {name: demo}
  storeRef: {name: s3}
  schedule: "@weekly"
  verifyEverySeconds: 60
  archive: {}
END
ready demo 3
etcdctl_with demo-client https://demo-client:2379 put greeting hello >/dev/null
fire QuorateBackupOld QuorateBackupArchiveBehind QuorateBackupNotVerified
eventually 60 "nothing else is wrong with demo" are_quiet

# --- what a user asks for
patch() { kubectl -n "$ns" patch "$1" "$2" --type=merge -p "$3" >/dev/null; }
patch qec demo '{"spec":{"paused":true}}'
fire QuorateClusterPaused
# Paused, the operator undoes nothing: two members sleep, and the third has no quorum.
first=$(members demo | sed -n 1p)
second=$(members demo | sed -n 2p)
kubectl -n "$ns" scale sts "$first" --replicas=0 >/dev/null
fire QuorateClusterNoFailureTolerated QuorateClusterDegraded
kubectl -n "$ns" scale sts "$second" --replicas=0 >/dev/null
fire QuorateClusterNoQuorum QuorateClusterUnavailable
kubectl -n "$ns" scale sts "$first" "$second" --replicas=1 >/dev/null
patch qec demo '{"spec":{"paused":false}}'
ready demo 3
version=$(kubectl -n "$ns" get qec demo -o jsonpath='{.spec.version}')
patch qec demo '{"spec":{"image":null,"version":"9.9.9"}}'
fire QuorateClusterStalled
patch qec demo "{\"spec\":{\"image\":\"$quorate_image\",\"version\":\"$version\"}}"
ready demo 3

# --- clusters that cannot be
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: unmade}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  tls:
    client: {source: Secret, certificateSecretRef: {name: none}}
    peer: {source: Secret, certificateSecretRef: {name: none}}
---
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: unsynced}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  server: {extraArgs: [{name: unsafe-no-fsync, value: "true"}]}
---
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackupSchedule
metadata: {name: nowhere}
spec: {clusterRef: {name: demo}, storeRef: {name: nowhere}, schedule: "@weekly"}
---
apiVersion: quorate.dev/v1alpha1
kind: EtcdUser
metadata: {name: nobody}
spec: {clusterRef: {name: none}, password: {}}
END
fire QuorateClusterNotFormed QuorateClusterCertificateExpiring QuorateClusterNotDurable QuorateBackupScheduleNotReady QuorateAccessNotReady

# --- a volume that fills up
victim=$(follower demo)
claim=$(status demo "members[?(@.name==\"$victim\")].volumeClaimName")
folder=$(kubectl get pv "$(kubectl -n "$ns" get pvc "$claim" -o jsonpath='{.spec.volumeName}')" -o jsonpath='{.spec.hostPath.path}')
of_victim() { ask query "$1{pod=\"$victim-0\"}" | jq -r '.[0].value[1]'; }
free=$(of_victim quorate_volume_free_bytes)
needed=$(of_victim quorate_volume_needed_bytes)
fallocate -l $((free - needed - needed / 2)) "$folder/ballast"
fire QuorateMemberVolumeFilling
rm "$folder/ballast"

# --- writes of the operator that fail
kubectl apply -f - >/dev/null <<END
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: e2e-dead}
webhooks:
- name: dead.e2e.quorate.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 1
  clientConfig: {url: "https://127.0.0.1:1/"}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
  matchConditions: [{name: the-operator, expression: 'request.userInfo.username == "system:serviceaccount:quorate-system:quorate"'}]
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: [services, statefulsets, etcdclusters/status]}]
END
patch qec unsynced '{"spec":{"replicas":3}}'
fire QuorateOperatorReconcileErrors QuorateClusterStatusStale
kubectl delete validatingwebhookconfiguration e2e-dead >/dev/null
ready unsynced 3

# --- a standby whose source is gone
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: standby}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  replicaOf: {endpoints: ["http://unsynced-client.$ns.svc:2379"]}
END
follows() { [ "$(status standby follow.phase)" = Following ]; }
eventually 180 "the standby follows" follows
never 30 "QuorateClusterFollowLag fires while the source is there" fires QuorateClusterFollowLag
kubectl -n "$ns" delete qec unsynced --wait=true >/dev/null
fire QuorateClusterFollowLag

# --- no operator
kubectl -n quorate-system scale deployment quorate --replicas=0 >/dev/null
fire QuorateOperatorAbsent
kubectl -n quorate-system scale deployment quorate --replicas=1 >/dev/null
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null

# --- what was to be seen meanwhile
over_time() { ask query_range "$1" --data "start=$began" --data "end=$(date +%s)" --data step=4; }
touch "$work/empty"
jq -r '.panels[].targets[].expr' deploy/monitoring/dashboards/*.json >"$work/queries"
while IFS= read -r query; do
  # shellcheck disable=SC2016
  query=$(sed -e "s/\$namespace/$ns/g" -e 's/\$name/.+/g' -e 's/\$__rate_interval/30s/g' <<<"$query")
  found=$(over_time "$query" | jq length)
  [ "$found" -gt 0 ] || echo "$query" >>"$work/empty"
done <"$work/queries"
# A learner of a small cluster is promoted between two scrapes, and no request failed.
grep -vE 'quorate_cluster_member_lag_entries|grpc_code!=' "$work/empty" >"$work/missing" || true
[ ! -s "$work/missing" ] || die "queries of the dashboards returned nothing in $(($(date +%s) - began)) s: $(cat "$work/missing")"
log "all but $(wc -l <"$work/empty") of $(wc -l <"$work/queries") queries of the dashboards returned data"
