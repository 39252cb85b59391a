# shellcheck shell=bash disable=SC2154
# A control plane whose API server stores into a cluster under test, as pods. Sourced by scenarios, never run; uses their
# $ns and $work, which is a directory.
token=$(openssl rand -hex 16)

# The image of kube-apiserver and its companions, onto a node.
hosted_image() { # hosted_image NODE-NUMBER
  [ -e "$work/kube.tar" ] || tests/kubernetes/image.sh localhost/kube:1 "$(readlink -f "$(command -v kube-apiserver)")" "$work/kube.tar"
  tests/kubernetes/cluster.sh import "$1" "$work/kube.tar"
}
kubeconfig_for() { # kubeconfig_for ADDRESS
  printf '{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
    clusters: [{name: c, cluster: {server: "https://%s:6443", insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: %s}}]}\n' "$1" "$token"
}
# Its keys and its Service.
hosted_setup() {
  printf '%s,admin,admin,system:masters\n' "$token" >"$work/tokens.csv"
  openssl genrsa -out "$work/sa.key" 2048 2>/dev/null
  kubeconfig_for hosted >"$work/controllers"
  kubectl -n "$ns" create secret generic hosted --from-file=tokens.csv="$work/tokens.csv" --from-file=sa.key="$work/sa.key" --from-file=kubeconfig="$work/controllers" >/dev/null
  kubectl -n "$ns" create service clusterip hosted --tcp=6443:6443 >/dev/null
}
hosted_pod() { # hosted_pod NAME PORT NODE-NUMBER ARGUMENT...: a pod of the control plane
  local name=$1 port=$2 node=$3; shift 3
  jq -n --arg name "$name" --argjson port "$port" --arg node "qrt-node$node" '{apiVersion: "v1", kind: "Pod", metadata: {name: $name, labels: {app: $name}},
    spec: {nodeName: $node, tolerations: [{operator: "Exists"}], automountServiceAccountToken: false,
      securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: "RuntimeDefault"}},
      volumes: [{name: "keys", secret: {secretName: "hosted"}}, {name: "certificates", emptyDir: {}}],
      containers: [{name: "main", image: "localhost/kube:1", imagePullPolicy: "Never", args: $ARGS.positional,
        readinessProbe: {httpGet: {path: (if $port == 6443 then "/readyz" else "/healthz" end), port: $port, scheme: "HTTPS"}, periodSeconds: 2},
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}},
        volumeMounts: [{name: "keys", mountPath: "/keys"}, {name: "certificates", mountPath: "/certificates"}]}]}}' --args -- "$@" |
    kubectl -n "$ns" apply -f - >/dev/null
}
pod_is_ready() { [ "$(kubectl -n "$ns" get pod "$1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = True ]; }
hosted_apiserver() { # hosted_apiserver NODE-NUMBER ENDPOINTS: the API server, and its kubeconfig in $hosted
  hosted_pod hosted 6443 "$1" kube-apiserver --etcd-servers="$2" --secure-port=6443 --cert-dir=/certificates \
    --service-cluster-ip-range=10.97.0.0/16 --service-account-issuer=https://hosted --service-account-key-file=/keys/sa.key \
    --service-account-signing-key-file=/keys/sa.key --token-auth-file=/keys/tokens.csv --authorization-mode=RBAC \
    --etcd-compaction-interval=60s --endpoint-reconciler-type=none
  eventually 90 "the hosted API server is ready" pod_is_ready hosted
  kubeconfig_for "$(kubectl -n "$ns" get pod hosted -o jsonpath='{.status.podIP}')" >"$hosted"
}
hosted_kubectl() { kubectl --kubeconfig="$hosted" "$@"; }
