# shellcheck shell=bash
# soak
# own cluster
# another storage class, a smaller size and another node replace the members of a cluster, the successor first, and no write fails; volumes grow before they are full
pvcs() { kubectl -n "$ns" get pvc -l app.kubernetes.io/instance=demo -o json; }
sizes() { pvcs | jq -r '[.items[].status.capacity.storage] | unique | join(", ")'; }
classes() { pvcs | jq -r '[.items[].spec.storageClassName] | unique | join(", ")'; }
patch() { kubectl -n "$ns" patch qec demo --type=merge -p "$1" >/dev/null; }
stalled() { kubectl -n "$ns" get qec demo -o json | jq -e --arg reason "$1" 'any(.status.conditions[]?; .type == "Stalled" and .status == "True" and .reason == $reason)' >/dev/null; }
all_are() { whole demo "$3" && [ "$("$1")" = "$2" ]; } # all_are sizes|classes VALUE VOTERS

# From the class of sized volumes to smaller ones, under a writer, with the operator killed in between.
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi, storageClassName: sized}
  scheduling: {spread: Preferred}
  healing: {unhealthySeconds: 20, learnerDeadlineSeconds: 60}
END
ready demo 3
first=$(members demo)
witness_start demo classes
patch '{"spec":{"storage":{"size":"512Mi"}}}'
begun() { [ "$(members demo | grep -c .)" -gt 3 ]; }
eventually 90 "the first successor has joined" begun
operator_kill
eventually 300 "every volume is smaller" all_are sizes 512Mi 3
nothing "members that are left" still "$first" members demo

# A class that does not exist replaces nobody.
second=$(members demo)
patch '{"spec":{"storage":{"storageClassName":"nowhere"}}}'
eventually 60 "the status reports that there is no such class" stalled NoStorageClass
contains "$(status demo summary)" 'no StorageClass nowhere exists'
left() { [ "$(still "$second" members demo)" != "$second" ]; }
never 30 "a member that leaves for a class that does not exist" left
patch '{"spec":{"storage":{"storageClassName":"shared"}}}'
eventually 300 "every volume is of the class shared" all_are classes shared 3
nothing "members that are left" still "$second" members demo
witness_stop demo classes

# Data that would not fit.
run_pod fill "$quorate_image" bench fill --endpoints="http://demo-client:2379" --key-space=1600 --batch=16 --total=100 --value-size=65536 --warm-up=0
pod_ends fill >/dev/null || die "the data was not written"
third=$(members demo)
patch '{"spec":{"storage":{"size":"256Mi"}}}'
eventually 60 "the status reports that the size is too small" stalled VolumeTooSmall
equal "the members" "$third" "$(members demo)"
patch '{"spec":{"storage":{"size":"512Mi"}}}'
eventually 60 "the cluster is at rest" whole demo 3
equal "the members" "$third" "$(members demo)"
drop_cluster demo

# Volumes that stay on their nodes, and a node selector that names another one.
apply_cluster demo 1 local
ready demo 1
old=$(members demo)
here=$(node_of "$old")
other=$(kubectl get nodes -o name | cut -d/ -f2 | grep -vx "$here" | head -1)
patch "{\"spec\":{\"podTemplate\":{\"spec\":{\"nodeSelector\":{\"kubernetes.io/hostname\":\"$other\"}}}}}"
moved() { local now; whole demo 1 && now=$(members demo) && [ "$(count "$now")" = 1 ] && [ "$now" != "$old" ]; }
eventually 240 "another member has taken its place" moved
equal "the node of the member" "$other" "$(node_of "$(members demo)")"
drop_cluster demo

# Growth on request. The specification stays the user's.
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 512Mi, storageClassName: sized, autogrow: {at: 50, by: 256Mi, max: 1Gi}}
  scheduling: {spread: Preferred}
END
ready demo 1
equal "the size at first" 512Mi "$(sizes)"
run_pod fill "$quorate_image" bench fill --endpoints="http://demo-client:2379" --key-space=1600 --batch=16 --total=100 --value-size=65536 --warm-up=0
pod_ends fill >/dev/null || die "the data was not written"
grown() { [ "$(sizes)" != 512Mi ] && whole demo 1; }
eventually 120 "the volume has grown" grown
log "it has grown to $(sizes)"
equal "storage.size" 512Mi "$(kubectl -n "$ns" get qec demo -o jsonpath='{.spec.storage.size}')"
kubectl -n "$ns" scale qec demo --replicas=3 >/dev/null
ready demo 3 240
smaller() { pvcs | jq -e 'any(.items[]; .spec.resources.requests.storage == "512Mi")' >/dev/null; }
if smaller; then die "a new member got a smaller volume: $(sizes)"; fi
drop_cluster demo
