# shellcheck shell=bash
# soak
# own cluster
# by chart
# a private registry by TLS, with a password: the chart names its image by a tag that is no version and by digest, and members, backups included, are pulled as the operator is, with its Secret
work=$(mktemp -d)
at=10.99.0.1:5443
stop() {
  kill "${registry:-}" 2>/dev/null || true
  helm rollback quorate --namespace quorate-system >/dev/null 2>&1 || true
  kubectl -n quorate-system delete secret registry --ignore-not-found >/dev/null
  rm -rf "$work" "$QUORATE_E2E_DIR/registries/$at"
}
trap stop EXIT
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key" -out "$work/certificate" -days 2 -subj /CN=registry -addext subjectAltName=IP:10.99.0.1 2>/dev/null
tests/e2e/registry.py $at "$work/certificate" "$work/key" puller:secret team/quorate candidate target/image/quorate.tar >"$work/digest" 2>"$work/log" &
registry=$!
has_digest() { grep -q ^sha256: "$work/digest"; }
eventually 30 "the registry serves" has_digest
digest=$(cat "$work/digest")
# What the administrators of nodes do for a CA of their own.
mkdir -p "$QUORATE_E2E_DIR/registries/$at"
cp "$work/certificate" "$QUORATE_E2E_DIR/registries/$at/ca.crt"
printf '%s\n' "server = \"https://$at\"" "[host.\"https://$at\"]" "ca = \"$QUORATE_E2E_DIR/registries/$at/ca.crt\"" >"$QUORATE_E2E_DIR/registries/$at/hosts.toml"

image=$at/team/quorate:candidate@$digest
# Without the Secret a kubelet gets nothing.
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: without}
spec:
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: it
    image: $image
    args: [--version]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
YAML
is_refused() { kubectl -n "$ns" get pod without -o jsonpath='{.status.containerStatuses[0].state.waiting.reason}' | grep -qE 'ErrImagePull|ImagePullBackOff'; }
eventually 60 "a pod without the Secret is not pulled" is_refused
kubectl -n "$ns" delete pod without --wait=false >/dev/null

for namespace in quorate-system "$ns"; do
  kubectl -n "$namespace" create secret docker-registry registry --docker-server=$at --docker-username=puller --docker-password=secret >/dev/null
done
helm upgrade quorate charts/quorate --namespace quorate-system --reuse-values --set "$(image_values "$image")" --set-json 'imagePullSecrets=[{"name":"registry"}]' >/dev/null
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
of_pods() { kubectl -n "$1" get pods -l "$2" -o json | jq -r "[.items[].spec | $3] | unique | join(\" \")"; }
is_pulled() { [ "$(of_pods quorate-system app.kubernetes.io/component=operator '.containers[].image')" = "$image" ]; }
eventually 60 "the operator has this image alone" is_pulled
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec: {replicas: 1, storage: {size: 1Gi$(storage_class shared)}}
YAML
ready demo 1
equal "the members' image" "$image" "$(of_pods "$ns" quorate.dev/cluster=demo '.containers[].image')"
equal "the members' Secret" registry "$(of_pods "$ns" quorate.dev/cluster=demo '.imagePullSecrets[].name')"
etcdctl_pod demo put key value >/dev/null
# A Job of a backup, too.
s3_gateway secret
s3_store secret
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackup
metadata: {name: once}
spec: {clusterRef: {name: demo}, storeRef: {name: s3}}
YAML
is_of_the_job() { [ "$(of_pods "$ns" quorate.dev/backup-job '.containers[].image')" = "$image" ]; }
eventually 60 "the backup's Job has the same image" is_of_the_job
is_made() { kubectl -n "$ns" get qb once -o jsonpath='{.status.phase}' | grep -qE 'Uploaded|Verified'; }
eventually 120 "the backup is made" is_made
grep -q "^200 GET /v2/team/quorate/manifests/$digest" "$work/log" || die "the image was not pulled by its digest: $(sort "$work/log" | uniq -c)"
grep -q "^401 " "$work/log" || die "the registry has asked nobody for a password"
log "the image was pulled $(grep -c "^200 GET /v2/team/quorate/manifests/$digest" "$work/log") times by its digest"
drop_cluster demo
