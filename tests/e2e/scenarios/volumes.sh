# shellcheck shell=bash
# soak
# own cluster
# a full disk ends one server and nothing else; every volume grows, the same member comes back by itself, and no write fails
claim_of() { status demo "members[?(@.name==\"$1\")].volumeClaimName"; }
folder_of() { kubectl get pv "$(kubectl -n "$ns" get pvc "$(claim_of "$1")" -o jsonpath='{.spec.volumeName}')" -o jsonpath='{.spec.hostPath.path}'; }
sizes() { kubectl -n "$ns" get pvc -l app.kubernetes.io/instance=demo -o json | jq -r '[.items[] | "\(.spec.resources.requests.storage) \(.status.capacity.storage)"] | unique | join(", ")'; }

kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi, storageClassName: sized}
END
ready demo 3
first=$(members demo)
equal "sizes asked for and there" "1Gi 1Gi" "$(sizes)"
witness_start demo volumes

victim=$(follower demo)
folder=$(folder_of "$victim")
dd if=/dev/zero of="$folder/ballast" bs=1M status=none 2>/dev/null || true
[ "$(df --output=avail "$folder" | tail -1)" -lt 64 ] || die "the volume of $victim is not full: $(df -h "$folder")"
log "the volume of $victim is full"
# The log's next segments: a server still has room for some entries then.
run_pod fill "$quorate_image" bench fill --endpoints="http://demo-client:2379" --key-space=2560 --batch=16 --total=160 --value-size=65536 --warm-up=0
full() { status demo "members[?(@.name==\"$victim\")].reason" | grep -qi 'disk is full'; }
eventually 120 "the status reports that the disk of $victim is full" full
log "$(status demo summary)"
contains "$(quorate_plugin status demo -n "$ns")" "$victim" 'full'
contains "$(status demo "members[?(@.name==\"$victim\")].reason")" 'storage.size'
equal "the members while a disk is full" "$first" "$(members demo)"
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"storage":{"size":"2Gi"}}}' >/dev/null
operator_kill
grown() { [ "$(sizes)" = "2Gi 2Gi" ]; }
eventually 90 "every volume has the new size" grown
eventually 240 "the cluster is whole again" whole demo 3
equal "the members after a full disk" "$first" "$(members demo)"
witness_stop demo volumes
drop_cluster demo

# A class that cannot expand volumes: the operator reports the refusal, and everything else continues.
apply_cluster demo 1
ready demo 1
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"storage":{"size":"2Gi"}}}' >/dev/null
refused() { kubectl -n "$ns" get qec demo -o json | jq -e '[.status.conditions[] | select(.message | test("resize|expan"; "i"))] | length > 0'; }
eventually 60 "the status reports that the class refuses it" refused
kubectl -n "$ns" scale qec demo --replicas=3 >/dev/null
eventually 120 "it grows to three members all the same" has_members demo 3
drop_cluster demo
