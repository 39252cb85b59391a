# shellcheck shell=bash
# Shared by the scenarios in which the operator does not create the certificates: the cluster $cluster, and checks
# of it. Sourced after the scenario has set $cluster.

tls_cluster() { # tls_cluster CLIENT PEER: three members, with these for tls.client and tls.peer
  kubectl -n "$ns" apply -f - >/dev/null <<END_OF_CLUSTER
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $cluster}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  updateStrategy: {minReadySeconds: 3}
  tls:
    plaintext: Accepted
    client: $1
    peer: $2
END_OF_CLUSTER
}
tls_reason() { kubectl -n "$ns" get qec "$cluster" -o jsonpath='{.status.conditions[?(@.type=="TLSReady")].reason}'; }
reason_is() { [ "$(condition "$cluster" TLSReady)" = False ] && [ "$(tls_reason)" = "$1" ]; }
is_seen() { # is_seen SECRET: the operator has seen the certificate on standard input in it
  local end
  end=$(date -u -d "$(openssl x509 -noout -enddate | cut -d= -f2)" +%Y-%m-%dT%H:%M:%SZ)
  [ "$(kubectl -n "$ns" get qec "$cluster" -o jsonpath="{.status.certificates[?(@.secret==\"$1\")].notAfter}")" = "$end" ]
}
# Every server has loaded the certificates that the operator has seen.
all_loaded() { [ "$(condition "$cluster" TLSReady)" = True ] && [ "$(condition "$cluster" Progressing)" = False ] && [ "$(tls_reason)" = AsWanted ]; }
pods() { kubectl -n "$ns" get pods -l "quorate.dev/cluster=$cluster,app.kubernetes.io/component=member" -o jsonpath='{range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}' | sort; }
