# shellcheck shell=bash
# soak
# own cluster
# by chart
# the pages for users, by their own commands: they are read from the page (tests/docs/block.py) and run in the order of a new user's first days; tests/docs/ran.txt names the blocks that other tests run
# shellcheck source=tests/e2e/blocks.sh
source tests/e2e/blocks.sh
# E2E_RECORD=1 leaves what a terminal shows in docs/transcripts; tests/docs/images.py draws it
screen() { tmux -L quorate-pages "$@"; }
stop() {
  [ -z "${forward:-}" ] || kill "$forward" 2>/dev/null || true
  [ "${E2E_RECORD:-}" != 1 ] || screen kill-server 2>/dev/null || true
  blocks_end
  [ -z "${spare_is_there:-}" ] || spare_node_goes
}
trap stop EXIT

# --- an installation, three times: by the chart, from one file, and as the README has it
nothing_left() { prints_nothing kubectl get qec,etcdusers,etcdroles,qb,qbsched -A -o name; }
eventually 180 "nothing of earlier scenarios is left" nothing_left
helm uninstall quorate --namespace quorate-system --wait >/dev/null
kubectl delete --ignore-not-found --timeout=300s -f crds >/dev/null
rolled_out() { kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null; }
chart=(image.repository=YOUR-REGISTRY/quorate "$(image_values "$quorate_image")" '{default}' "{$ns}")
block $docs/install.md 'helm install quorate charts/quorate --namespace quorate-system --create-namespace' "${chart[@]}"
rolled_out
block $docs/install.md 'kubectl -n quorate-system get pods'
said Running replicas storage
block $docs/install.md 'helm uninstall quorate'
nothing "what is left of the chart" kubectl -n quorate-system get deployments -o name
sed -E "s|(image[:=] ?)quorate:[^ ]+|\1$quorate_image|" deploy/install.yaml >"$work/install.yaml"
block $docs/install.md 'kubectl apply --server-side -f deploy/install.yaml' deploy/install.yaml 'install.yaml --force-conflicts'
rolled_out
# The definitions stay: Kubernetes can take five minutes to delete one that has just been created.
python3 -c 'import sys, yaml
print("---\n".join(yaml.dump(it) for it in yaml.safe_load_all(sys.stdin) if it["kind"] != "CustomResourceDefinition"))' <"$work/install.yaml" |
  kubectl delete -f - --wait --timeout=120s >/dev/null
block README.md 'docker build' 'docker build -t YOUR-REGISTRY/quorate:0.2.0 . && docker push YOUR-REGISTRY/quorate:0.2.0' : "${chart[@]}"
ready demo 3

# --- the first cluster
block $docs/first-cluster.md 'kubectl apply -f deploy/samples/cluster.yaml' 'kubectl get qec demo --watch' 'endless kubectl get qec demo --watch'
said demo 3/3
block $docs/first-cluster.md 'kubectl get secret demo-client' 'etcdctl --' 'etcdctl --dial-timeout=10s --command-timeout=20s --'
said OK

# --- looking at it
kubectl -n "$ns" get qec demo -o yaml >"$work/demo.yaml"
fenced() { echo "until kubectl quorate status demo -n $ns | grep 'demo-2 is fenced'; do sleep 1; done"; }
whole_again() { whole demo 3 && [ "$(kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=member -o name | wc -l)" = 3 ]; }
block $docs/observe.md 'kubectl quorate status demo -n NS' ' NS' " $ns" "kubectl quorate unfence" "$(fenced)
kubectl quorate unfence" 'etcdctl demo' 'etcdctl demo --member=demo-1' 'kubectl quorate top -A' 'on_screen kubectl quorate top -A' \
  'kubectl quorate logs' 'endless kubectl quorate logs' "kubectl -n $ns port-forward" "endless kubectl -n $ns port-forward"
said CLUSTER 'up and down choose' 'quorate-report-' 'is to be stopped, with its volume' 'demo-2 is fenced' "Forwarding from"
eventually 120 "demo-2 is back" whole_again
block $docs/observe.md 'kubectl get qec demo -o yaml'
block $docs/observe.md 'kubectl quorate etcdctl demo'
said OK 'Snapshot saved'
block $docs/observe.md 'kubectl quorate status demo -o json'
equal "the operator's state" Running "$(cat "$work/output")"
block $docs/troubleshooting.md 'kubectl quorate status demo'
block $docs/console.md 'helm upgrade quorate charts/quorate'
rolled_out
block $docs/console.md 'kubectl -n quorate-system create serviceaccount console'
kubectl create namespace team-a >/dev/null
block $docs/console.md 'kubectl -n team-a create serviceaccount console'
kubectl delete namespace team-a --wait=false >/dev/null
block $docs/console.md 'kubectl -n quorate-system port-forward' 'kubectl -n' 'endless kubectl -n'
said "Forwarding from"

# --- backups, and a cluster from one of them
s3_gateway secret
sed "s|bucket: my-backups|bucket: bucket\n    endpoint: http://s3.$ns.svc:7070|; s|region: .*|region: us-east-1|" deploy/samples/backup.yaml >"$work/backup.yaml"
block $docs/backup.md 'kubectl create secret generic s3-credentials' AWS_ACCESS_KEY_ID=... AWS_ACCESS_KEY_ID=backup \
  AWS_SECRET_ACCESS_KEY=... AWS_SECRET_ACCESS_KEY=secret deploy/samples/backup.yaml backup.yaml
said Verified nightly
is_verified() { [ "$(kubectl -n "$ns" get etcdbackup before-the-move -o jsonpath='{.status.phase}')" = Verified ]; }
eventually 120 "the backup of the sample is verified" is_verified
block $docs/backup.md 'etcdctl snapshot save' 'etcdctl ' 'kubectl quorate etcdctl demo --member=demo-2 -- '
said 'Snapshot saved'
block $docs/backup.md 'quorate restore backup.db' /var/lib/quorate "$work/restored"
sed 's/nightly-202611290200/before-the-move/' deploy/samples/restore.yaml >"$work/restore.yaml"
block $docs/restore.md 'kubectl apply -f deploy/samples/restore.yaml' deploy/samples/restore.yaml restore.yaml
ready restored 3
drop_cluster restored
block $docs/restore.md 'kubectl get pvc'
said joined

# --- the commands of every alert's page
for page in docs/runbooks/*.md; do
  case $page in
    # its last command asks for cert-manager's resources
    */QuorateClusterCertificateExpiring.md) block "$page" '*' ' NS' " $ns" 'kubectl get certificates' 'echo kubectl get certificates' ;;
    */QuorateAccessNotReady.md) ;; # below, once there is a user
    *) if grep -q ' NS' <(tests/docs/block.py "$page" '*'); then block "$page" '*' ' NS' " $ns"; else block "$page" '*'; fi ;;
  esac
done

# --- alarms, a fence, members and nodes
block $docs/fence.md 'kubectl quorate fence demo demo-2' ' NS' " $ns" "kubectl quorate status demo -n $ns " "$(fenced) "
said 'demo-2 is fenced'
eventually 120 "demo-2 is back" whole_again
block $docs/alarms.md 'etcdctl del --prefix' 'etcdctl del' 'kubectl quorate etcdctl demo -- del' 'etcdctl compact' 'kubectl quorate etcdctl demo -- compact' \
  'etcdctl endpoint' 'kubectl quorate etcdctl demo -- endpoint' 'etcdctl alarm' 'kubectl quorate etcdctl demo -- alarm'
said compacted
if [ "${E2E_RECORD:-}" = 1 ]; then
  screen new-session -d -x 112 -y 30 "KUBECONFIG='$work/kubeconfig' PATH='$work/bin:$PATH' kubectl quorate top demo"
fi
block $docs/alarms.md 'etcdctl endpoint hashkv' 'etcdctl endpoint hashkv --cluster' 'kubectl quorate etcdctl demo -- endpoint hashkv' 'etcdctl alarm' 'kubectl quorate etcdctl demo -- alarm'
if [ "${E2E_RECORD:-}" = 1 ]; then
  shows_the_successor() { screen capture-pane -p | grep -q '^demo-4 '; }
  eventually 60 "the terminal shows the successor" shows_the_successor
  { echo '$ kubectl quorate top demo'; screen capture-pane -pe; } >docs/transcripts/top.txt
fi
eventually 180 "demo-2 was replaced" is_no_member demo demo-2
ready demo 3
block $docs/nodes.md 'kubectl patch qec demo' '"demo-1", "demo-2"' '"demo-1"'
eventually 180 "demo-1 was replaced" is_no_member demo demo-1
ready demo 3
block $docs/nodes.md 'kubectl annotate node NODE' NODE qrt-node1
kubectl annotate node qrt-node1 quorate.dev/ignore-cordon- >/dev/null
kubectl -n "$ns" delete etcdbackupschedule nightly >/dev/null
kubectl -n "$ns" delete pod s3 >/dev/null # without a controller it would hold a drain up
spare_is_there=yes
spare_node_comes
node=$(node_of "$(follower demo)")
block $docs/nodes.md 'kubectl drain NODE' NODE "$node"
said drained
kubectl uncordon "$node" >/dev/null
ready demo 3

# --- changes
before=$(kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=member -o jsonpath='{.items[*].metadata.uid}')
block $docs/upgrades.md "kubectl patch qec demo --type merge -p '{\"spec\": {\"resources\"" 'kubectl get qec demo --watch' 'endless kubectl get qec demo --watch'
has_requests() { [ "$(kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=member -o jsonpath='{.items[*].spec.containers[0].resources.requests.memory}')" = "1Gi 1Gi 1Gi" ]; }
eventually 120 "every member has the requests" has_requests
equal "the pods, resized in place" "$before" "$(kubectl -n "$ns" get pods -l app.kubernetes.io/instance=demo,app.kubernetes.io/component=member -o jsonpath='{.items[*].metadata.uid}')"
block $docs/network.md 'helm upgrade quorate'
rolled_out
block $docs/upgrades.md 'helm upgrade quorate' image.tag=0.2.0 image.tag="${quorate_image##*:}"
rolled_out
block $docs/upgrades.md "kubectl patch qec demo --type merge -p '{\"spec\": {\"version\""
block $docs/tls.md 'kubectl patch qec demo'
ready demo 3 300

# --- users
block $docs/hosted-control-planes.md 'etcdctl user add root' 'etcdctl ' 'kubectl quorate etcdctl demo -- '
said 'Authentication Enabled'
block $docs/users.md 'kubectl apply -f deploy/samples/user.yaml'
is_root() { kubectl -n "$ns" get etcdusers,etcdroles -o json | jq -e '[.items[] | any(.status.conditions[]?; .type == "Ready" and .status == "True")] | length == 3 and all' >/dev/null; }
eventually 120 "users and role are as specified" is_root
for key in endpoints ca.crt tls.crt tls.key; do
  kubectl -n "$ns" get secret app-connection -o json | jq -r --arg key $key '.data[$key]' | base64 -d >"$work/$key"
done
contains "$(cat "$work/endpoints")" "https://demo-client.$ns.svc:2379"
kubectl -n "$ns" port-forward service/demo-client 2379 >/dev/null 2>&1 &
forward=$!
block $docs/users.md 'etcdctl --endpoints' '"$(cat endpoints)"' https://localhost:2379 'etcdctl --' 'etcdctl --dial-timeout=10s --command-timeout=20s --'
kill "$forward"
forward=
said OK
block docs/runbooks/QuorateAccessNotReady.md '*' ' NS' " $ns"

# --- the size, sleep, and the end
block $docs/first-cluster.md 'kubectl scale qec demo --replicas=5'
wants_five() { [ "$(status demo observedGeneration)" = "$(kubectl -n "$ns" get qec demo -o jsonpath='{.metadata.generation}')" ] && [ "$(condition demo Ready)" = False ]; }
eventually 60 "the operator has seen the size" wants_five
block $docs/first-cluster.md 'kubectl scale qec demo --replicas=0'
sleeps() { [ "$(status demo replicas)" = 0 ]; }
eventually 180 "every member has stopped" sleeps
kubectl -n "$ns" scale qec demo --replicas=3 >/dev/null
ready demo 3
block $docs/first-cluster.md "kubectl patch qec demo --type=merge -p '{\"spec\":{\"deletionProtection\""
block $docs/first-cluster.md 'kubectl delete qec demo' 'kubectl delete qec demo' 'if kubectl delete qec demo; then exit 1; fi'
said deletionProtection
block $docs/first-cluster.md "kubectl patch qec demo --type=merge -p '{\"spec\":{\"backupBeforeDeletion\""
block $docs/move-to-etcd.md 'kubectl scale qec demo --replicas=0'
block $docs/move-to-etcd.md "kubectl patch qec demo --type=merge -p '{\"spec\":{\"deletionProtection\":false"
eventually 90 "nothing of demo is left" gone demo
kubectl -n quorate-system delete serviceaccount console >/dev/null
kubectl delete clusterrolebinding console-view >/dev/null

# --- a laptop
block $docs/hosts.md 'quorate local deploy/samples/local-demo.yaml' 'quorate local' 'endless quorate local'
said 'demo-1 leads'
cp deploy/samples/local-demo.yaml "$work/cluster.yaml"
block $docs/console.md 'quorate local cluster.yaml --console' 'quorate local' 'endless quorate local'
said 'demo-1 leads' http://127.0.0.1:

# As the run found it.
spare_is_there=
spare_node_goes
helm upgrade --install quorate charts/quorate --namespace quorate-system --set allNamespaces=true --set "$(image_values "$quorate_image")" >/dev/null
rolled_out
