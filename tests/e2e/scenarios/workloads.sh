# shellcheck shell=bash
# soak
# own cluster
# Kubernetes' own life on its store: Deployment, StatefulSet, Service, custom resources, a namespace that goes with all of it
pause() { # pause KIND NAME REPLICAS EXTRA: a workload of the pause image, under the restricted standard
  kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: $1
metadata: {name: $2}
spec:
  replicas: $3
  $4
  selector: {matchLabels: {app: $2}}
  template:
    metadata: {labels: {app: $2}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: main
        image: localhost/pause:1
        imagePullPolicy: IfNotPresent
        env: [{name: ROUND, value: "${round:-1}"}]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
YAML
}
rolled() { kubectl -n "$ns" rollout status "$1" --timeout=1s; }
kubectl -n "$ns" create service clusterip web --tcp=80 >/dev/null
pause Deployment web 3 ''
eventually 60 "a Deployment of three runs" rolled deployment/web
slices() { [ "$(kubectl -n "$ns" get endpointslices -l kubernetes.io/service-name=web -o json | jq '[.items[].endpoints[]? | select(.conditions.ready)] | length')" = 3 ]; }
eventually 30 "its Service has three endpoints" slices
round=2 pause Deployment web 3 ''
eventually 60 "it rolled to a new template" rolled deployment/web
equal "sets of replicas, old and new" 2 "$(kubectl -n "$ns" get replicasets -o name | grep -c .)"
kubectl -n "$ns" rollout undo deployment/web >/dev/null
eventually 60 "and back" rolled deployment/web

pause StatefulSet db 2 'serviceName: db'
eventually 60 "a StatefulSet of two runs" rolled statefulset/db
equal "its pods" "db-0 db-1" "$(kubectl -n "$ns" get pods -l app=db -o json | jq -r '[.items[].metadata.name] | sort | join(" ")')"
uid=$(pod_uid db-1)
kubectl -n "$ns" delete pod db-1 --wait=false >/dev/null
eventually 60 "a deleted pod of it is another one of the same name" is_another_pod db-1 "$uid"
eventually 60 "and runs" rolled statefulset/db

kubectl apply -f - >/dev/null <<YAML
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: colours.e2e.quorate.dev}
spec:
  group: e2e.quorate.dev
  scope: Namespaced
  names: {plural: colours, singular: colour, kind: Colour}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {red: {type: integer, minimum: 0, maximum: 255}}}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
YAML
trap 'kubectl delete crd colours.e2e.quorate.dev --ignore-not-found --wait=false >/dev/null' EXIT
kubectl wait --for=condition=Established crd/colours.e2e.quorate.dev --timeout=30s >/dev/null
colour() { kubectl -n "$ns" apply -f - 2>&1 <<<"{apiVersion: e2e.quorate.dev/v1, kind: Colour, metadata: {name: $1, finalizers: [${3:-}]}, spec: {red: $2}}"; }
served() { colour first 1; }
eventually 30 "a custom resource is served" served
if answer=$(colour second 256); then die "the schema's limit did not hold: $answer"; fi
for n in $(seq 20); do colour "c$n" "$n" >/dev/null; done
equal "custom resources" 21 "$(kubectl -n "$ns" get colours -o name | grep -c .)"
colour held 7 e2e.quorate.dev/hold >/dev/null
kubectl -n "$ns" delete colour held --wait=false >/dev/null
[ -n "$(kubectl -n "$ns" get colour held -o jsonpath='{.metadata.deletionTimestamp}')" ] || die "a finalizer did not hold its object"
kubectl -n "$ns" patch colour held --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null
eventually 30 "an object goes when its finalizer does" none colour held
kubectl delete crd colours.e2e.quorate.dev --timeout=60s >/dev/null
log "a definition went with its objects"

kubectl delete namespace "$ns" --wait=false >/dev/null
eventually 120 "the namespace is gone with everything in it" none namespace "$ns"
kubectl create namespace "$ns" >/dev/null # the runner deletes it
store_verdict
