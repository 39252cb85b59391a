# shellcheck shell=bash
# backups as resources: wrong credentials that are corrected, encrypted, verified, scheduled and pruned in S3, and a cluster with TLS on a volume; no write fails
backup() { kubectl -n "$ns" get qb "$1" -o jsonpath="{.status.$2}"; } # backup NAME FIELD
is_phase() { [ "$(backup "$1" phase)" = "$2" ]; }
store_reason() { kubectl -n "$ns" get qbs "$1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].reason}'; }
is_store() { [ "$(store_reason "$1")" = "$2" ]; }

s3_gateway right-secret
s3_store wrong-secret
apply_cluster demo 3
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackup
metadata: {name: first}
spec: {clusterRef: {name: demo}, storeRef: {name: s3}, verify: true}
EOF
ready demo 3
witness_start demo backup
eventually 120 "the store refuses the credentials" is_store s3 CredentialsRejected
log "$(backup first message)"
contains "$(backup first message)" "credentials"
kubectl -n "$ns" create secret generic s3-credentials --from-literal=AWS_ACCESS_KEY_ID=backup --from-literal=AWS_SECRET_ACCESS_KEY=right-secret --dry-run=client -o yaml | kubectl -n "$ns" apply -f - >/dev/null 2>&1
operator_kill
eventually 240 "the first backup is verified" is_phase first Verified
equal "the store" Used "$(store_reason s3)"
[ "$(backup first revision)" -gt 1 ] || die "no revision: $(backup first revision)"
[ -n "$(backup first encryptionKeyID)" ] || die "it is not encrypted"
log "revision $(backup first revision), $(backup first size), restored in $(backup first verification.seconds) s"
kubectl -n "$ns" get qb,qbs

# Every minute, and only the newest one is kept beside the verified one.
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackupSchedule
metadata: {name: often}
spec:
  clusterRef: {name: demo}
  storeRef: {name: s3}
  schedule: "* * * * *"
  retention: {last: 1, daily: 0, weekly: 0, minKeep: 1}
EOF
created() { kubectl -n "$ns" get events --field-selector reason=Uploaded -o json | jq -r '.items[].involvedObject.name' | grep -c '^often-'; }
twice() { [ "$(created)" -ge 2 ]; }
eventually 200 "two backups were scheduled" twice
# The first of them goes; the newest of all stays, and so does the newest verified one.
pruned() {
  local kept made
  kept=$(kubectl -n "$ns" get qb -o name) && made=$(created) && [ "$(grep -c often- <<<"$kept")" -lt "$made" ] && [ -n "$(kubectl -n "$ns" get qbsched often -o jsonpath='{.status.lastPruneTime}')" ]
}
eventually 120 "the retention was applied" pruned
kubectl -n "$ns" patch qbsched often --type=merge -p '{"spec":{"suspend":true}}' >/dev/null
log "last success: $(kubectl -n "$ns" get qbsched often -o jsonpath='{.status.lastSuccess}')"
shows_backups() {
  local newest
  newest=$(kubectl -n "$ns" get qbsched often -o jsonpath='{.status.lastSuccess.name}') && [ -n "$newest" ] && [ "$(status demo backup.lastSuccess.name)" = "$newest" ]
}
eventually 30 "the cluster shows its newest backup" shows_backups
equal "the cluster's verified backup" first "$(status demo backup.lastVerified.name)"
witness_stop demo backup

# A cluster with TLS, on a volume. It names no image: its member and its Jobs run the operator's own, whose tag is no version.
backup_volume ', prefix: quorate'
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: secure}
spec: {replicas: 1, tls: {}, storage: {size: 1Gi$(storage_class shared)}}
EOF
contains "$(quorate_plugin backup secure -n "$ns" --store=volume --as=on-volume --verify --wait --timeout=240s)" 'etcdbackup.quorate.dev/on-volume verified'
is_phase on-volume Verified || die "the backup is $(backup on-volume phase)"
log "the backup of a cluster with TLS is verified"
restored=$(quorate_plugin restore on-volume -n "$ns" --as=again)
equal "what the manifest of a restore is taken for" etcdcluster.quorate.dev/again "$(kubectl apply --dry-run=server -o name -f - <<<"$restored")"
images() { kubectl -n "$ns" get pods -o json -l "$1" | jq -r '[.items[].spec.containers[].image] | unique | join(" ")'; } # images SELECTOR
equal "what the member of secure runs" "$quorate_image" "$(images quorate.dev/cluster=secure,app.kubernetes.io/component=member)"
# Their pods go with their Jobs as soon as the result is known; what the kubelet ran is in its events.
pulled() { kubectl -n "$ns" get events --field-selector reason=Pulled -o json | jq -r --arg pod "$1" '[.items[] | select(.involvedObject.name | startswith($pod)) | .message | capture("image \"(?<it>[^\"]+)\"").it] | unique | join(" ")'; } # pulled BEGINNING
equal "what the Jobs of on-volume ran" "$quorate_image" "$(pulled on-volume-)"
log "member and Jobs run the operator's image, $quorate_image"
refused() { kubectl -n "$ns" patch qb on-volume --type=merge -p '{"spec":{"verify":false}}' 2>&1; }
contains "$(refused || true)" "immutable"
# etcdctl from outside, through a port-forward, with the certificates of the Secret.
outside() { PATH="$PWD/target/interop/bin:$PATH" quorate_plugin etcdctl secure -n "$ns" -- "$@"; }
outside put greeting hello >/dev/null
equal "what etcdctl reads of secure from outside" hello "$(outside get greeting --print-value-only)"
contains "$(quorate_plugin logs secure -n "$ns" --tail=20)" '/member] '
kubectl -n "$ns" delete qb --all --wait=true >/dev/null
eventually 60 "Jobs and keys go with their backups" none jobs,secrets -l quorate.dev/backup-owner-kind=backup
drop_cluster secure
drop_cluster demo
