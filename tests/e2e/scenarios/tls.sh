# shellcheck shell=bash
# soak
# TLS: a cluster is made with it, a plain one is switched on under load, authorities are exchanged, a certificate that is thrown away comes back: no write fails

secret_of() { status "$1" endpoints.clientSecretRef.name; }
secure_etcdctl() { # secure_etcdctl CLUSTER ARGUMENT...: through the slots, with TLS
  etcdctl_with "$(secret_of "$1")" "$(slot_endpoints "$1")" "${@:2}"
}
secure() { # secure CLUSTER: every certificate exists, is loaded by its server, and is not about to change
  [ "$(condition "$1" TLSReady)" = True ] && [ "$(condition "$1" Progressing)" = False ] &&
    [ "$(kubectl -n "$ns" get qec "$1" -o jsonpath='{.status.conditions[?(@.type=="TLSReady")].reason}')" = AsWanted ]
}
fingerprint() { # fingerprint SECRET KEY: fails if it has none
  local value
  value=$(kubectl -n "$ns" get secret "$1" -o jsonpath="{.data.${2//./\\.}}") && [ -n "$value" ] && sha256sum <<<"$value" | cut -d' ' -f1
}
is_another() { local now; now=$(fingerprint "$1" "$2") && [ "$now" != "$3" ]; } # is_another SECRET KEY FINGERPRINT
pods() { kubectl -n "$ns" get pods -l "quorate.dev/cluster=$1,app.kubernetes.io/component=member" -o jsonpath='{range .items[*]}{.metadata.uid}{"\n"}{end}' | sort; }
peer_urls() { secure_etcdctl "$1" member list --write-out=json | jq -r '.members[].peerURLs[]'; }
patch() { kubectl -n "$ns" patch qec "$1" --type=merge -p "{\"spec\":{\"tls\":$2}}" >/dev/null; }

# --- a new cluster
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: sealed}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  tls: {}
END
ready sealed 3 240
eventually 120 "the certificates of sealed are in use" secure sealed
equal "the client URL" "https://sealed-client.$ns.svc:2379" "$(status sealed endpoints.client)"
secure_etcdctl sealed put greeting hello >/dev/null
equal "a key, with TLS" hello "$(secure_etcdctl sealed get greeting --print-value-only)"
refused_without_tls() { # refused_without_tls CLUSTER
  local said
  if said=$(etcdctl_at "http://$1-client:2379" --command-timeout=3s get greeting 2>&1); then die "$1 answers without TLS"; fi
  contains "$said" "Error: " # from etcdctl, and not from the pod
}
refused_without_tls sealed
log "sealed answers clients with a certificate, and no others"

# --- a certificate is deleted: a new one replaces it, and no member is restarted
before=$(pods sealed)
member=$(leader sealed)
old=$(fingerprint "$member-peer-tls" tls.crt)
kubectl -n "$ns" delete secret "$member-peer-tls" >/dev/null
another() { is_another "$member-peer-tls" tls.crt "$old" && secure sealed; }
eventually 240 "$member has another certificate and uses it" another
equal "pods" "$before" "$(pods sealed)"

# --- another CA for peers
old=$(fingerprint sealed-peer-ca ca.crt)
kubectl -n "$ns" annotate qec sealed quorate.dev/rotate-peer-ca=1 >/dev/null
begun() { kubectl -n "$ns" get secret sealed-peer-ca -o jsonpath='{.data.next\.crt}' | grep -q .; }
eventually 60 "another authority for peers is prepared" begun
operator_kill
rotated() { # rotated PORT: the CA is a new one, in use everywhere, and the only one
  is_another "sealed-$1-ca" ca.crt "$old" && secure sealed &&
    [ "$(kubectl -n "$ns" get secret "sealed-$1-ca" -o jsonpath='{.data.ca\.crt}' | base64 -d | grep -c BEGIN)" = 1 ]
}
eventually 900 "sealed has another authority for peers, and trusts no other" rotated peer

# --- another CA for clients, without the usual hour: clients with the present content of the Secrets are served
old=$(fingerprint sealed-client-ca ca.crt)
count=0 began=$SECONDS
kubectl -n "$ns" annotate qec sealed quorate.dev/rotate-client-ca=1-now >/dev/null
until [ $SECONDS -gt $((began + 900)) ] || rotated client; do
  count=$((count + 1))
  secure_etcdctl sealed put "rotated-$count" yes >/dev/null || die "client $count was refused while the authority was exchanged"
done
rotated client || die "sealed has no other authority for clients after 900 s"
log "sealed has another authority for clients, and trusts no other; $count clients were served meanwhile"
equal "pods" "$before" "$(pods sealed)"
equal "a key, after all that" hello "$(secure_etcdctl sealed get greeting --print-value-only)"
drop_cluster sealed

# --- TLS is enabled for a running cluster; its clients follow later
apply_cluster demo 3
ready demo 3
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"updateStrategy":{"minReadySeconds":3}}}' >/dev/null
first=$(members demo)
witness_start demo plain
patch demo '{"plaintext":"Accepted"}'
half_way() { [[ $(status demo updatedReplicas) = [12] ]]; }
eventually 180 "TLS reaches the first member of demo" half_way
operator_kill
changed_over() {
  local urls
  secure demo && is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ] && urls=$(peer_urls demo) && [ -n "$urls" ] && ! grep -q '^http:' <<<"$urls"
}
eventually 600 "demo has TLS, and its members dial each other with it" changed_over
witness_stop demo plain
equal "the members" "$first" "$(members demo)"
secure_etcdctl demo put greeting hello >/dev/null
if kubectl -n "$ns" patch qec demo --type=json -p '[{"op":"remove","path":"/spec/tls"}]' >/dev/null 2>&1; then die "TLS was switched off"; fi
patch demo '{"plaintext":"Refused"}'
closed() { is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ] && [ "$(condition demo Progressing)" = False ]; }
eventually 600 "every member of demo runs without plaintext" closed
refused_without_tls demo
equal "a key, with TLS" hello "$(secure_etcdctl demo get greeting --print-value-only)"
drop_cluster demo
