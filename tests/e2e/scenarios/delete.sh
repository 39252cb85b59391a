# shellcheck shell=bash
# soak
# a protected cluster cannot be deleted by anyone; one with backupBeforeDeletion serves on until its last backup is stored, stays while that fails, and goes without it where the user says so
is_gone() { none qec demo; }
last() { kubectl -n "$ns" get etcdbackups -o name | sed -n 's|^etcdbackup.quorate.dev/\(demo-last-.*\)|\1|p'; }
is_held() { kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.finalizers}' | grep -q backup-before-deletion; }
patch() { kubectl -n "$ns" patch qec demo --type=merge -p "$1" >/dev/null; }
# refused COMMAND...: by the policy, with what to do
refused() {
  local answer
  if answer=$("$@" 2>&1); then die "$* was not refused"; fi
  contains "$answer" "spec.deletionProtection of EtcdCluster demo is true" "set the field to false first"
}

backup_volume
apply_cluster demo 3
ready demo 3
etcdctl_pod demo put kept value >/dev/null

# Protected.
patch '{"spec":{"deletionProtection":true}}'
refused kubectl -n "$ns" delete qec demo --wait=false
refused kubectl -n "$ns" delete qec --all --wait=false
nothing "its deletion" kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.deletionTimestamp}'
not_protected() {
  local reasons
  reasons=$(status demo 'notes[*].reason') || die "the status of demo cannot be read"
  grep -q Protect <<<"$reasons"
}
never 10 "the status says that nothing protects it" not_protected

# Saved first: a store that is missing holds the deletion, and the cluster serves and heals meanwhile.
patch '{"spec":{"deletionProtection":false,"backupBeforeDeletion":{"storeRef":{"name":"missing"}}}}'
eventually 60 "the finalizer is there" is_held
kubectl -n "$ns" delete qec demo --wait=false >/dev/null
says_why() { status demo summary | grep -q demo-last-; }
eventually 60 "the status says what the deletion waits for" says_why
victim=$(follower demo)
kubectl -n "$ns" delete pvc "$(status demo "members[?(@.name==\"$victim\")].volumeClaimName")" --wait=false >/dev/null
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
healed() { has_members demo 3 && is_no_member demo "$victim" && [ "$(status demo readyReplicas)" = 3 ]; }
eventually 240 "$victim is replaced while the deletion waits" healed
equal "the value" value "$(etcdctl_pod demo get kept --print-value-only)"

# Another store, with the operator killed: the backup is stored, and the cluster goes.
patch '{"spec":{"backupBeforeDeletion":{"storeRef":{"name":"volume"}}}}'
operator_kill
eventually 300 "demo is saved and gone" is_gone
stored() { [ "$(kubectl -n "$ns" get etcdbackup "$1" -o jsonpath='{.status.phase}')" = Uploaded ]; }
saved=
for name in $(last); do if stored "$name"; then saved=$name; fi; done
[ -n "$saved" ] || die "no last backup is stored: $(kubectl -n "$ns" get etcdbackups)"
log "the last backup is EtcdBackup $saved"
eventually 90 "nothing of demo is left but its PVCs" gone demo
kubectl -n "$ns" delete pvc -l quorate.dev/cluster=demo --wait=false >/dev/null

# It comes back from its last backup, and goes without one when the user says so.
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  bootstrap: {restore: {backupRef: {name: $saved}}}
  backupBeforeDeletion: {storeRef: {name: missing}}
EOF
ready demo 1 300
equal "the value, restored" value "$(etcdctl_pod demo get kept --print-value-only)"
eventually 60 "the finalizer is there" is_held
kubectl -n "$ns" delete qec demo --wait=false >/dev/null
never 10 "demo is gone without its backup" is_gone
kubectl -n "$ns" get qec demo >/dev/null
kubectl -n "$ns" annotate qec demo quorate.dev/delete-without-backup=true >/dev/null
eventually 60 "demo is gone" is_gone
warned() { kubectl -n "$ns" get events -o jsonpath='{.items[*].reason}' | grep -q DeletedWithoutBackup; }
eventually 30 "an event says so" warned
eventually 90 "nothing of demo is left but its PVCs" gone demo
kubectl -n "$ns" delete pvc -l quorate.dev/cluster=demo --wait=false >/dev/null
