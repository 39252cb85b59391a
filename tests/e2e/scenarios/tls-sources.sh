# shellcheck shell=bash
# soak
# alone
# TLS with certificates of the user's own: renewed, and their authority exchanged, under load without a restart; one that ends; a Secret that goes missing; other Secrets by a roll: no write fails

cluster=own
. tests/e2e/given-certificates.sh
work=$(mktemp -d)
hosts="DNS:*.own-peers.$ns.svc,DNS:own-peers.$ns.svc,DNS:own-client.$ns.svc"
for slot in 0 1 2; do hosts+=",DNS:own-client-$slot.$ns.svc"; done

authority() { # authority NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=authority $1" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout "$work/$1.key" -out "$work/$1.crt" 2>/dev/null
}
printf '%s\n' '[ca]' default_ca=own '[own]' "database=$work/index" "serial=$work/serial" "new_certs_dir=$work" policy=names unique_subject=no default_md=sha256 \
  '[names]' commonName=supplied >"$work/config"
printf '%s\n' basicConstraints=CA:FALSE keyUsage=digitalSignature extendedKeyUsage=serverAuth,clientAuth "subjectAltName=$hosts" >"$work/extensions"
: >"$work/index"
echo 01 >"$work/serial"
signed() { # signed FILE AUTHORITY TIME: a certificate for every member and both ports, valid until then
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=members" -keyout "$work/$1.key" -out "$work/$1.csr" 2>/dev/null
  openssl ca -batch -notext -config "$work/config" -extfile "$work/extensions" -cert "$work/$2.crt" -keyfile "$work/$2.key" \
    -startdate "$(date -u -d '-1 hour' +%y%m%d%H%M%SZ)" -enddate "$(date -u -d "$3" +%y%m%d%H%M%SZ)" -in "$work/$1.csr" -out "$work/$1.crt" 2>/dev/null ||
    die "openssl did not sign $1"
}
give() { # give SECRET FILE AUTHORITY...: the certificate, and the trusted CAs
  local secret=$1 file=$2 name; shift 2
  for name in "$@"; do cat "$work/$name.crt"; done >"$work/trusted.crt"
  kubectl -n "$ns" create secret generic "$secret" --type=kubernetes.io/tls --from-file=tls.crt="$work/$file.crt" \
    --from-file=tls.key="$work/$file.key" --from-file=ca.crt="$work/trusted.crt" --dry-run=client -o yaml |
    kubectl -n "$ns" apply -f - >/dev/null
}
in_use() { # in_use SECRET FILE: the operator has seen this very certificate, and every server has loaded it
  is_seen "$1" <"$work/$2.crt" && all_loaded
}
cannot_see() { [ "$(condition own Quorate)" != True ]; }

# --- nothing is created before the Secrets exist and match
authority first
authority second
tls_cluster '{source: Secret, certificateSecretRef: {name: theirs}}' '{source: Secret, certificateSecretRef: {name: theirs}}'
eventually 60 "own waits for its Secret" reason_is SecretMissing
signed foreign second "90 days"
give theirs foreign first
eventually 90 "own takes no certificate that nobody vouches for" reason_is NotTrusted
nothing "sets" kubectl -n "$ns" get sts -l quorate.dev/cluster=own -o name
signed one first "90 days"
give theirs one first
ready own 3 300
eventually 120 "the certificate is in use" in_use theirs one
equal "the Secret with authorities" theirs "$(status own endpoints.caSecretRef.name)"
nothing "the Secret for clients" status own endpoints.clientSecretRef.name
if kubectl -n "$ns" patch qec own --type=merge -p '{"spec":{"tls":{"peer":{"source":"Operator","certificateSecretRef":null}}}}' >/dev/null 2>&1; then die "the source was changed"; fi

# --- renewed, and the CA exchanged with an overlap: no member is restarted, and no write fails
before=$(pods)
witness_start own own
signed two first "91 days"
give theirs two first second
eventually 300 "it was renewed, and both authorities are trusted" in_use theirs two
signed three second "92 days"
give theirs three first second
operator_kill # its successor has seen no certificate of the first CA
eventually 300 "the second authority has signed" in_use theirs three
signed four second "93 days"
give theirs four second
eventually 300 "the first authority is forgotten" in_use theirs four

# --- one that expires: reported before and after, the operator still reaches every member, and its successor heals
# it
signed short second "4 minutes"
give theirs short second
eventually 90 "the operator warns of its end" reason_is CertificateExpiring
eventually 300 "it has ended" reason_is CertificateExpired
never 20 "the operator is locked out" cannot_see
equal "voters that are ready" 3 "$(status own readyReplicas)"
signed six second "96 days"
give theirs six second
eventually 300 "its successor is in use" in_use theirs six
equal "pods and their restarts" "$before" "$(pods)"

# --- the Secret is deleted: reported, and every member continues
kubectl -n "$ns" delete secret theirs >/dev/null
eventually 90 "the missing Secret is reported" reason_is SecretMissing
equal "voters that are ready" 3 "$(status own readyReplicas)"
give theirs six second
eventually 120 "it is back" in_use theirs six
equal "pods and their restarts" "$before" "$(pods)"

# --- another Secret: one that the members would refuse is not used, one that overlaps is rolled out
authority third
signed stranger third "94 days"
give others stranger third
kubectl -n "$ns" patch qec own --type=merge -p '{"spec":{"tls":{"peer":{"certificateSecretRef":{"name":"others"}}}}}' >/dev/null
eventually 90 "an authority that nobody trusts is not used" reason_is TrustDoesNotOverlap
equal "pods and their restarts" "$before" "$(pods)"
signed five second "95 days"
give others five second third
rolled() { in_use others five && is_ready own 3 && [ "$(status own updatedReplicas)" = 3 ]; }
eventually 600 "every member has the other Secret" rolled
witness_stop own own
drop_cluster own
kubectl -n "$ns" get secret theirs others >/dev/null || die "the operator deleted Secrets of the user"
rm -rf "$work"
