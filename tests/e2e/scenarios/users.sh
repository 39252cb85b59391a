# shellcheck shell=bash
# users and roles as resources: an application connects by its Secret alone, may do what its role permits, passwords rotate, root is never locked out, what is changed by hand is put back

kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: sealed}
spec:
  replicas: 1
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  tls: {}
END
as() { etcdctl_with "$1" "https://sealed-client.$ns.svc:2379" "${@:2}"; } # as SECRET ARGUMENT...: etcdctl with what the Secret holds
refused() { # refused WHY COMMAND...
  local why=$1 said; shift
  if said=$("$@" 2>&1); then die "not refused: $*"; fi
  contains "$said" "$why"
}
is_user() { # is_user KIND NAME REASON: its latest generation was seen, and is or is not Ready for this reason
  kubectl -n "$ns" get "$1" "$2" -o json | jq -e --arg reason "$3" '.metadata.generation as $now |
    any(.status.conditions[]?; .type == "Ready" and .reason == $reason and .observedGeneration == $now)' >/dev/null
}
touch_resource() { kubectl -n "$ns" annotate "$1" "$2" "test=$EPOCHREALTIME" --overwrite >/dev/null; }
held() { kubectl -n "$ns" get secret "$1" -o jsonpath="{.data.$2}" | base64 -d; } # held SECRET KEY

# Before the cluster: they wait for it.
kubectl -n "$ns" create secret generic app-password --from-literal=password=first >/dev/null
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdUser
metadata: {name: app}
spec:
  clusterRef: {name: sealed}
  roles: [app]
  password: {secretRef: {name: app-password, key: password}}
  certificate: {}
  connection: {kubeApiserver: {mountPath: /etc/etcd}}
---
apiVersion: quorate.dev/v1alpha1
kind: EtcdUser
metadata: {name: worker}
spec: {clusterRef: {name: sealed}, roles: [app], password: {}}
END
ready sealed 1
eventually 60 "the user app waits for its role" is_user etcduser app RolesMissing
kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdRole
metadata: {name: app}
spec: {clusterRef: {name: sealed}, permissions: [{access: ReadWrite, prefix: /app/}]}
---
apiVersion: quorate.dev/v1alpha1
kind: EtcdUser
metadata: {name: root}
spec: {clusterRef: {name: sealed}, certificate: {}, authentication: Enabled}
END
operator_kill
for user in root app worker; do eventually 90 "the user $user is as specified" is_user etcduser "$user" AsSpecified; done
eventually 60 "the role is as specified" is_user etcdrole app AsSpecified

# Each Secret is enough to connect, and the role says to what.
as app-connection put /app/greeting hello >/dev/null
equal "a key of the role" hello "$(as app-connection get /app/greeting --print-value-only)"
refused "permission denied" as app-connection put /other 1
refused "permission denied" as app-connection user list
equal "a key, as the user of a password" hello "$(as app-connection --user="worker:$(held worker-connection password)" get /app/greeting --print-value-only)"
equal "users" "app root worker" "$(as root-connection user list | sort | xargs)"
contains "$(held app-connection 'kube-apiserver\.flags')" "--etcd-certfile=/etc/etcd/tls.crt"

# Another content of the Secret is another password.
as app-connection --user=app:first get /app/greeting >/dev/null
kubectl -n "$ns" create secret generic app-password --from-literal=password=second --dry-run=client -o yaml | kubectl -n "$ns" apply -f - >/dev/null 2>&1
touch_resource etcduser app
equal_password() { [ "$(held app-connection password)" = second ]; }
eventually 60 "the connection Secret has the other password" equal_password
as app-connection --user=app:second get /app/greeting >/dev/null
refused "invalid user ID or password" as app-connection --user=app:first get /app/greeting
first=$(held worker-connection password)
kubectl -n "$ns" delete secret worker-connection >/dev/null
touch_resource etcduser worker
another() { local now; now=$(held worker-connection password 2>/dev/null) && [ -n "$now" ] && [ "$now" != "$first" ]; }
eventually 60 "a deleted Secret comes back with another password" another
eventually 60 "the user worker is as specified" is_user etcduser worker AsSpecified
as app-connection --user="worker:$(held worker-connection password)" get /app/greeting >/dev/null

# Changes by hand are put back; an edit of the role takes effect.
as root-connection role add other >/dev/null
as root-connection role grant-permission other readwrite '' --prefix >/dev/null
as root-connection user grant-role app other >/dev/null
as app-connection put /other 1 >/dev/null
touch_resource etcduser app
without() { [ "$(as root-connection user get app | grep Roles)" = "Roles: app" ]; }
eventually 60 "app has no role but its own" without
refused "permission denied" as app-connection put /other 2
kubectl -n "$ns" patch etcdrole app --type=merge -p '{"spec":{"permissions":[{"access":"Read","prefix":"/app/"}]}}' >/dev/null
eventually 60 "the role is as specified" is_user etcdrole app AsSpecified
refused "permission denied" as app-connection put /app/greeting 2
said=$(kubectl -n "$ns" patch etcduser app --type=merge -p '{"spec":{"authentication":"Disabled"}}' 2>&1) && die "an EtcdUser but root's disables authentication"
contains "$said" "EtcdUser of root alone"

# What somebody else puts into the Secret stays there, and nothing is written again and again.
kubectl -n "$ns" patch secret app-connection --type=merge -p '{"stringData":{"other":"1"}}' >/dev/null
touch_resource etcduser app
version=$(kubectl -n "$ns" get secret app-connection -o jsonpath='{.metadata.resourceVersion}')
rewritten() { [ "$(kubectl -n "$ns" get secret app-connection -o jsonpath='{.metadata.resourceVersion}')" != "$version" ]; }
never 5 "the Secret is written again" rewritten
equal "the key of another" 1 "$(held app-connection other)"

# Deleted: the user is gone from the cluster, and root stays.
kubectl -n "$ns" get secret app-connection -o json | jq '{apiVersion, kind, data, metadata: {name: "kept"}}' | kubectl -n "$ns" apply -f - >/dev/null
kubectl -n "$ns" delete etcduser app worker root --timeout=60s >/dev/null
refused "permission denied" as kept get /app/greeting
equal "users" root "$(as sealed-client user list)"
contains "$(as sealed-client auth status)" "Authentication Status: true"
drop_cluster sealed
