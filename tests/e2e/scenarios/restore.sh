# shellcheck shell=bash
# a new cluster from a backup that is not stored yet, and one from a file of etcdctl on a volume: every key, user and lease, the revision above the old one, nothing formed before the data are there
phase() { status "$1" restore.phase; }
is_phase() { [ "$(phase "$1")" = "$2" ]; }

s3_gateway secret
backup_volume
apply_cluster old 1
# It waits: for the store, then for the backup to be stored.
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: new}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  bootstrap: {restore: {backupRef: {name: first}}}
EOF
ready old 1
waits() { status new summary | grep -q "there is no EtcdBackup first"; }
eventually 60 "the restore misses its backup" waits
equal "Stalled" True "$(condition new Stalled)"

# --- what is saved: writes, a lease with a key, a user with a right
run_pod witness-old "$quorate_image" witness --endpoints=http://old-client:2379 --prefix=witness-old/ --seconds=2
pod_ends witness-old >/dev/null || die "the writes failed"
lease=$(etcdctl_pod old lease grant 3600 | grep -oE 'lease [0-9a-f]+' | cut -d' ' -f2)
etcdctl_pod old put leased value --lease="$lease" >/dev/null
add_reader old leased
s3_store secret
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackup
metadata: {name: first}
spec: {clusterRef: {name: old}, storeRef: {name: s3}}
EOF
operator_kill
eventually 240 "the new cluster was formed with the data" is_phase new Restored
ready new 3

# --- the same data under a higher revision
saved=$(content old)
restored=$(content new)
equal "every key and value" "$saved" "$restored"
revision() { etcdctl_pod "$1" get leased -w json | jq -e .header.revision; }
before=$(revision old)
after=$(revision new)
[ "$after" -ge $((before + 1000000000)) ] || die "revision $before became $after"
contains "$(etcdctl_pod new user get ann)" reader
contains "$(etcdctl_pod new lease timetolive "$lease" --keys)" leased "granted with TTL(3600s)"
contains "$(etcdctl_pod new get leased --rev="$before" 2>&1 || true)" "has been compacted"
contains "$(kubectl -n "$ns" patch qec new --type=merge -p '{"spec":{"bootstrap":{"restore":{"revisionBump":7}}}}' 2>&1 || true)" "bootstrap is immutable"
eventually 60 "the Job and its key are gone" none jobs,secrets -l quorate.dev/backup-owner-kind=cluster
kubectl -n "$ns" get qec new -o json | jq -c .status.restore

# --- a file of etcdctl on a volume, into a cluster with TLS
jq -n --arg image "$etcdctl_image" '{apiVersion: "v1", kind: "Pod", metadata: {name: "save"}, spec: {restartPolicy: "Never",
  securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: "RuntimeDefault"}},
  containers: [{name: "main", image: $image, imagePullPolicy: "IfNotPresent",
    args: ["--endpoints=http://old-client:2379", "snapshot", "save", "/backups/etcd.db"],
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}},
    volumeMounts: [{name: "backups", mountPath: "/backups"}]}],
  volumes: [{name: "backups", persistentVolumeClaim: {claimName: "backups"}}]}}' | kubectl -n "$ns" apply -f - >/dev/null
pod_ends save >/dev/null || die "etcdctl saved no snapshot"
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: secure}
spec:
  replicas: 1
  image: $quorate_image
  tls: {}
  storage: {size: 1Gi$(storage_class shared)}
  bootstrap: {restore: {storeRef: {name: volume}, path: etcd.db, revisionBump: 0}}
EOF
eventually 180 "a cluster with TLS was formed with the file" is_phase secure Restored
equal "its revision" "$before" "$(status secure restore.revision)"
drop_cluster secure
drop_cluster new
drop_cluster old
