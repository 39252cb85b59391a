# shellcheck shell=bash
# soak
# own cluster
# a gigabyte of data: all three nodes are drained and replaced, one at a time, by kubectl alone; how long that takes, and the longest gap in writing
mebibytes=${BULK_MIB:-1024}

kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 8Gi, storageClassName: local}
  healing: {unhealthySeconds: 60, learnerDeadlineSeconds: 600}
EOF
ready demo 3
spare_node_comes
run_pod fill "$quorate_image" bench fill --endpoints="http://demo-client:2379" \
  --key-space="$((mebibytes * 16))" --batch=16 --total="$mebibytes" --value-size=65536 --warm-up=0
filled() { [ "$(kubectl -n "$ns" get pod fill -o jsonpath='{.status.phase}')" = Succeeded ]; }
eventually 600 "$mebibytes MiB are written" filled
kubectl -n "$ns" logs fill | sed 's/^/          fill: /'
keys() { etcdctl_pod demo get bench/ --prefix --count-only --write-out=fields | sed -n 's/^"Count" : //p'; }
filled=$(keys)
equal "the keys that were written" "$((mebibytes * 16))" "$filled"
first=$(members demo)
witness_start demo bulk
began=$SECONDS
for member in $first; do
  node=$(node_of "$member")
  at=$SECONDS
  timeout 600 kubectl drain "$node" --ignore-daemonsets --force --pod-selector=app.kubernetes.io/instance=demo --timeout=590s >/dev/null 2>&1 || die "the drain of $node failed"
  ready demo 3 300
  kubectl uncordon "$node" >/dev/null
  log "$member on $node was replaced in $((SECONDS - at)) s"
done
log "three nodes under $mebibytes MiB each were replaced in $((SECONDS - began)) s"
nothing "members that were there before" still "$first" members demo
equal "the keys that are left" "$filled" "$(keys)"
witness_stop demo bulk
drop_cluster demo
spare_node_goes
