# shellcheck shell=bash
# soak
# own cluster
# by chart
# what a new user waits for, timed: helm install, kubectl apply of three members, the first write, all three ready; the image is on the nodes already
helm uninstall quorate --namespace quorate-system --wait >/dev/null
kubectl delete --ignore-not-found -f crds >/dev/null
ours() { kubectl get crd -o name | grep quorate.dev || true; }
nothing "what is left of the definitions" ours
ms() { echo $(($(date +%s%N) / 1000000)); }
since() { local all=$(($(ms) - $1)); echo "$((all / 1000)).$((all / 100 % 10)) s"; }

began=$(ms)
helm install quorate charts/quorate --namespace quorate-system --set allNamespaces=true --set "$(image_values "$quorate_image")" --wait --timeout 120s >/dev/null
log "helm install --wait returned after $(since "$began")"
applied=$(ms)
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec: {storage: {size: 1Gi$(storage_class shared)}}
YAML
# Who asks for the Service's name before it is there makes cluster DNS remember for half a minute that there is none.
is_available() { [ "$(condition demo Available)" = True ]; }
eventually 120 "the cluster is available" is_available
log "it was available $(since "$applied") after kubectl apply"
etcdctl_pod demo put greeting hello >/dev/null
log "the first write was acknowledged $(since "$applied") after kubectl apply, $(since "$began") after helm install began; etcdctl ran as a pod"
ready demo 3
log "three members were ready $(since "$applied") after kubectl apply"
drop_cluster demo
