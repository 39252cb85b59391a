# shellcheck shell=bash
# soak
# own cluster
# deploy/static-pod runs as a kubelet's static pod with TLS, and comes back with its data when its process dies
node=$QUORATE_E2E_DIR/node1 address=10.99.0.11 pki=$QUORATE_E2E_DIR/static-pki work=$QUORATE_E2E_DIR/static-data
mkdir -p "$pki" "$work"
tests/kubernetes/certificates.sh "$pki" $address
trap 'rm -f "$node/static/quorate.yaml"' EXIT
# Only the address, the node's name and paths differ; the image is the one under test.
sed "s|10\.0\.0\.1|$address|g; s|host-1|qrt-node1|g; s|image: quorate:.*|image: $quorate_image|
  s|path: /etc/kubernetes/pki/etcd|path: $pki|; s|path: /var/lib/quorate|path: $work|" deploy/static-pod/quorate.yaml >"$node/static/quorate.yaml"
pod=quorate-qrt-node1
pod_ready() { [ "$(kubectl -n kube-system get pod $pod -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = True ]; }
eventually 60 "the static pod is ready" pod_ready
ctl() { "$etcdctl" --endpoints="https://$address:2379" --cacert="$pki/ca.crt" --cert="$pki/client.crt" --key="$pki/client.key" "$@"; }
etcdctl=$PWD/target/interop/bin/etcdctl
ctl put kept value >/dev/null
if answer=$("$etcdctl" --endpoints="https://$address:2379" --cacert="$pki/ca.crt" --command-timeout=5s get kept 2>&1); then die "a client without a certificate was served: $answer"; fi
restarts() { kubectl -n kube-system get pod $pod -o jsonpath='{.status.containerStatuses[0].restartCount}'; }
tests/kubernetes/cluster.sh kill-pod kube-system $pod
again() { [ "$(restarts)" = 1 ] && pod_ready; }
eventually 60 "its process was killed and runs again" again
equal "the value" value "$(ctl get kept --print-value-only)"
rm -f "$node/static/quorate.yaml"
no_pod() { ns=kube-system none pod $pod; }
eventually 90 "the static pod goes with its manifest" no_pod
