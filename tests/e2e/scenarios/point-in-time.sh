# shellcheck shell=bash
# a moment: the log is archived in S3 beside the backups; after an accident a new cluster gets the data of the moment before it, with a lease and a user; then all volumes are lost, and the cluster goes on in place with everything but the last seconds
archive() { kubectl -n "$ns" get qbsched often -o jsonpath="{.status.archive.$1}"; }
is_archiving() { [ "$(archive phase)" = Archiving ] && [ -n "$(archive through)" ]; }
through() { date -d "$(archive through)" +%s; }
archived_after() { is_archiving && [ "$(through)" -gt "$1" ]; } # archived_after SECONDS
phase() { status "$1" restore.phase; }
is_phase() { [ "$(phase "$1")" = "$2" ]; }
recovery() { kubectl -n "$ns" get etcdrecovery latest -o jsonpath='{.status.phase}'; }
is_recovered() { [ "$(recovery)" = Recovered ]; }
claim() { status demo "members[?(@.name==\"$1\")].volumeClaimName"; }
is_lost() { [ "$(kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Stalled")].reason}')" = DataLost ]; }
put() { etcdctl_pod demo put "$@" >/dev/null; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

s3_gateway secret
s3_store secret
apply_cluster demo 3
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackupSchedule
metadata: {name: often}
spec:
  clusterRef: {name: demo}
  storeRef: {name: s3}
  schedule: "@weekly"
  verifyEverySeconds: 0
  archive: {}
YAML
ready demo 3

# --- the archive begins by itself: with a backup, since there is none
eventually 240 "the log is archived" is_archiving
backups() { kubectl -n "$ns" get qb -o name | wc -l; }
equal "backups" 1 "$(backups)"
lease=$(etcdctl_pod demo lease grant 3600 | grep -oE 'lease [0-9a-f]+' | cut -d' ' -f2)
put data/leased value --lease="$lease"
add_reader demo data/
run_pod witness-before "$quorate_image" witness --endpoints=http://demo-client:2379 --prefix=data/ --seconds=2
pod_ends witness-before >/dev/null || die "the writes failed"
# The Job's pod is taken away, and the operator dies: the archive goes on by itself.
kubectl -n "$ns" delete pod -l quorate.dev/backup-job=archive --wait=false >/dev/null
operator_kill
saved=$(content demo data/)
sleep 2
moment=$(date -u +%FT%TZ)
sleep 3

# --- the accident: everything is deleted
etcdctl_pod demo del data/ --prefix >/dev/null
etcdctl_pod demo user delete ann >/dev/null
put data/after accident
eventually 240 "the accident is in the archive" archived_after "$(date +%s)"
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: before}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  bootstrap:
    restore: {storeRef: {name: s3}, path: $ns/demo, at: {time: "$moment"}}
YAML
eventually 240 "a new cluster has the data of $moment" is_phase before Restored
ready before 1
now=$(content before data/)
equal "every key and value of that moment" "$saved" "$now"
contains "$(etcdctl_pod before user get ann)" reader
contains "$(etcdctl_pod before lease timetolive "$lease" --keys)" data/leased "granted with TTL(3600s)"
drop_cluster before

# --- everything is lost, in the middle of writes
(
  while [ ! -e "$work/stop" ]; do
    now=$(date +%s)
    etcdctl_pod demo put tick "$now" >/dev/null 2>&1 && echo "$now" >>"$work/ticks"
  done
) &
writer=$!
sleep 20
names=$(members demo)
mapfile -t victims <<<"$names"
claims=() pods=()
for member in "${victims[@]}"; do
  claims+=("$(claim "$member")")
  pods+=("$member-0")
done
kubectl -n "$ns" delete pvc "${claims[@]}" --wait=false >/dev/null
kubectl -n "$ns" delete pod "${pods[@]}" --wait=false --grace-period=1 >/dev/null
touch "$work/stop"
wait "$writer" || true
log "the volumes of ${victims[*]} were deleted"
eventually 120 "the operator reports that the data are lost" is_lost
uid=$(kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.uid}')
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdRecovery
metadata: {name: latest}
spec:
  clusterRef: {name: demo}
  clusterUID: $uid
  incarnation: 1
  acceptLoss: true
  restore: {storeRef: {name: s3}, path: $ns/demo, at: {latest: true}}
YAML
eventually 300 "the cluster is recovered" is_recovered
ready demo 3 300
acknowledged=$(tail -1 "$work/ticks")
restored=$(etcdctl_pod demo get tick --print-value-only)
log "the last acknowledged write is of $acknowledged, the last restored one of $restored"
lost=$((acknowledged - restored))
[ "$lost" -le 10 ] || die "$lost s of acknowledged writes are lost"
log "recovery point: $lost s"
equal "what was written after the accident" accident "$(etcdctl_pod demo get data/after --print-value-only)"

# --- the archive goes on with the new incarnation, behind a backup of it
eventually 300 "the new incarnation is archived" archived_after "$(date +%s)"
[ "$(backups)" -ge 2 ] || die "no backup of the new incarnation"
kubectl -n "$ns" patch qbsched often --type=merge -p '{"spec":{"suspend":true}}' >/dev/null
eventually 60 "nothing is archived while the schedule is suspended" none jobs -l quorate.dev/backup-job=archive
kubectl -n "$ns" delete etcdrecoveries,qbsched,qb --all >/dev/null
drop_cluster demo
