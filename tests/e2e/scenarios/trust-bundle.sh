# shellcheck shell=bash
# soak
# own cluster
# the CAs for clients in a ClusterTrustBundle: reported while the operator has no rights, then mounted by a client in another namespace that is served before, during and after a rotation of the CA; it goes with the cluster

bundle=quorate.dev:$ns.published:client signer=quorate.dev/$ns.published other=$ns-clients
leave() {
  kubectl delete clusterrole,clusterrolebinding quorate-trust-bundles --ignore-not-found >/dev/null 2>&1 || true
  kubectl delete namespace "$other" --ignore-not-found --wait=false >/dev/null 2>&1 || true
}
trap leave EXIT
cluster() { # cluster NAME TLS
  kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $1}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  tls: $2
END
}
stalled() { [ "$(kubectl -n "$ns" get qec published -o jsonpath='{.status.conditions[?(@.type=="Stalled")].reason}')" = "$1" ]; } # stalled REASON
authorities() { # authorities: how many are published
  kubectl get clustertrustbundle "$bundle" -o jsonpath='{.spec.trustBundle}' | grep -c 'BEGIN CERTIFICATE'
}
has_authorities() { [ "$(authorities)" = "$1" ]; }
is_gone() { prints_nothing kubectl get clustertrustbundle "$bundle" --ignore-not-found -o name; }
fingerprint() { kubectl -n "$ns" get secret published-client-ca -o jsonpath='{.data.tls\.crt}' | sha256sum; }
signs_anew() { [ "$(fingerprint)" != "$1" ]; }

# --- before the operator has the rights
kubectl create namespace "$other" >/dev/null
cluster published '{clientAuth: None, publishCAs: ClusterTrustBundle}'
cluster another '{clientAuth: None}'
# Every ServiceAccount may read them where the kind is on: then it is the write that is refused.
denied() { stalled ClusterTrustBundleDenied || stalled Refused; }
eventually 180 "the missing rights are reported" denied
serves() { [ "$(condition published Available)" = True ]; }
eventually 120 "published serves all the same" serves
account=$(kubectl -n quorate-system get deployment quorate -o jsonpath='{.spec.template.spec.serviceAccountName}')
kubectl apply -f - >/dev/null <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: quorate-trust-bundles}
rules:
$(sed 's/^/  /' charts/quorate/files/rules-trust-bundles.yaml)
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: quorate-trust-bundles}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: quorate-trust-bundles}
subjects: [{kind: ServiceAccount, name: $account, namespace: quorate-system}]
END
ready published 1 120
ready another 1 120
eventually 60 "the CA is published" has_authorities 1
named() { [ "$(status published endpoints.clusterTrustBundle)" = "$bundle" ]; }
eventually 60 "the name is in the status" named

# --- a client in another namespace, which has nothing of the cluster but this. By the signer: of a bundle that is mounted by its
# name a kubelet keeps what it had for up to five minutes.
client() { # client CLUSTER ARGUMENT...
  local cluster=$1 pod=etcdctl-$BASHPID-${EPOCHREALTIME//[.,]/} home=$ns; shift
  jq -n --arg pod "$pod" --arg image "$etcdctl_image" --arg signer "$signer" '{apiVersion: "v1", kind: "Pod", metadata: {name: $pod},
    spec: {restartPolicy: "Never", securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: "RuntimeDefault"}},
      volumes: [{name: "trust", projected: {sources: [{clusterTrustBundle: {signerName: $signer, labelSelector: {}, path: "ca.crt"}}]}}],
      containers: [{name: "main", image: $image, imagePullPolicy: "IfNotPresent", args: $ARGS.positional,
        volumeMounts: [{name: "trust", mountPath: "/trust", readOnly: true}],
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}}]}}' \
    --args -- --endpoints="https://$cluster-client.$home.svc:2379" --cacert=/trust/ca.crt --command-timeout=5s "$@" |
    kubectl -n "$other" apply -f - >/dev/null
  ns=$other pod_ends "$pod"
}
client published put greeting hello >/dev/null
equal "a key, by what is mounted" hello "$(client published get greeting --print-value-only)"
if client another get greeting >/dev/null 2>&1; then die "the CAs of published verify members of another"; fi

# --- the CA is rotated
before=$(fingerprint)
kubectl -n "$ns" annotate qec published quorate.dev/rotate-client-ca=1 >/dev/null
eventually 120 "both CAs are published" has_authorities 2
equal "the CA that signs, while the next one is made known" "$before" "$(fingerprint)"
equal "a key, with both" hello "$(client published get greeting --print-value-only)"
kubectl -n "$ns" annotate qec published quorate.dev/rotate-client-ca=1-now --overwrite >/dev/null
eventually 240 "the next CA signs" signs_anew "$before"
eventually 300 "it alone is published" has_authorities 1
eventually 120 "nothing is under way" whole published 1
equal "a key, with the next one" hello "$(client published get greeting --print-value-only)"

# --- asked for no more, again, and gone with the cluster
kubectl -n "$ns" patch qec published --type=merge -p '{"spec":{"tls":{"publishCAs":"Secret"}}}' >/dev/null
eventually 60 "it is withdrawn" is_gone
kubectl -n "$ns" patch qec published --type=merge -p '{"spec":{"tls":{"publishCAs":"ClusterTrustBundle"}}}' >/dev/null
eventually 60 "it is published again" has_authorities 1
drop_cluster another
drop_cluster published
eventually 60 "it went with the cluster" is_gone
