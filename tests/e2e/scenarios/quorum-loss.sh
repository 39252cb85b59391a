# shellcheck shell=bash
# a lost quorum: two of three volumes are gone for good and the cluster goes on from the third, then all three are gone and it goes on from a backup; under its name, with every key, user and lease, and no healthy cluster is recovered
phase() { kubectl -n "$ns" get etcdrecovery "$1" -o jsonpath='{.status.phase}'; }
is_phase() { [ "$(phase "$1")" = "$2" ]; }
stalled() { kubectl -n "$ns" get qec demo -o jsonpath='{.status.conditions[?(@.type=="Stalled")].reason}'; }
is_lost() { [ "$(stalled)" = DataLost ]; }
disk() { status demo "members[?(@.name==\"$1\")].disk.diskUUID"; }
shows_disk() { [ -n "$(disk "$1")" ]; }
claim() { status demo "members[?(@.name==\"$1\")].volumeClaimName"; }
revision() { etcdctl_pod demo get leased -w json | jq -e .header.revision; }
service() { kubectl -n "$ns" get service demo-client -o jsonpath='{.metadata.uid}'; }
is_leftover() { status demo 'leftovers[*].name' | tr ' ' '\n' | grep -qx "$1"; }
# lose MEMBER...: their volumes and pods at once, so that none is replaced before the last one is gone
lose() {
  local member claims=() pods=()
  for member in "$@"; do
    claims+=("$(claim "$member")")
    pods+=("$member-0")
  done
  kubectl -n "$ns" delete pvc "${claims[@]}" --wait=false >/dev/null
  kubectl -n "$ns" delete pod "${pods[@]}" --wait=false >/dev/null
  log "the volumes of $* were deleted"
  eventually 120 "the operator reports that the data are lost" is_lost
}
# recover [FLAG...]: what the plugin prints; its result is the plugin's
recover() { PATH="$PWD/target/image/plugin:$PATH" kubectl quorate recover demo -n "$ns" "$@" 2>&1; }
# accepted FILE: as the reviewer applies it
accepted() { sed 's/acceptLoss: false/acceptLoss: true/' "$1" | kubectl -n "$ns" apply -f - >/dev/null; }
# same_data CONTENT REVISION: what was saved is there, above every revision that a client has seen
same_data() {
  local now after
  now=$(content demo)
  equal "every key and value" "$1" "$now"
  after=$(revision)
  [ "$after" -ge $(($2 + 1000000000)) ] || die "revision $2 became $after"
  contains "$(etcdctl_pod demo user get ann)" reader
  contains "$(etcdctl_pod demo lease timetolive "$lease" --keys)" leased "granted with TTL(3600s)"
  contains "$(etcdctl_pod demo get leased --rev="$2" 2>&1 || true)" "has been compacted"
}
# recovered NAME INCARNATION FORMER...: the cluster serves without them
recovered() {
  local name=$1 incarnation=$2 member; shift 2
  eventually 300 "$name is recovered" is_phase "$name" Recovered
  ready demo 3 300
  equal "its incarnation" "$incarnation" "$(status demo incarnation)"
  for member in "$@"; do
    is_no_member demo "$member" || die "$member is a member again"
  done
  eventually 60 "nothing of $* runs" none sts "$@"
  equal "the client Service" "$clients" "$(service)"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

backup_volume
apply_cluster demo 3
ready demo 3
quorate_plugin status demo -n "$ns" >/dev/null
clients=$(service)

# --- data: writes, a lease with a key, a user with a right
run_pod witness-lost "$quorate_image" witness --endpoints=http://demo-client:2379 --prefix=witness-lost/ --seconds=2
pod_ends witness-lost >/dev/null || die "the writes failed"
lease=$(etcdctl_pod demo lease grant 3600 | grep -oE 'lease [0-9a-f]+' | cut -d' ' -f2)
etcdctl_pod demo put leased value --lease="$lease" >/dev/null
add_reader demo leased

# --- a cluster that lives is not recovered
if said=$(recover --plan); then die "a recovery of a living cluster was planned: $said"; fi
contains "$said" "leads demo with a quorum"

# --- two of three volumes are gone: who led has everything
saved=$(content demo)
before=$(revision)
survivor=$(leader demo)
names=$(members demo | grep -vx "$survivor")
mapfile -t victims <<<"$names"
old=$(claim "$survivor")
lose "${victims[@]}"
eventually 60 "the status shows what $survivor holds" shows_disk "$survivor"
said=$(recover --plan) || die "no recovery was planned: $said"
sed 's/^/          /' <<<"$said"
contains "$said" "$survivor: its log is the longest" "gone for good"
recover --plan -o yaml >"$work/first.yaml" || die "no recovery was planned: $(cat "$work/first.yaml")"
contains "$(kubectl -n "$ns" apply -f "$work/first.yaml" 2>&1 || true)" "acceptLoss has to be true"
accepted "$work/first.yaml"
first=demo-incarnation-2
begun() { ! is_phase "$first" "" && ! is_phase "$first" Pending; }
eventually 60 "$first has begun" begun
operator_kill
recovered "$first" 2 "$survivor" "${victims[@]}"
same_data "$saved" "$before"
recover | sed 's/^/          /'
eventually 60 "the volume of $survivor is left over" is_leftover "$old"
kubectl -n "$ns" get pvc "$old" >/dev/null || die "the volume of $survivor is gone"

# --- and once more on the cluster that is well again
sed -e 's/name: demo-incarnation-2/name: once-more/' -e 's/incarnation: 1$/incarnation: 2/' "$work/first.yaml" >"$work/again.yaml"
accepted "$work/again.yaml"
eventually 60 "a recovery of a healthy cluster is refused" is_phase once-more Refused
contains "$(kubectl -n "$ns" get etcdrecovery once-more -o jsonpath='{.status.message}')" "a leader with a quorum answers"
is_ready demo 3 || die "the cluster is not ready any more"
kubectl -n "$ns" delete etcdrecovery once-more >/dev/null

# --- all three volumes are gone: in place from a backup
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdBackup
metadata: {name: saved}
spec: {clusterRef: {name: demo}, storeRef: {name: volume}}
EOF
is_backed_up() { [ "$(status demo backup.lastSuccess.name)" = saved ]; }
eventually 240 "the cluster shows its backup" is_backed_up
saved=$(content demo)
before=$(revision)
etcdctl_pod demo put later value >/dev/null
names=$(members demo)
mapfile -t victims <<<"$names"
lose "${victims[@]}"
said=$(recover --plan) || die "no recovery was planned: $said"
sed 's/^/          /' <<<"$said"
contains "$said" "EtcdBackup saved" "backupRef:"
recover --plan -o yaml >"$work/second.yaml" || die "no recovery was planned: $(cat "$work/second.yaml")"
accepted "$work/second.yaml"
recovered demo-incarnation-3 3 "${victims[@]}"
same_data "$saved" "$before"
nothing "what was written after the backup" etcdctl_pod demo get later
eventually 60 "the Jobs and their keys are gone" none jobs,secrets -l quorate.dev/backup-owner-kind=cluster
kubectl -n "$ns" get etcdrecoveries
kubectl -n "$ns" delete etcdrecoveries --all >/dev/null
drop_cluster demo
