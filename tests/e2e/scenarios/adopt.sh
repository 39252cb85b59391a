# shellcheck shell=bash
# a deleted cluster's volumes are adopted by another resource of its name: the same members, cluster ID, revision, users and leases; one volume that is missing is replaced, another UID or name adopts nothing
stalled() { kubectl -n "$ns" get qec "$1" -o jsonpath='{.status.conditions[?(@.type=="Stalled")].reason}'; }
is_stalled() { [ "$(stalled "$1")" = "$2" ]; }
identities() { etcdctl_pod demo member list --write-out=json | jq -r '"cluster \(.header.cluster_id)", (.members[] | "\(.name) \(.ID)")' | sort; }
revision() { etcdctl_pod demo get leased -w json | jq -e .header.revision; }
# The UID as the guide finds it.
life() { kubectl -n "$ns" get pvc -L quorate.dev/cluster,quorate.dev/cluster-uid,quorate.dev/claim-state -l quorate.dev/cluster="$1" -o jsonpath='{.items[0].metadata.labels.quorate\.dev/cluster-uid}'; }
adopt() { # adopt NAME UID
  kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $1}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  healing: {unhealthySeconds: 20, learnerDeadlineSeconds: 60}
  bootstrap: {adopt: {clusterUID: "$2"}}
EOF
}

apply_cluster demo 3
ready demo 3
lease=$(etcdctl_pod demo lease grant 3600 | awk '{print $2}')
etcdctl_pod demo put leased value --lease="$lease" >/dev/null
for n in 1 2 3 4 5; do etcdctl_pod demo put "kept/$n" "value $n" >/dev/null; done
etcdctl_pod demo role add reader >/dev/null
etcdctl_pod demo user add ann:secret >/dev/null
etcdctl_pod demo user grant-role ann reader >/dev/null
data=$(content demo)
first=$(identities)
last=$(revision)
id=$(status demo clusterID)

kubectl -n "$ns" delete qec demo --wait=true >/dev/null
uid=$(life demo)
log "the volumes of demo carry the UID $uid"

# Another name adopts nothing, and forms nothing.
adopt other "$uid"
eventually 60 "another name is refused" is_stalled other NothingToAdopt
contains "$(status other summary)" "quorate.dev/cluster=other" "$uid"
nothing "what was made for it" kubectl -n "$ns" get sts -l quorate.dev/cluster=other -o name
drop_cluster other

# So does a UID that no volume has.
adopt demo 11111111-2222-3333-4444-555555555555
eventually 60 "another UID is refused" is_stalled demo NothingToAdopt
contains "$(status demo summary)" "$uid"
kubectl -n "$ns" delete qec demo --wait=true >/dev/null

adopt demo "$uid"
operator_kill
ready demo 3
equal "cluster and member IDs" "$first" "$(identities)"
equal "the cluster's ID in the status" "$id" "$(status demo clusterID)"
equal "the UID in the status" "$uid" "$(status demo clusterUID)"
now=$(content demo)
equal "every key and value" "$data" "$now"
equal "the revision" "$last" "$(revision)"
contains "$(etcdctl_pod demo user get ann)" reader
contains "$(etcdctl_pod demo lease timetolive "$lease" --keys)" leased "granted with TTL(3600s)"
etcdctl_pod demo put kept/6 "value 6" >/dev/null
data=$(content demo)

# Once more, with one volume less.
victim=$(follower demo)
claim=$(status demo "members[?(@.name==\"$victim\")].volumeClaimName")
kubectl -n "$ns" delete qec demo --wait=true >/dev/null
eventually 90 "nothing of demo is left but its PVCs" gone demo
kubectl -n "$ns" delete pvc "$claim" --wait=true >/dev/null
adopt demo "$uid"
ready demo 3 300
equal "the cluster's ID after the second adoption" "$id" "$(status demo clusterID)"
now=$(content demo)
equal "every key and value" "$data" "$now"
is_no_member demo "$victim" || die "$victim has no volume and is a member"
drop_cluster demo
