# shellcheck shell=bash
# 1 -> 3 -> 5 -> 3 under a writer that loses no acknowledged write, the operator killed in each step
scale() { # scale TO VOTERS-SEEN-BEFORE-THE-KILL
  kubectl -n "$ns" scale qec demo --replicas="$1" >/dev/null
  log "scaled to $1"
  eventually 90 "the change has begun" begun "$2"
  operator_kill
  ready demo "$1" 300
}
begun() { [ "$(members demo | grep -c .)" != "$1" ]; }
apply_cluster demo 1
ready demo 1
# The cluster changes after it was read, as it does whenever the operator writes the status.
wanted=$(kubectl -n "$ns" get qec demo -o yaml | sed 's/^  replicas: 1$/  replicas: 3/')
kubectl -n "$ns" annotate qec demo changed=since >/dev/null
foreseen=$(quorate_plugin plan -n "$ns" -f - <<<"$wanted")
contains "$foreseen" 'promote demo-2' 'promote demo-3' 'if this were applied' 'THEN      3 voters'
equal "voters after a plan" 1 "$(members demo | grep -c .)"
witness_start demo resize
scale 3 1
scale 5 3
before=$(leader demo)
scale 3 5
log "the leader was $before and is $(leader demo)"
slots demo 3
# While a removed member's pod still ends, there is nothing to do; then its PVC is to be deleted.
left() { local objects; objects=$(kubectl -n "$ns" get sts,pods,pvc -l app.kubernetes.io/instance=demo -o name) && ! grep -E 'demo-(4|5)' <<<"$objects"; }
eventually 90 "nothing of the removed members is left" left
contains "$(quorate_plugin status demo -n "$ns")" 'CLUSTER ' 'running, seen' 'demo-' 'nothing is to be done'
contains "$(quorate_plugin plan demo -n "$ns")" 'nothing is to be done'
contains "$(quorate_plugin top --once -n "$ns")" 'READY' 'demo  3/3'
equal "members that the plugin lists" 3 "$(quorate_plugin members demo -n "$ns" -o json | jq '.members | length')"
reached=$(PATH="$PWD/target/interop/bin:$PATH" quorate_plugin etcdctl demo -n "$ns" -- endpoint status --write-out=json)
equal "members that etcdctl reaches from outside" 3 "$(jq length <<<"$reached")"
# Everything for whoever helps, and no secret.
folder=$(mktemp -d)
trap 'rm -rf "$folder"; kubectl -n quorate-system delete role,rolebinding e2e-asks --ignore-not-found >/dev/null' EXIT
quorate_plugin report demo -n "$ns" --output="$folder/report.tar.gz" >"$folder/said"
log "$(cat "$folder/said")"
tar -C "$folder" -xzf "$folder/report.tar.gz"
for file in cluster.json status.txt objects/pods.json objects/nodes.json objects/etcdbackups.json operator/leases.json members/logs/demo-1-0.log; do
  [ -s "$folder"/quorate-report-*/"$file" ] || die "the report has no $file: $(find "$folder")"
done
[ -n "$(find "$folder" -path '*/operator/logs/*.log' -size +0)" ] || die "the report has no log of the operator: $(find "$folder")"
[ ! -e "$folder"/quorate-report-*/missing.txt ] || die "an administrator may not read: $(cat "$folder"/quorate-report-*/missing.txt)"
secret=$(kubectl -n "$ns" get secrets -l quorate.dev/cluster=demo -o json | jq -r '[.items[].data // {} | .[] | select(length > 20)][0]')
[ "${#secret}" -gt 20 ] || die "the cluster has no Secret"
if grep -rqF "$secret" "$folder"/quorate-report-*; then die "the report holds what a Secret holds"; fi

# Callers that request a plan: one with exactly the rights that docs/tasks/observe.md names, for a service account
# that may read the cluster; the same for one that may not; one without rights; and one without credentials.
asks() { (log() { :; }; die() { exit 1; }; quorate_plugin plan demo -n "$ns" --kubeconfig "$folder/$1" --operator-namespace=quorate-system "${@:2}"); }
forbidden() { # forbidden USER SERVICE-ACCOUNT WORDS...: no plan, and these words
  local answer
  if answer=$(asks "$1" --service-account="$2"); then die "$1 got a plan for $2: $answer"; fi
  contains "$answer" "${@:3}"
}
kubectl apply -f - >/dev/null <<END
{apiVersion: v1, kind: ServiceAccount, metadata: {name: asker, namespace: $ns}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: stranger, namespace: $ns}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: asks, namespace: $ns}
rules:
  - {apiGroups: [quorate.dev], resources: [etcdclusters], verbs: [get]}
  - {apiGroups: [""], resources: [serviceaccounts/token], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: asks, namespace: $ns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: asks}
subjects: [{kind: ServiceAccount, name: asker, namespace: $ns}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-asks, namespace: quorate-system}
rules:
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list]}
  - {apiGroups: [""], resources: [pods/proxy], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-asks, namespace: quorate-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-asks}
subjects: [{kind: ServiceAccount, name: asker, namespace: $ns}]
END
for user in asker stranger; do
  kubectl config view --raw --minify -o json | jq --arg token "$(kubectl -n "$ns" create token $user)" '.users[0].user = {token: $token}' >"$folder/$user"
done
contains "$(asks asker --service-account="$ns/asker")" 'nothing is to be done'
forbidden asker "$ns/stranger" "system:serviceaccount:$ns:stranger may not get etcdclusters in namespace $ns"
forbidden asker quorate-system/quorate 'no token of the service account quorate-system/quorate can be made' '--service-account NAMESPACE/NAME'
forbidden stranger "$ns/asker" 'etcdclusters.quorate.dev "demo" is forbidden'
log "a plan is shown to whoever may read the cluster"

witness_stop demo resize
equal "sets that are left" 3 "$(kubectl -n "$ns" get sts -l app.kubernetes.io/instance=demo -o name | grep -c .)"
drop_cluster demo
