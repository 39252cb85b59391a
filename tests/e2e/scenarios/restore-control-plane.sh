# shellcheck shell=bash
# soak
# own cluster
# a control plane loses its cluster and gets it back under the same name from a backup: kube-apiserver and client-go's informers go on by themselves, with what was restored and what comes after
work=$(mktemp -d)
cleanup() {
  local pid
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
export hosted="$work/kubeconfig"
# shellcheck source=tests/e2e/hosted.sh
source tests/e2e/hosted.sh

hosted_image 1
apply_cluster demo 3
ready demo 3
slots demo 3
hosted_setup
hosted_apiserver 1 "$(slot_endpoints demo)"
hosted_kubectl create namespace restored >/dev/null
map() { hosted_kubectl -n restored create configmap "$1" --from-literal=n=1 >/dev/null; }
map before
map changed
test-informer "$hosted" restored >"$work/informer" 2>&1 &
informer=$!
knows() { tail -1 "$work/informer" | grep -q " $1@"; }
eventually 30 "the informer has its cache" knows before

backup_volume
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackup
metadata: {name: last}
spec: {clusterRef: {name: demo}, storeRef: {name: volume}}
EOF
is_stored() { [ "$(kubectl -n "$ns" get qb last -o jsonpath='{.status.phase}')" = Uploaded ]; }
eventually 120 "the backup is stored" is_stored

# What the backup does not have: the informer has seen it, at revisions that the restored data never had.
map after
hosted_kubectl -n restored patch configmap changed --type=merge -p '{"data":{"n":"2"}}' >/dev/null
for n in $(seq 50); do hosted_kubectl -n restored annotate configmap changed n="$n" --overwrite >/dev/null; done
eventually 30 "the informer knows what comes after the backup" knows after

# --- the cluster is lost, and made again from its backup
lost=$SECONDS
drop_cluster demo
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  bootstrap: {restore: {backupRef: {name: last}}}
EOF
ready demo 3
log "three members with the restored data $((SECONDS - lost)) s after the deletion"
forgets() { tail -1 "$work/informer" | grep -q " before@" && ! knows after; }
eventually 120 "the informer has what was restored" forgets
equal "an object that was changed after the backup" 1 "$(hosted_kubectl -n restored get configmap changed -o jsonpath='{.data.n}')"
eventually 60 "the API server takes new objects" map new
eventually 30 "the informer gets them" knows new
kill -TERM $informer
if ! wait $informer; then cat "$work/informer"; die "the informer's cache is not what a list shows"; fi
tail -1 "$work/informer"
equal "restarts of the API server" 0 "$(kubectl -n "$ns" get pod hosted -o jsonpath='{.status.containerStatuses[0].restartCount}')"
kubectl -n "$ns" delete pod hosted --wait=true >/dev/null
drop_cluster demo
