# shellcheck shell=bash
# an invalid resource is refused with a message that says what to do
refused() { # refused WHAT MESSAGE-PART: the resource on standard input must be refused, with that in the message
  local message
  if message=$(kubectl -n "$ns" apply --validate=strict -f - 2>&1); then die "$1 was accepted"; fi
  grep -qiE "$2" <<<"$message" || die "$1: the message does not contain \"$2\": $message"
  log "refused: $1: $(tail -1 <<<"$message")"
}
resource() { printf 'apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: %s}\nspec: %s\n' "$1" "$2"; }
# the operator's permissions, checked by the API server's own authorizer
may() { kubectl auth can-i "$@" --as=system:serviceaccount:quorate-system:quorate 2>/dev/null || true; }
for right in "create statefulsets.apps" "delete pods" "create pods --subresource=eviction" "patch etcdclusters.quorate.dev" "patch etcdclusters.quorate.dev --subresource=status" "list nodes" "create tokenreviews.authentication.k8s.io"; do
  # shellcheck disable=SC2086
  equal "the operator may $right" yes "$(may $right -n "$ns")"
done
for right in "create pods" "create pods --subresource=exec" "get pods --subresource=log" "update secrets" "deletecollection secrets" "update etcdclusters.quorate.dev" "delete etcdclusters.quorate.dev" "get leases.coordination.k8s.io" "create leases.coordination.k8s.io" \
  "update nodes" "delete persistentvolumes" "create serviceaccounts --subresource=token" "impersonate users" "create clusterrolebindings.rbac.authorization.k8s.io" "escalate clusterroles.rbac.authorization.k8s.io"; do
  # shellcheck disable=SC2086
  equal "the operator may $right" no "$(may $right -n "$ns")"
done
equal "the operator may write its Lease" yes "$(may update leases.coordination.k8s.io/quorate-operator -n quorate-system)"
equal "the operator may write another Lease" no "$(may update leases.coordination.k8s.io/other -n quorate-system)"
# metrics and plans are only for tokens that the API server knows; the probes are for everybody
asked_by_strangers() {
  local message proxy token
  proxy=/api/v1/namespaces/quorate-system/pods/$(operator_pod):8080/proxy
  if message=$(kubectl get --raw "$proxy/metrics" 2>&1); then die "the operator's metrics need no token: $(head -1 <<<"$message")"; fi
  grep -q 'asked for the client to provide credentials' <<<"$message" || die "the metrics were refused for another reason: $message"
  kubectl get --raw "$proxy/livez" >/dev/null
  for token in made-up ''; do
    message=$(resource demo '{replicas: 3}' | kubectl create --dry-run=client -o json -f - |
      jq -c --arg token "$token" '{token: $token, cluster: (. + {metadata: (.metadata + {namespace: "kube-system"})})}' |
      kubectl create --raw "$proxy/forecast" -f -)
    grep -q '"refused".*token is none that the API server knows' <<<"$message" || die "the token \"$token\" was shown a plan: $message"
  done
}
with_operator asked_by_strangers
log "the operator has the rights that it uses, and refuses callers that the API server does not know"
operator_kill # the CRD itself refuses invalid resources, without an operator
resource demo '{replicas: 10}' | refused "too many replicas" 'replicas'
resource demo '{replicas: -1}' | refused "a negative size" 'replicas'
resource demo '{replicas: 3, bootstrap: {follow: {endpoints: ["https://a:2379", "http://b:2379"]}}}' | refused "a followed cluster with and without TLS" 'all https:// or all http://'
resource demo '{replicas: 3, storage: {size: 1Gi}, colour: blue}' | refused "an unknown field" 'unknown field.*colour'
resource 1demo '{replicas: 3, storage: {size: 1Gi}}' | refused "a name that cannot be a host name" 'name'
for image in '"two words"' mirror.example/Quorate:0.1.0 mirror.example/quorate@sha256:0 https://mirror.example/quorate; do
  resource demo "{replicas: 3, image: $image}" | refused "the image $image" 'image must be a reference'
done
for image in quorate mirror.example:5000/a/quorate:main "'[fd00::10]:5000/quorate:0.1.0@sha256:$(printf '0%.0s' {1..64})'"; do
  resource demo "{replicas: 3, image: $image}" | kubectl -n "$ns" apply --validate=strict --dry-run=server -f - >/dev/null || die "the image $image was refused"
done
resource "$(printf 'a%.0s' {1..41})" '{replicas: 3, storage: {size: 1Gi}}' | refused "a name too long" '40'

apply_cluster demo 1
ready demo 1
patched() { kubectl -n "$ns" patch qec demo --type=merge -p "$1" 2>&1; }
if message=$(patched '{"spec":{"storage":{"size":"8Mi"}}}'); then die "a volume for no data was accepted"; fi
contains "$message" 'storage.size must be a quantity of more than 16Mi'
if message=$(patched '{"spec":{"storage":{"autogrow":{"max":"512Mi"}}}}'); then die "volumes that grow to less than they are were accepted"; fi
contains "$message" 'storage.autogrow.max must be at least storage.size'
log "refused: $(tail -1 <<<"$message")"
drop_cluster demo
