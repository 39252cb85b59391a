# shellcheck shell=bash
# soak
# a standby of a cluster elsewhere, with TLS and users: refused as the successor of one that lives, promoted once that one is lost, with a raised revision; then the lost one comes back as its standby, and a switchover brings the place back without loss
follow() { status "$1" "follow.$2"; }
is_in() { [ "$(follow "$1" phase)" = "$2" ]; }
# Every cluster here has TLS, and the users of the first one: the root user asks.
ask() { # ask NAME ARGUMENT...
  etcdctl_with "$(status "$1" endpoints.clientSecretRef.name)" "$(status "$1" endpoints.client)" ${user:+--user="$user"} "${@:2}"
}
has() { # has NAME KEY VALUE
  [ "$(ask "$1" get "$2" --print-value-only 2>/dev/null)" = "$3" ]
}
says() { follow "$1" message | grep -q "$2"; }
# The certificate for clients of a source is the user's in the other place: its own Secret is gone with the source.
source_secret() {
  kubectl -n "$ns" get secret "$(status "$1" endpoints.clientSecretRef.name)" -o json |
    jq --arg name "source-$1" '{apiVersion, kind, type, data, metadata: {name: $name}}' | kubectl -n "$ns" apply -f - >/dev/null
}
cluster() { # cluster NAME [SOURCE]: of one member, which stands by for that one
  if [ -n "${2:-}" ]; then source_secret "$2"; fi
  kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $1}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  tls: {}
  ${2:+replicaOf: {endpoints: ["https://$2-client.$ns.svc:2379"], tls: {secretRef: {name: source-$2\}\}, user: {secretRef: {name: root\}\}\}}
YAML
}
promote() { kubectl -n "$ns" patch qec "$1" --type=merge -p "{\"spec\":{\"replicaOf\":{\"promote\":$2}}}"; }

user=
kubectl -n "$ns" create secret generic root --type=kubernetes.io/basic-auth --from-literal=username=root --from-literal=password=secret >/dev/null
cluster here
ready here 1 240
ask here put before value >/dev/null
ask here user add root:secret >/dev/null
ask here role add root >/dev/null
ask here user grant-role root root >/dev/null
ask here auth enable >/dev/null
user=root:secret
cluster there here
eventually 120 "the standby follows" is_in there Following
ask here put meanwhile value >/dev/null
eventually 60 "what is written comes over" has there meanwhile value
if refused=$(ask there put own value 2>&1); then die "a standby took a write"; fi
contains "$refused" "follows another one"

# --- what is not reviewed is refused, and so is a second cluster beside one that lives
if refused=$(promote there '{"mode":"Failover"}' 2>&1); then die "a failover without acceptLoss was taken"; fi
contains "$refused" acceptLoss
revision=$(follow there revision)
promote there "{\"mode\":\"Failover\",\"acceptLoss\":true,\"revision\":$revision}" >/dev/null
eventually 90 "the failover is refused" says there "the source is not lost"
ask here put still value >/dev/null
promote there null >/dev/null

# --- the source is lost
eventually 90 "it goes on following" has there still value
drop_cluster here
revision=$(ask there endpoint status --write-out=json | jq '.[0].Status.header.revision')
promote there "{\"mode\":\"Failover\",\"acceptLoss\":true,\"revision\":$revision}" >/dev/null
began=$SECONDS
eventually 150 "the standby is promoted" is_in there CutOver
log "promoted $((SECONDS - began)) s after it was asked for"
ready there 1
ask there put after value >/dev/null
for key in before meanwhile still; do has there $key value || die "$key is lost"; done
raised=$(ask there endpoint status --write-out=json | jq '.[0].Status.header.revision')
[ "$raised" -gt $((revision + 1000000000)) ] || die "the revision $raised may have been seen at the source"

# --- the place is brought back
cluster here there
eventually 120 "the new standby follows" is_in here Following
eventually 60 "it has what is there" has here after value
promote here '{"mode":"Switchover"}' >/dev/null
eventually 120 "the place is back" is_in here CutOver
log "$(follow here writeGapMilliseconds) ms without writes"
ask here put back value >/dev/null
# Under the alarm it is not ready, and its Service leads nowhere: it is asked by the address of its pod.
address=$(kubectl -n "$ns" get pod -l quorate.dev/cluster=there,app.kubernetes.io/component=member -o jsonpath='{.items[0].status.podIP}')
if refused=$(etcdctl_with source-there "https://$address:2379" --insecure-skip-tls-verify --user="$user" put late value 2>&1); then
  die "the former cluster still takes writes"
fi
contains "$refused" "corrupt cluster"
ready here 1
drop_cluster here
drop_cluster there
