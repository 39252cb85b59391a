#!/usr/bin/env bash
# Alerts of deploy/monitoring under a real Prometheus, fired by faults of what the operator talks to: a real kube-apiserver
# without nodes, whose store is a server of ours, and the operator as a process beside it. All on loopback, in two minutes.
#
# Of the rules only durations are shorter: a fault of seconds counts as one of minutes or an hour. What needs members that run
# is fired by the end-to-end scenario "monitoring".
#
#   QUORATE=path   the binary; else target/debug/quorate
set -euo pipefail
cd "$(dirname "$0")/../.."
# For messages from within a command whose output is dropped.
exec 3>&1 4>&2
tests/needs.sh prometheus jq openssl curl
quorate=${QUORATE:-$PWD/target/debug/quorate}
kube=$PWD/target/kubernetes/bin/kube
for tool in "$quorate" "$kube"; do
  [ -x "$tool" ] || { echo "tests/alerts/live.sh: $tool is missing: make alerts-live" >&2; exit 1; }
done
store=127.0.0.1:24379 peers=127.0.0.1:24380 api=127.0.0.1:24443 operator=127.0.0.1:24080 prometheus=127.0.0.1:24090
listens() { (exec 5<>"/dev/tcp/${1%:*}/${1#*:}") 2>/dev/null; } # listens ADDRESS
for address in $store $peers $api $operator $prometheus; do
  if listens $address; then echo "tests/alerts/live.sh: another process listens on $address: end it first" >&2; exit 1; fi
done
work=$(mktemp -d)
# It is each program of Kubernetes by that one's name.
ln -s "$kube" "$work/kubectl"
ln -s "$kube" "$work/kube-apiserver"
export PATH=$work:$PATH
export KUBECONFIG=$work/kubeconfig
pids=() names=()
leave() {
  local code=$?
  kill -CONT "${store_process:-}" 2>/dev/null || true
  # The last one first: what is asked goes after whoever asks it.
  for ((number = ${#pids[@]} - 1; number >= 0; number--)); do
    kill "${pids[number]}" 2>/dev/null || true
    wait "${pids[number]}" 2>/dev/null || true
  done
  [ $code = 0 ] || { { echo "--- the ends of the logs"; tail -n 5 "$work"/*.log; } >&3 2>&4 || true; }
  rm -rf "$work"
}
trap leave EXIT
start() { # start NAME COMMAND...
  local name=$1; shift
  "$@" >"$work/$name.log" 2>&1 3>&- 4>&- &
  pids+=($!) names+=("$name")
}
die() { echo "tests/alerts/live.sh: $*" >&4; exit 1; }
all_run() { # all_run WHAT: that is waited for
  local number
  for number in "${!pids[@]}"; do
    kill -0 "${pids[number]}" 2>/dev/null || die "${names[number]} has ended, before: $1"
  done
}
eventually() { # eventually SECONDS WHAT COMMAND...
  local until=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    all_run "$what"
    [ $SECONDS -lt $until ] || die "not in time: $what"
    read -rt 0.5 <> <(:) || true
  done
}

# --- a store, an API server, the operator and Prometheus
start store "$quorate" server --name=one --data-dir="$work/store" --unsafe-no-fsync --log-level=error \
  --listen-client-urls=http://$store --advertise-client-urls=http://$store --listen-metrics-urls= \
  --listen-peer-urls=http://$peers --initial-advertise-peer-urls=http://$peers --initial-cluster=one=http://$peers
store_process=$!
(
  cd "$work"
  openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=alerts
  openssl req -newkey rsa:2048 -nodes -keyout api.key -out api.csr -subj /CN=kube-apiserver
  openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out api.crt -days 2 -extfile <(echo subjectAltName=IP:127.0.0.1)
  openssl genrsa -out sa.key 2048
  openssl rsa -in sa.key -pubout -out sa.pub
) >"$work/openssl.log" 2>&1
printf '%s,%s,%s,system:masters\n' admin-token admin admin operator-token operator operator >"$work/tokens.csv"
chmod 600 "$work"/*.key "$work/tokens.csv"
config() { # config USER
  cat <<END
apiVersion: v1
kind: Config
clusters: [{name: alerts, cluster: {server: "https://$api", certificate-authority: $work/ca.crt}}]
users: [{name: user, user: {token: $1-token}}]
contexts: [{name: alerts, context: {cluster: alerts, user: user, namespace: default}}]
current-context: alerts
END
}
config admin >"$KUBECONFIG"
config operator >"$work/operator.config"
eventually 30 "the store serves" curl -sf "http://$store/health"
start apiserver kube-apiserver --etcd-servers="http://$store" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="${api##*:}" \
  --tls-cert-file="$work/api.crt" --tls-private-key-file="$work/api.key" --client-ca-file="$work/ca.crt" --service-cluster-ip-range=10.97.0.0/24 \
  --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$work/sa.pub" --service-account-signing-key-file="$work/sa.key" \
  --token-auth-file="$work/tokens.csv" --authorization-mode=RBAC
eventually 90 "the API server serves" kubectl get --raw /readyz
eventually 30 "there is a namespace" kubectl get namespace default
kubectl apply --server-side -f crds >/dev/null
eventually 30 "the definitions are served" kubectl get qec,etcdusers
KUBECONFIG=$work/operator.config start operator "$quorate" operator --image=localhost/quorate:test --lease-namespace=default --probe-address=$operator --metrics=everybody \
  --lease-duration=60 # it acts on while its API server stands still
sed -E -e 's/for: [0-9]+[mhd]$/for: 2s/' -e 's/> (900|3600)$/> 4/' deploy/monitoring/rules.yaml >"$work/rules.yaml"
cat >"$work/prometheus.yaml" <<END
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}
rule_files: [rules.yaml]
scrape_configs: [{job_name: operator, honor_labels: true, static_configs: [{targets: ["$operator"]}]}]
END
start prometheus prometheus --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/data" --web.listen-address=$prometheus
ask() { curl -sf --get "http://$prometheus/api/v1/query" --data-urlencode "query=$1" | jq -e '.data.result'; }
fires() { ask "ALERTS{alertname=\"$1\",alertstate=\"firing\"}" | jq -e 'length > 0'; }
rests() { ask "ALERTS{alertname=\"$1\",alertstate=\"firing\"}" | jq -e 'length == 0'; }
fired=0
fire() { # fire ALERT: by the fault that was made before
  eventually 90 "$1 fires" fires "$1"
  fired=$((fired + 1))
  echo "$1 fires"
}
leads() { ask 'quorate_operator_leading == 1' | jq -e 'length > 0'; }
eventually 60 "the operator acts and is scraped" leads
for alert in QuorateClusterStepStuck QuorateClusterWriteFails QuorateClusterCertificateExpired QuorateClusterUnreadable QuorateOperatorReconcileSlow QuorateAccessNotReady; do
  eventually 10 "$alert does not fire at rest" rests $alert
done

# --- a step that does not come to its end: no node runs its pod
kubectl apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec: {replicas: 1, storage: {size: 1Gi}}
END
fire QuorateClusterStepStuck

# --- a certificate that has ended
openssl req -newkey rsa:2048 -nodes -keyout "$work/ended.key" -out "$work/ended.csr" -subj /CN=ended 2>/dev/null
openssl x509 -req -in "$work/ended.csr" -signkey "$work/ended.key" -days 0 -out "$work/ended.crt" 2>/dev/null
kubectl create secret generic ended --from-file=tls.crt="$work/ended.crt" --from-file=tls.key="$work/ended.key" --from-file=ca.crt="$work/ended.crt" >/dev/null
kubectl apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: ended}
spec:
  replicas: 1
  storage: {size: 1Gi}
  tls:
    client: {source: Secret, certificateSecretRef: {name: ended}}
    peer: {source: Secret, certificateSecretRef: {name: ended}}
END
fire QuorateClusterCertificateExpired

# --- writes of the operator that are refused: nobody answers for the webhook
kubectl apply -f - >/dev/null <<END
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: denies}
webhooks:
- name: denies.alerts.quorate.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 1
  clientConfig: {url: "https://127.0.0.1:1/"}
  matchConditions: [{name: the-operator, expression: 'request.userInfo.username == "operator"'}]
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: [services, statefulsets, persistentvolumeclaims]}]
END
kubectl apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: refused}
spec: {replicas: 1, storage: {size: 1Gi}}
END
fire QuorateClusterWriteFails
kubectl delete validatingwebhookconfiguration denies >/dev/null

# --- a resource from before the definition had its rules
kubectl get crd etcdclusters.quorate.dev -o json | jq 'del(.status, .metadata.resourceVersion, .metadata.uid, .metadata.generation, .metadata.managedFields)' >"$work/definition.json"
jq '.spec.versions[].schema.openAPIV3Schema = {type: "object", "x-kubernetes-preserve-unknown-fields": true}' "$work/definition.json" | kubectl replace -f - >/dev/null
odd() { kubectl apply --validate=false -f - <<<'{"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": "odd"}, "spec": {"replicas": 1, "storage": "large"}}'; }
eventually 30 "the definition takes anything" odd
kubectl replace -f "$work/definition.json" >/dev/null
fire QuorateClusterUnreadable

# --- a user of no cluster
kubectl apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdUser
metadata: {name: nobody}
spec: {clusterRef: {name: none}, password: {}}
END
fire QuorateAccessNotReady

# --- an API server that takes its time: its store stands still for longer than ten seconds
number=0
slow() {
  number=$((number + 1))
  kubectl apply -f - <<<"{\"apiVersion\": \"quorate.dev/v1alpha1\", \"kind\": \"EtcdCluster\", \"metadata\": {\"name\": \"slow-$number\"}, \"spec\": {\"replicas\": 1, \"storage\": {\"size\": \"1Gi\"}}}"
  kill -STOP "$store_process"
  read -rt 14 <> <(:) || true
  kill -CONT "$store_process"
  eventually 30 "the API server goes on" kubectl get --raw /readyz
  read -rt 6 <> <(:) || true
  fires QuorateOperatorReconcileSlow
}
eventually 120 "QuorateOperatorReconcileSlow fires" slow
echo "QuorateOperatorReconcileSlow fires"
# tests/soak.sh parses the beginning of this line
echo "test result: ok. $((fired + 1)) passed: alerts fired in $SECONDS s"
