# shellcheck shell=bash
# soak
# own cluster
# the pages for users about what is lost, stands by or moves, by their own commands as in pages: a lost quorum, other volumes, a standby that takes over, a cluster that takes the place of it, a rotated CA
# shellcheck source=tests/e2e/blocks.sh
source tests/e2e/blocks.sh
stop() {
  blocks_end
  [ -z "${zones_are_set:-}" ] || kubectl label nodes --all topology.kubernetes.io/zone- >/dev/null
}
trap stop EXIT

# --- a quorum that is lost
kubectl -n "$ns" apply -f deploy/samples/cluster.yaml >/dev/null
ready demo 3
block $docs/lost-quorum.md 'kubectl quorate status demo' 'kubectl quorate recover demo --plan' 'if kubectl quorate recover demo --plan; then exit 1; fi'
said 'leads demo with a quorum'
survivor=$(leader demo)
names=$(members demo | grep -vx "$survivor")
mapfile -t lost <<<"$names"
claims=()
for member in "${lost[@]}"; do claims+=("$(status demo "members[?(@.name==\"$member\")].volumeClaimName")"); done
kubectl -n "$ns" delete pvc "${claims[@]}" --wait=false >/dev/null
kubectl -n "$ns" delete pod "${lost[@]/%/-0}" --wait=false >/dev/null
is_stalled() { [ "$(kubectl -n "$ns" get qec "$1" -o jsonpath='{.status.conditions[?(@.type=="Stalled")].reason}')" = "$2" ]; }
eventually 120 "the operator reports that the data are lost" is_stalled demo DataLost
shows_disk() { [ -n "$(status demo "members[?(@.name==\"$survivor\")].disk.diskUUID")" ]; }
eventually 60 "the status shows what $survivor holds" shows_disk
block $docs/lost-quorum.md 'kubectl quorate recover demo --plan -o yaml'
contains "$(kubectl -n "$ns" apply -f "$work/recovery.yaml" 2>&1 || true)" "acceptLoss has to be true"
sed -i 's/acceptLoss: false/acceptLoss: true/' "$work/recovery.yaml"
block $docs/lost-quorum.md 'kubectl apply -f recovery.yaml'
said demo-incarnation-2 "$survivor"
is_recovered() { [ "$(kubectl -n "$ns" get etcdrecovery demo-incarnation-2 -o jsonpath='{.status.phase}')" = Recovered ]; }
eventually 300 "demo is recovered" is_recovered
ready demo 3 300

# --- other volumes on other nodes
zones_are_set=yes
kubectl label nodes --all topology.kubernetes.io/zone=b >/dev/null
block $docs/sizing.md 'kubectl patch qec demo' '"fast"' '"sized"' 4Gi 1Gi
volume_of() { kubectl -n "$ns" get pvc "$1" -o jsonpath='{.spec.storageClassName} {.spec.resources.requests.storage}'; }
have_others() {
  local claim
  whole demo 3 || return 1
  for claim in $(status demo 'members[*].volumeClaimName'); do [ "$(volume_of "$claim")" = "sized 1Gi" ] || return 1; done
}
eventually 300 "every member has a volume of the other class and size" have_others
in_zone() { kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=member -o json | jq -e '[.items[].spec.nodeSelector["topology.kubernetes.io/zone"]] | length == 3 and all(. == "b")' >/dev/null; }
eventually 180 "every member asks for the zone" in_zone
ready demo 3

# --- a standby that takes over
follow() { status "$1" "follow.$2"; }
is_in() { [ "$(follow "$1" phase)" = "$2" ]; }
says() { follow "$1" message | grep -q "$2"; }
ctl() { PATH=$work/bin:$top/target/interop/bin:$PATH KUBECONFIG=$work/kubeconfig kubectl quorate etcdctl "$@"; }
# The certificate for clients, as files in the folder where the commands run: the user has it from the other place.
certificate_of() {
  local key
  for key in ca.crt tls.crt tls.key; do
    kubectl -n "$ns" get secret "$1-client" -o json | jq -r --arg key $key '.data[$key]' | base64 -d >"$work/$key"
  done
}
# Under the alarms that close a cluster its pods are not ready, and only their own names lead to them.
own_names() { members "$1" | sed "s|.*|      - https://&-0.$1-peers.$ns.svc:2379|"; }
with_endpoints() { # with_endpoints SAMPLE CLUSTER: the sample that follows this cluster
  own_names "$2" >"$work/endpoints"
  sed -e '/- https:/d' -e "/endpoints:/r $work/endpoints" "$1"
}
ctl demo -- put before value >/dev/null
ctl demo -- user add root:secret >/dev/null
ctl demo -- user grant-role root root >/dev/null
ctl demo -- auth enable >/dev/null
with_endpoints deploy/samples/standby.yaml demo >"$work/standby.yaml"
certificate_of demo
block $docs/standby.md 'kubectl create secret' SECRET secret deploy/samples/standby.yaml standby.yaml
eventually 180 "the standby follows" is_in standby Following
block $docs/standby.md 'kubectl get etcdcluster standby'
revision=$(follow standby revision)
contains "$(cat "$work/output")" "$revision"
block $docs/standby.md "kubectl patch etcdcluster standby --type=merge -p '{\"spec\":{\"replicaOf\":{\"promote\":{\"mode\":\"Failover" 48211 "$revision"
eventually 90 "the failover is refused" says standby "the source is not lost"
kubectl -n "$ns" patch etcdcluster standby --type=merge -p '{"spec":{"replicaOf":{"promote":null}}}' >/dev/null
block $docs/standby.md "kubectl patch etcdcluster standby --type=merge -p '{\"spec\":{\"replicaOf\":{\"promote\":{\"mode\":\"Switchover"
eventually 180 "the standby has taken over" is_in standby CutOver
ready standby 3
contains "$(ctl standby -- --user=root:secret get before)" value

# --- a cluster that takes the place of another one
with_endpoints deploy/samples/follow.yaml standby | sed 's|^      cutover: Manual|      user: {secretRef: {name: etcd-root}}\n&|' >"$work/follow.yaml"
certificate_of standby
block $docs/move-from-etcd.md 'kubectl create secret' SECRET secret
block $docs/move-from-etcd.md 'kubectl apply -f' deploy/samples/follow.yaml follow.yaml
eventually 180 "the new cluster follows" is_in moved Following
knows_its_lag() { [ -n "$(follow moved lagRevisions)" ]; }
eventually 90 "it knows how far it is behind" knows_its_lag
block $docs/move-from-etcd.md 'kubectl get etcdcluster moved' 'kubectl get etcdcluster moved --watch' 'endless kubectl get etcdcluster moved --watch'
said Following lagRevisions
voters() { [ "$(status moved readyReplicas)" = 3 ]; }
eventually 180 "moved has 3 voters" voters
block $docs/move-from-etcd.md 'kubectl patch etcdcluster moved'
eventually 180 "the new cluster has taken the place" is_in moved CutOver
ready moved 3
contains "$(ctl moved -- --user=root:secret get before)" value
# Under the alarm no member is ready, and the plugin asks the one that is named.
member=$(members standby | head -1)
contains "$(ctl standby --member="$member" -- --user=root:secret alarm list)" CORRUPT
block $docs/move-from-etcd.md 'etcdctl --endpoints' 'etcdctl --endpoints=https://etcd-0.etcd.old.svc:2379' "kubectl quorate etcdctl standby --member=$member -- --user=root:secret"
nothing "what is left of its alarms" ctl standby --member="$member" -- --user=root:secret alarm list

# --- a CA that is rotated
block $docs/tls.md 'kubectl annotate qec demo' 'qec demo' 'qec moved'
is_rotating() { kubectl -n "$ns" get qec moved -o jsonpath='{.status.conditions[?(@.type=="TLSReady")].reason}' | grep -qE '^(RotatingAuthority|Renewing)$'; }
eventually 60 "the rotation has begun" is_rotating
for name in moved standby demo; do drop_cluster $name; done
