# shellcheck shell=bash
# Shared by the scenarios with cert-manager: its controllers as a process of this machine, and checks of the
# certificates of the cluster $cluster. Sourced after the scenario has set $cluster.
. tests/e2e/given-certificates.sh

# --- cert-manager: its CRDs from its module, its controllers as a process of this machine
tests/kubernetes/build.sh cert-manager
definitions=$(cd tests/kubernetes/cert-manager && go mod download github.com/cert-manager/cert-manager &&
  go list -m -f '{{.Dir}}/deploy/crds' github.com/cert-manager/cert-manager)
definitions_do() { # definitions_do VERB FLAG...: with its own CRDs, not those of ACME
  local file names=()
  for file in "$definitions"/cert-manager.io_*.yaml; do names+=(-f "$file"); done
  kubectl "$@" "${names[@]}" >/dev/null
}
work=$(mktemp -d)
manager= manager_pid=$QUORATE_E2E_DIR/pids/cert-manager manager_log=$QUORATE_E2E_DIR/log/cert-manager.log
leave() {
  local code=$?
  if [ -n "$manager" ]; then
    kill "$manager" 2>/dev/null || true
    wait "$manager" 2>/dev/null || true
    rm -f "$manager_pid"
  fi
  if [ $code != 0 ]; then
    { echo "--- cert-manager"; tail -60 "$manager_log"; kubectl -n "$ns" get certificates,certificaterequests,issuers -o wide; } >&2 2>&1 || true
  fi
  rm -rf "$work"
}
trap leave EXIT
cert_manager_start() {
  definitions_do apply --server-side
  definitions_do wait --for=condition=Established --timeout=60s
  cert-manager "$KUBECONFIG" >>"$manager_log" 2>&1 </dev/null &
  manager=$!
  echo "$manager" >"$manager_pid" # so that it is ended together with the cluster
}

# --- checks for scenarios
issuer() { # issuer NAME: a self-signed CA, and an issuer that uses it
  kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: themselves}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: $1}
spec:
  secretName: $1
  isCA: true
  commonName: authority $1
  duration: 87600h
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {name: themselves}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: $1}
spec:
  ca: {secretName: $1}
EOF
  eventually 60 "issuer $1 issues" is_true issuer "$1" Ready
}
application() { # application ISSUER: a client certificate
  kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: application}
spec:
  secretName: application
  issuerRef: {name: $1}
  commonName: application
  usages: [digital signature, client auth]
EOF
}
is_true() { [ "$(kubectl -n "$ns" get "$1" "$2" -o jsonpath="{.status.conditions[?(@.type==\"$3\")].status}")" = True ]; } # is_true KIND NAME CONDITION
revision() { kubectl -n "$ns" get certificate "$1" -o jsonpath='{.status.revision}'; }
shown() { kubectl -n "$ns" get secret "$1" -o jsonpath='{.data.tls\.crt}' | base64 -d; }
issued_since() { # issued_since CERTIFICATE REVISION: a newer one is in the Secret
  [ "$(revision "$1")" -gt "$2" ] && is_true certificate "$1" Ready && ! is_true certificate "$1" Issuing
}
ask() { # ask CERTIFICATE: requests its renewal, as `cmctl renew` does
  kubectl -n "$ns" get certificate "$1" -o json | jq --arg now "$(date -u +%FT%TZ)" \
    '.status.conditions = [.status.conditions[] | select(.type != "Issuing")] + [{type: "Issuing", status: "True", reason: "ManuallyTriggered", message: "asked by hand", lastTransitionTime: $now}]' |
    kubectl replace --subresource=status -f - >/dev/null
}
in_use() { # in_use SECRET...: the operator has seen the content of each, and every server has loaded it
  local secret
  for secret in "$@"; do shown "$secret" | is_seen "$secret" || return 1; done
  all_loaded
}
secure_etcdctl() { # secure_etcdctl SECRET ARGUMENT...: as any client with a certificate of this Secret
  etcdctl_with "$1" "$(slot_endpoints "$cluster")" "${@:2}"
}
