# shellcheck shell=bash
# own cluster
# a control plane that stores into a cluster lives through kubectl drain and the replacement of every node under it, one by one, at once upon another, and two together: no request fails
#
# The control plane (kube-apiserver and kube-controller-manager) runs as pods on a node of its own, and knows the
# cluster by the names of its three slots. The load is a separate program that uses client-go: it counts every
# attempt, and its watches must deliver every change of an object once and in order.
work=$(mktemp -d)
hosted_node=4
cleanup() {
  local pid
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
export hosted="$work/kubeconfig" minimum="$work/minimum"
# shellcheck source=tests/e2e/hosted.sh
source tests/e2e/hosted.sh

kubectl -n kube-system scale deployment/coredns --replicas=2 >/dev/null
add_node() { tests/kubernetes/cluster.sh node "$1" && log "node $1 is there"; }
replace_node() { tests/kubernetes/cluster.sh forget "$1"; add_node "$1"; }
add_node $hosted_node
kubectl taint node qrt-node$hosted_node hosted=only:NoSchedule >/dev/null
hosted_image $hosted_node
apply_cluster demo 3
policy demo Gate # of the two at once each waits for the other, and none is evicted before it was prepared
ready demo 3
slots demo 3
first=$(members demo)

# --- the control plane
hosted_setup
hosted_apiserver $hosted_node "$(slot_endpoints demo)"
hosted_pod controllers 10257 $hosted_node kube-controller-manager --kubeconfig=/keys/kubeconfig --service-account-private-key-file=/keys/sa.key \
  --use-service-account-credentials=true --leader-elect=true --cert-dir=/certificates
eventually 60 "the hosted controller manager is ready" pod_is_ready controllers
has_default_account() { hosted_kubectl -n default get serviceaccount default; } # its controllers work
eventually 60 "the hosted control plane works" has_default_account
restarts() { kubectl -n "$ns" get pods hosted controllers -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'; }

# --- the load without any drain, then the same with drains

show() { sed "s/^/          $1: /" "$2"; }
test-load "$hosted" 60 >"$work/control" 2>&1 || { show control "$work/control"; die "requests failed without any drain"; }
show control "$work/control"

# The number of ready members out of three, sampled all the time: never fewer than a quorum.
sample() {
  local now least=3
  echo 3 >"$minimum"
  while :; do
    now=$(kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json |
      jq '[.items[] | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))] | length') || continue
    [ "$now" -ge "$least" ] || { least=$now; echo "$now" >"$minimum"; }
    sleep 0.2
  done
}
loaded=$EPOCHREALTIME
LOAD_SERIES="$work/series" test-load "$hosted" >"$work/drains" 2>&1 &
loader=$!
echo second,event >"$work/events"
# happened WHAT: for the plot, in seconds since the load began (its first second is used for preparations)
happened() { jq -nr --arg from "$loaded" --arg now "$EPOCHREALTIME" --arg what "$1" '"\(($now | tonumber) - ($from | tonumber) | . * 100 | round / 100),\($what)"' >>"$work/events"; }
sample &
sampler=$!
member_nodes() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort; }
drain() { # drain NODE...: only kubectl drain, like an administrator or a node pool
  local began=$SECONDS now
  kubectl drain "${@/#/qrt-node}" --ignore-daemonsets --delete-emptydir-data --force --timeout=300s >"$work/drain-$1" 2>&1 ||
    { cat "$work/drain-$1"; die "the drain of node $* did not end"; }
  log "drained: node $* ($((SECONDS - began)) s)"
  happened "removed node-$1"
  now=$(member_nodes)
  if grep -qx "qrt-node$1" <<<"$now"; then die "a member is still on node $1"; fi
}
add_node 5
for n in 1 2 3; do # the next one as soon as kubectl drain has finished
  drain $n
  replace_node $n
done

# --- two at once: each drain waits for the other's member, only through the PDB
ready demo 3
add_node 6
mapfile -t both < <(member_nodes | head -2 | sed 's/^qrt-node//')
drain "${both[0]}" & one=$!
drain "${both[1]}" & other=$!
wait $one || die "the first of two drains failed"
wait $other || die "the second of two drains failed"
for n in "${both[@]}"; do kubectl uncordon "qrt-node$n" >/dev/null; done
ready demo 3
equal "the members, each moved with its disk" "$first" "$(members demo)"
slots demo 3
kill $sampler
kill -TERM $loader
if ! wait $loader; then show drains "$work/drains"; die "requests failed while nodes were drained"; fi
[ "$(cat "$minimum")" -ge 2 ] || die "only $(cat "$minimum") members were ready at once"
log "never fewer than $(cat "$minimum") members were ready"
equal "restarts of the hosted control plane" "0 0" "$(restarts)"
# E2E_RECORD=1 leaves the series in docs/data; tests/docs/images.py draws it
if [ "${E2E_RECORD:-}" = 1 ]; then
  { printf '# recorded: %s, commit %s, %s cores, three nodes of one machine\n# command: E2E_RECORD=1 make e2e SCENARIO=hosted-control-plane\n' \
      "$(date -u +%F)" "$(git rev-parse --short HEAD)" "$(nproc)"
    printf '# %s\n' "$(tail -1 "$work/drains")"
    cat "$work/series"; } >docs/data/drains.csv
  cp "$work/events" docs/data/drains-events.csv
fi

# --- everything as before, for the next scenario
kubectl -n "$ns" delete pod hosted controllers --wait=true >/dev/null
drop_cluster demo
kubectl drain qrt-node5 qrt-node6 --ignore-daemonsets --delete-emptydir-data --force --timeout=120s >/dev/null 2>&1 || die "the spare nodes were not drained"
for n in 4 5 6; do tests/kubernetes/cluster.sh forget $n; done
kubectl -n kube-system scale deployment/coredns --replicas=1 >/dev/null
show drains "$work/drains"
