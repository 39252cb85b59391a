# shellcheck shell=bash
# soak
# newest
# own cluster
# keys that kubelets make: reported while the operator has no rights, then a cluster whose members' keys are in no Secret; a pod that is replaced has another certificate, a kubelet that is restarted gets others, and the CA of peers is exchanged

leave() {
  kubectl delete clusterrole,clusterrolebinding quorate-pod-certificates --ignore-not-found >/dev/null 2>&1 || true
}
trap leave EXIT
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  tls: {client: {source: PodCertificate}, peer: {source: PodCertificate}}
END
reason() { kubectl -n "$ns" get qec demo -o jsonpath="{.status.conditions[?(@.type==\"$1\")].reason}"; } # reason CONDITION
unavailable() { [ "$(reason Stalled)" = PodCertificatesUnavailable ]; }
record() { # record SECRET: fails if it has none
  local value
  value=$(kubectl -n "$ns" get secret "$1" -o jsonpath='{.data.tls\.crt}') && [ -n "$value" ] && base64 -d <<<"$value"
}
is_another() { local now; now=$(record "$1") && [ "$now" != "$2" ]; } # is_another SECRET RECORD
settled() { whole demo 3 && [ "$(reason TLSReady)" = AsWanted ]; }
secure_etcdctl() { etcdctl_with demo-client "https://demo-client.$ns.svc:2379" "$@"; }
requests() { kubectl -n "$ns" get podcertificaterequests -o json; }
trusted() { kubectl -n "$ns" get secret demo-peer-ca -o jsonpath='{.data.ca\.crt}' | base64 -d | grep -c 'BEGIN CERTIFICATE'; }
trusts() { [ "$(trusted)" = "$1" ]; }
signer() { kubectl -n "$ns" get secret demo-peer-ca -o jsonpath='{.data.tls\.crt}'; }
signs_anew() { local now; now=$(signer) && [ -n "$now" ] && [ "$now" != "$1" ]; } # signs_anew CERTIFICATE

# --- before the operator has the rights
eventually 120 "the missing rights are reported" unavailable
nothing "pods that would never start" kubectl -n "$ns" get pods -o name
account=$(kubectl -n quorate-system get deployment quorate -o jsonpath='{.spec.template.spec.serviceAccountName}')
kubectl apply -f - >/dev/null <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: quorate-pod-certificates}
rules:
$(sed 's/^/  /' charts/quorate/files/rules-pod-certificates.yaml charts/quorate/files/rules-signer.yaml)
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: quorate-pod-certificates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: quorate-pod-certificates}
subjects: [{kind: ServiceAccount, name: $account, namespace: quorate-system}]
END

# --- the cluster, and where its keys are not
ready demo 3 240
eventually 120 "nothing is under way" settled
secure_etcdctl put greeting hello >/dev/null
equal "a key, with TLS" hello "$(secure_etcdctl get greeting --print-value-only)"
kept=$(kubectl -n "$ns" get secrets -o json | jq -r '.items[] | select(.data["tls.key"] != null or .data["ca.key"] != null) | .metadata.name' | sort | tr '\n' ' ')
equal "Secrets with a key" "demo-client demo-client-ca demo-peer-ca " "$kept"
answered=$(requests | jq '[.items[] | select(.spec.signerName == "quorate.dev/member" and any(.status.conditions[]?; .type == "Issued"))] | length')
[ "$answered" -ge 6 ] || die "only $answered requests of kubelets were answered"
log "three members serve with keys that are in no Secret"

# --- the next pod of a member has another key
member=$(follower demo)
old=$(record "$member-peer-tls")
kubectl -n "$ns" delete pod "$member-0" --wait=false >/dev/null
another() { is_another "$member-peer-tls" "$old"; }
eventually 120 "the next pod of $member has another certificate" another
eventually 180 "nothing is under way" settled

# --- a kubelet forgets its keys: it requests certificates for others, and no pod is restarted
node=$(node_of "$member")
before=$(pod_uid "$member-0") old=$(record "$member-peer-tls")
tests/kubernetes/cluster.sh restart-kubelet "${node##*[!0-9]}"
eventually 180 "the kubelet of $member has requested others" another
eventually 240 "nothing is under way" settled
equal "the pod of $member" "$before" "$(pod_uid "$member-0")"
equal "a key, with TLS" hello "$(secure_etcdctl get greeting --print-value-only)"

# --- the CA of peers is exchanged: nobody can make a kubelet ask, so the one before stays until the members' next pods
first=$(signer)
kubectl -n "$ns" annotate qec demo quorate.dev/rotate-peer-ca=1 >/dev/null
eventually 60 "another CA is trusted" trusts 2
eventually 300 "it signs" signs_anew "$first"
eventually 60 "both are trusted" trusts 2
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"podTemplate":{"metadata":{"annotations":{"rotated":"1"}}}}}' >/dev/null
eventually 600 "the one before is forgotten" trusts 1
eventually 240 "nothing is under way" settled
equal "a key, with TLS" hello "$(secure_etcdctl get greeting --print-value-only)"
drop_cluster demo
