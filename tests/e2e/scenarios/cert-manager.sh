# shellcheck shell=bash
# soak
# own cluster
# certificates from cert-manager's own controllers (source Secret): made, renewed when they are due and when asked, and by another issuer, under load without a restart: no write fails

cluster=own
. tests/e2e/cert-manager.sh
trust() { # trust AUTHORITY...: the CAs that peers trust
  local name
  for name in "$@"; do shown "$name"; done >"$work/ca.crt"
  kubectl -n "$ns" create secret generic own-trust --from-file=ca.crt="$work/ca.crt" --dry-run=client -o yaml | kubectl -n "$ns" apply -f - >/dev/null
}
cert_manager_start

# --- the resource first: it waits for what cert-manager will create
tls_cluster '{source: Secret, certificateSecretRef: {name: own-client-tls}}' \
  '{source: Secret, certificateSecretRef: {name: own-peer-tls}, caSecretRef: {name: own-trust}}'
eventually 60 "own waits for its Secrets" reason_is SecretMissing

# --- created by cert-manager, with its default kind of key (client), and with another kind (peer)
issuer first
trust first
# the shortest lifetime that cert-manager accepts, renewed after four minutes of it
kubectl -n "$ns" apply -f - >/dev/null <<END_OF_CERTIFICATES
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: own-client}
spec:
  secretName: own-client-tls
  issuerRef: {name: first}
  duration: 1h
  renewBefore: 56m
  usages: [digital signature, key encipherment, server auth]
  dnsNames: ["*.$ns.svc", "*.own-peers.$ns.svc"]
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: own-peer}
spec:
  secretName: own-peer-tls
  issuerRef: {name: first}
  duration: 1h
  renewBefore: 56m
  usages: [digital signature, server auth, client auth]
  privateKey: {algorithm: ECDSA, size: 256}
  dnsNames: ["own-peers.$ns.svc", "*.own-peers.$ns.svc"]
END_OF_CERTIFICATES
application first
for name in own-client own-peer application; do eventually 60 "cert-manager issued $name" is_true certificate $name Ready; done
ready own 3 300
eventually 180 "the certificates of cert-manager are in use" in_use own-client-tls own-peer-tls
equal "the Secret with authorities" own-client-tls "$(status own endpoints.caSecretRef.name)"
secure_etcdctl application put greeting hello >/dev/null
equal "a key, with a certificate of the same issuer" hello "$(secure_etcdctl application get greeting --print-value-only)"

# --- renewed by cert-manager itself, when they are due
before=$(pods)
client=$(revision own-client) peer=$(revision own-peer)
witness_start own own
eventually 420 "cert-manager renewed the clients' port" issued_since own-client "$client"
eventually 420 "cert-manager renewed the peers' port" issued_since own-peer "$peer"
operator_kill # its successor has seen none of the earlier ones
eventually 300 "the renewed certificates are in use" in_use own-client-tls own-peer-tls
equal "pods and their restarts" "$before" "$(pods)"

# --- from now on they have a long lifetime, which makes it a new certificate; both CAs are trusted here
issuer second
trust first second
client=$(revision own-client) peer=$(revision own-peer)
for name in own-client own-peer; do
  kubectl -n "$ns" patch certificate $name --type=merge -p '{"spec":{"duration":"2160h","renewBefore":"720h"}}' >/dev/null
done
eventually 60 "they live for longer" issued_since own-client "$client"
eventually 60 "peers as well" issued_since own-peer "$peer"
eventually 300 "both authorities are trusted by peers" in_use own-client-tls own-peer-tls

# --- another issuer for peers, then the first CA is removed, with a renewal on request
peer=$(revision own-peer)
kubectl -n "$ns" patch certificate own-peer --type=merge -p '{"spec":{"issuerRef":{"name":"second"}}}' >/dev/null
eventually 60 "the second issuer issued" issued_since own-peer "$peer"
shown second >"$work/second.crt"
shown own-peer-tls | openssl verify -CAfile "$work/second.crt" >/dev/null || die "the second authority did not sign what peers show"
eventually 300 "the second authority has signed" in_use own-peer-tls
peer=$(revision own-peer)
trust second
eventually 20 "a renewal is asked for" ask own-peer
eventually 60 "cert-manager renewed at once" issued_since own-peer "$peer"
eventually 300 "the first authority is forgotten" in_use own-peer-tls
equal "voters that are ready" 3 "$(status own readyReplicas)"
equal "a key, after all that" hello "$(secure_etcdctl application get greeting --print-value-only)"
witness_stop own own
equal "pods and their restarts" "$before" "$(pods)"
kill -0 "$manager" || die "cert-manager ended"
drop_cluster own
kubectl -n "$ns" get secret own-client-tls own-peer-tls own-trust >/dev/null || die "the operator deleted Secrets of the user"
definitions_do delete --wait=true
