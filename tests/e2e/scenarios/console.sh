# shellcheck shell=bash
# by chart
# the console on a real API server: tokens of its audience alone, who may list clusters of a namespace sees them, and a right that is taken away ends the stream
work=$(mktemp -d)
helm upgrade quorate charts/quorate --namespace quorate-system --reuse-values --set console.enabled=true >/dev/null
stop() { kill "${forward:-}" "${reader:-}" 2>/dev/null || true; helm rollback quorate --namespace quorate-system >/dev/null 2>&1 || true; rm -rf "$work"; }
trap stop EXIT
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
for account in viewer stranger; do kubectl -n "$ns" create serviceaccount $account >/dev/null; done
kubectl -n "$ns" create rolebinding viewer --clusterrole=view --serviceaccount="$ns:viewer" >/dev/null
apply_cluster demo 1
ready demo 1

one_operator() { [ "$(kubectl -n quorate-system get pods -l app.kubernetes.io/component=operator -o name | grep -c .)" = 1 ]; }
eventually 60 "only the new operator is left" one_operator
kubectl -n quorate-system port-forward service/quorate-console :8082 >"$work/forward" 2>&1 &
forward=$!
forwarded() { grep -q '^Forwarding from 127.0.0.1:' "$work/forward"; }
eventually 30 "the console's port is forwarded" forwarded
console=http://$(sed -n 's/^Forwarding from \(127.0.0.1:[0-9]*\) .*/\1/p' "$work/forward" | head -1)
token() { kubectl -n "$ns" create token "$1" --audience "${2:-quorate.dev}"; }
# look TOKEN QUERY: what is sent in the first seconds
look() { curl -sSN --max-time 4 ${1:+-H "Authorization: Bearer $1"} "$console/stream?$2" 2>/dev/null || true; }
viewer=$(token viewer)
contains "$(curl -sS "$console/")" "Quorate console"
contains "$(look '' "namespace=$ns")" "give a token"
contains "$(look "$(kubectl -n "$ns" create token viewer)" "namespace=$ns")" "one without that audience is not accepted"
contains "$(look "$(token stranger)" "namespace=$ns")" "stranger may not list etcdclusters in namespace $ns"
contains "$(look "$viewer" "")" "may not list etcdclusters in all namespaces"
# Events and positions are those since the operator began.
shown() { contains "$(look "$viewer" "namespace=$ns&of=$ns&cluster=demo")" '"name":"demo"' '"appliedIndex"' '"shown"'; }
shown
log "the console shows demo to who may list it, and nobody else"

curl -sSN --max-time 120 -H "Authorization: Bearer $viewer" "$console/stream?namespace=$ns" >"$work/stream" 2>/dev/null &
reader=$!
began() { grep -q '^event: document' "$work/stream"; }
eventually 20 "a stream has begun" began
kubectl -n "$ns" delete rolebinding viewer >/dev/null
ended() { grep -q '^event: refused' "$work/stream"; }
eventually 70 "the stream of a viewer without the right ends" ended
stop
trap - EXIT
kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
drop_cluster demo
