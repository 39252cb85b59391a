# shellcheck shell=bash
# 1 -> 3 -> 5 -> 3 under a writer that loses no acknowledged write, the operator killed in each step
scale() { # scale TO VOTERS-SEEN-BEFORE-THE-KILL
  kubectl -n "$ns" scale qec demo --replicas="$1" >/dev/null
  say "scaled to $1"
  eventually 90 "the change has begun" begun "$2"
  operator_kill
  ready demo "$1" 300
}
begun() { [ "$(members demo | grep -c .)" != "$1" ]; }
apply_cluster demo 1
ready demo 1
foreseen=$(kubectl -n "$ns" get qec demo -o yaml | sed 's/^  replicas: 1$/  replicas: 3/' | quorate_plugin plan -n "$ns" -f -)
says "$foreseen" 'promote demo-2' 'promote demo-3' 'if this were applied' 'THEN      3 voters'
equal "voters after a plan" 1 "$(members demo | grep -c .)"
witness_start demo resize
scale 3 1
scale 5 3
before=$(leader demo)
scale 3 5
say "the leader was $before and is $(leader demo)"
slots demo 3
says "$(quorate_plugin status demo -n "$ns")" 'CLUSTER ' 'at work' 'demo-' 'nothing is to be done'
says "$(quorate_plugin plan demo -n "$ns")" 'nothing is to be done'
witness_stop demo resize
equal "sets that are left" 3 "$(kubectl -n "$ns" get sts -l app.kubernetes.io/instance=demo -o name | grep -c .)"
drop_cluster demo
