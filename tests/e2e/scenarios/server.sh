# shellcheck shell=bash
# soak
# alone
# spec.server changes under load: quota, compaction, timings and a flag are rolled out one member at a time, the leader last, and no write fails; a flag that the server does not know is refused and no pod is restarted
pods() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o jsonpath='{range .items[*]}{.metadata.name}={.metadata.uid}{"\n"}{end}' | sort; }
rolled() { # every pod was replaced, and all run the current spec
  is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ] && prints_nothing still "$before" pods
}
change() { # change WHAT SERVER: spec.server as JSON, until every member has it
  before=$(pods)
  export before
  kubectl -n "$ns" patch qec demo --type=merge -p "{\"spec\":{\"server\":$2}}" >/dev/null
  eventually 240 "every member has $1" rolled
}
has_arguments() { # has_arguments ARGUMENT...: every member's container has each of them; in the test cluster, its process too
  local arguments member argument
  for member in $(members demo); do
    arguments=$(kubectl -n "$ns" get pod "$member-0" -o jsonpath='{.spec.containers[0].args[*]}')
    [ -n "${E2E_EXISTING:-}" ] || arguments="$arguments $(pgrep -af -- "--name=$member --data-dir" | grep -F " --cluster-uid=$(status demo clusterUID) " || die "no process of $member")"
    for argument in "$@"; do
      [ -n "${E2E_EXISTING:-}" ] || [ "$(grep -oF -- " $argument" <<<" $arguments" | wc -l)" -ge 2 ] || die "$member does not run with $argument: $arguments"
      contains "$arguments" "$argument"
    done
  done
}
quotas() { etcdctl_at "$(slot_endpoints demo)" endpoint status --write-out=json | jq -c '[.[].Status.dbSizeQuota]'; }
reason() { kubectl -n "$ns" get qec demo -o jsonpath="{.status.conditions[?(@.type==\"$1\")].reason}"; }

apply_cluster demo 3
ready demo 3
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"updateStrategy":{"minReadySeconds":3}}}' >/dev/null
equal "Durable" Synced "$(reason Durable)"
first=$(members demo)
witness_start demo server

last=$(leader demo)
before=$(pods)
export before
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"server":{"quota":"64Mi"}}}' >/dev/null
one_is_new() { local old; old=$(still "$before" pods) && [ "$(count "$old")" -lt 3 ]; }
eventually 120 "the first pod is replaced" one_is_new
old=$(still "$before" pods)
grep -q "^$last-0=" <<<"$old" || die "the leader $last was not the last one"
operator_kill
eventually 240 "every member has the quota" rolled
equal "the quotas that the members report" '[67108864,67108864,67108864]' "$(quotas)"

change "compaction and slower timings" '{"autoCompaction":{"mode":"Revision","retention":"1000"},"heartbeatIntervalMilliseconds":500,"electionTimeoutMilliseconds":5000}'
has_arguments --auto-compaction-mode=revision --auto-compaction-retention=1000 --heartbeat-interval=500 --election-timeout=5000
change "its own timings again, a larger quota and a flag" '{"quota":"128Mi","heartbeatIntervalMilliseconds":null,"electionTimeoutMilliseconds":null,"extraArgs":[{"name":"max-request-bytes","value":"2097152"}]}'
has_arguments --quota-backend-bytes=134217728 --max-request-bytes=2097152
equal "the quotas that the members report" '[134217728,134217728,134217728]' "$(quotas)"

# Settings with which no server starts: the status reports it, and no member is restarted.
before=$(pods)
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"server":{"extraArgs":[{"name":"max-request-byte","value":"1"}]}}}' >/dev/null
stalled() { [ "$(condition demo Stalled)" = True ] && [ "$(reason Stalled)" = "$1" ]; }
eventually 60 "the flag is refused" stalled InvalidSpec
contains "$(status demo summary)" 'knows no flag max-request-byte' 'did you mean max-request-bytes'
log "$(status demo summary)"
touched() { [ "$(pods)" != "$before" ]; }
never 15 "a pod is touched" touched
# The same for timings too far from the present ones.
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"server":{"heartbeatIntervalMilliseconds":1000,"electionTimeoutMilliseconds":10000,"extraArgs":[{"name":"max-request-bytes","value":"2097152"}]}}}' >/dev/null
eventually 60 "the timings are refused" stalled TimingsRefused
log "$(status demo summary)"
never 15 "a pod is touched" touched
# Settings that the CRD itself refuses.
if message=$(kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"server":{"quota":"512Mi"}}}' 2>&1); then die "a quota that the volume does not hold was accepted"; fi
contains "$message" 'at most a quarter of storage.size'
if message=$(kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"server":{"extraArgs":[{"name":"data-dir","value":"/tmp"}]}}}' 2>&1); then die "a flag of the operator was accepted"; fi
contains "$message" 'the operator sets this flag itself'
# The correction reaches every member at once.
change "what is right" '{"heartbeatIntervalMilliseconds":null,"electionTimeoutMilliseconds":null,"extraArgs":[{"name":"max-request-bytes","value":"3145728"}]}'
has_arguments --max-request-bytes=3145728
equal "the members" "$first" "$(members demo)"
witness_stop demo server

# Without syncs members are not reported as durable, and with syncs they are again.
change "no syncs" '{"extraArgs":[{"name":"unsafe-no-fsync","value":"true"}]}'
equal "Durable" UnsafeNoFsync "$(reason Durable)"
change "syncs again" '{"extraArgs":null}'
equal "Durable" Synced "$(reason Durable)"
slots demo 3
drop_cluster demo
