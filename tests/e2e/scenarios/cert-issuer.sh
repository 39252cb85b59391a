# shellcheck shell=bash
# soak
# own cluster
# certificates that the operator asks cert-manager for (source CertManager): waited for from before cert-manager is installed, renewed, with another name, asked for again, under load without a restart: no write fails

cluster=asked
. tests/e2e/cert-manager.sh
kinds="asked-client-certificate asked-peer-certificate"

# --- the resource first, in a Kubernetes without cert-manager
tls_cluster '{source: CertManager, issuerRef: {name: first}}' '{source: CertManager, issuerRef: {name: first}}'
eventually 60 "the missing cert-manager is reported" reason_is CertManagerMissing
cert_manager_start
for name in $kinds; do eventually 60 "$name is asked for" kubectl -n "$ns" get certificate "$name"; done
eventually 60 "the issuer is waited for" reason_is CertificateNotIssued
equal "Stalled while it waits" False "$(condition asked Stalled)"
nothing "members before there are certificates" kubectl -n "$ns" get statefulset -o name

# --- an issuer that signs, and the cluster is created
issuer first
application first
for name in $kinds application; do eventually 90 "cert-manager issued $name" is_true certificate "$name" Ready; done
ready asked 3 300
# shellcheck disable=SC2086
eventually 180 "the certificates of cert-manager are in use" in_use $kinds
secure_etcdctl application put greeting hello >/dev/null
equal "a key, with a certificate of the same issuer" hello "$(secure_etcdctl application get greeting --print-value-only)"

# --- renewed on request
before=$(pods)
witness_start asked asked
for name in $kinds; do
  now=$(revision "$name")
  eventually 20 "a renewal of $name is asked for" ask "$name"
  eventually 60 "$name was renewed" issued_since "$name" "$now"
done
operator_kill # its successor has not seen the earlier ones
# shellcheck disable=SC2086
eventually 300 "the renewed certificates are in use" in_use $kinds

# --- another name, and a Certificate that is deleted
now=$(revision asked-client-certificate)
kubectl -n "$ns" patch qec asked --type=merge -p '{"spec":{"tls":{"client":{"extraSANs":["etcd.example.com","10.1.2.3"]}}}}' >/dev/null
eventually 90 "it was issued with another name" issued_since asked-client-certificate "$now"
shown asked-client-certificate | openssl x509 -noout -ext subjectAltName >"$work/names"
grep -q 'DNS:etcd.example.com' "$work/names" && grep -q 'IP Address:10.1.2.3' "$work/names" || die "the names are not in the certificate: $(cat "$work/names")"
kubectl -n "$ns" delete certificate asked-peer-certificate >/dev/null
eventually 90 "the deleted one is asked for again" is_true certificate asked-peer-certificate Ready
# shellcheck disable=SC2086
eventually 300 "the new certificates are in use" in_use $kinds
equal "pods and their restarts" "$before" "$(pods)"

# --- they cover new members
kubectl -n "$ns" patch qec asked --type=merge -p '{"spec":{"replicas":5}}' >/dev/null
ready asked 5 300
equal "a key, after all that" hello "$(secure_etcdctl application get greeting --print-value-only)"
witness_stop asked asked
kill -0 "$manager" || die "cert-manager ended"
drop_cluster asked
eventually 60 "the Certificates went with it" none certificate asked-client-certificate asked-peer-certificate
kubectl -n "$ns" get secret asked-client-certificate asked-peer-certificate >/dev/null || die "the operator deleted Secrets of cert-manager"
definitions_do delete --wait=true
