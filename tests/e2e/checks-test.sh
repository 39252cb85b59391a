#!/usr/bin/env bash
# Tests checks.sh and lib.sh with a kubectl that fails or prints nothing: no check of a scenario passes because of it,
# and a scenario that ends says why. Then what `cluster.sh clear` does about a run that was killed. Needs jq, no
# Kubernetes and no root; run.sh runs it first.
# shellcheck disable=SC2016 # the scenarios expand these
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
started=() # process ids
trap 'kill -9 "${started[@]}" 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$work/bin"

# The answers are files: "log", "state" (the pod's phase) and "list"; a missing one is a command that fails.
# "log-fails" is how often reading the log fails at first.
cat >"$work/bin/kubectl" <<'END'
#!/usr/bin/env bash
answer() { [ -e "$FAKE/$1" ] || { echo "kubectl: no answer" >&2; exit 1; }; cat "$FAKE/$1"; }
case " $* " in
  *" apply "*) cat >>"$FAKE/applied" ;;
  *" delete "*) ;;
  *" logs "*)
    fails=$(cat "$FAKE/log-fails" 2>/dev/null || echo 0)
    [ "$fails" = 0 ] || { echo $((fails - 1)) >"$FAKE/log-fails"; echo "kubelet does not answer" >&2; exit 1; }
    answer log ;;
  *" get pod "*jsonpath*) answer state ;;
  *" get pod "*" json "*)
    jq -n --arg phase "$(answer state)" '{metadata: {name: "p"}, spec: {nodeName: "node-7"}, status: {phase: $phase, reason: "Evicted",
      containerStatuses: [{name: "main", state: {terminated: {exitCode: 42}}}]}}' ;;
  *) answer list ;;
esac
END
# Waits take no time.
printf '#!/bin/sh\n' >"$work/bin/sleep"
chmod +x "$work/bin/"*

answers() { rm -rf "$work/fake"; mkdir "$work/fake"; while [ $# -gt 0 ]; do printf '%s' "$2" >"$work/fake/$1"; shift 2; done; }
# scenario TEXT: as run.sh runs one; its status is in $status, its output in $work/out and $work/err
scenario() {
  status=0
  printf '%s\n' "$1" >"$work/scenario.sh"
  FAKE=$work/fake PATH=$work/bin:$PATH ns=test bash -euo pipefail -c '. tests/e2e/lib.sh; report_errors; . "$1"' - "$work/scenario.sh" \
    </dev/null >"$work/out" 2>"$work/err" || status=$?
}
tested=0
fail() { echo "checks-test.sh: $*" >&2; sed 's/^/  out: /' "$work/out" >&2; sed 's/^/  err: /' "$work/err" >&2; exit 1; }
passes() { # passes WHAT TEXT [OUTPUT]
  scenario "$2"
  [ $status = 0 ] || fail "$1: it ended with status $status"
  [ $# -lt 3 ] || [ "$(cat "$work/out")" = "$3" ] || fail "$1: wanted \"$3\""
  tested=$((tested + 1))
}
ends() { # ends WHAT TEXT REASON: before its last line, and with this reason
  scenario "$2"$'\necho it went on'
  [ $status != 0 ] || fail "$1: it passed"
  ! grep -q 'it went on' "$work/out" || fail "$1: it went on"
  grep -qE -- "$3" "$work/err" || fail "$1: no reason \"$3\""
  tested=$((tested + 1))
}

# --- a pod's log and its result
answers state Succeeded log $'key\nvalue'
passes "a log" 'x=$(etcdctl_pod demo get key); echo "$x"' $'key\nvalue'
answers state Succeeded log value log-fails 3
passes "a log that is there later" 'x=$(etcdctl_pod demo get key); echo "$x"' value
answers state Succeeded
ends "a log that cannot be read" 'x=$(etcdctl_pod demo get key)' 'FAILED: its log cannot be read: pod p on node-7: Succeeded'
answers state Succeeded log ''
passes "an empty log" 'x=$(etcdctl_pod demo get key); echo "[$x]"' '[]'
answers state Failed log 'Error: no'
passes "a pod that failed, where that is wanted" 'if x=$(etcdctl_pod demo put key value 2>&1); then exit 1; fi; contains "$x" "Error: no" "exitCode\":42" Evicted'
ends "a pod that failed" 'x=$(etcdctl_pod demo get key)' 'on node-7: Failed; Evicted; main .*"exitCode":42'

# --- contents
answers state Succeeded log $'key\nvalue'
passes "equal contents" 'a=$(content old); b=$(content new); equal what "$a" "$b"'
ends "contents that differ" 'a=$(content old); echo longer >>"$FAKE/log"; b=$(content new); equal what "$a" "$b"' 'wanted "10 bytes, .*", got "16 bytes'
answers state Succeeded log ''
ends "an empty content" 'a=$(content old)' 'FAILED: old has no keys'
answers state Failed log 'Error: no'
ends "a content that cannot be read" 'a=$(content old)' 'FAILED: the keys of old cannot be read'

# --- what is not there
answers list ''
passes "none" 'none pods && nothing what kubectl get pods && gone demo'
passes "no step" 'prints_nothing status demo step'
ends "two missing answers" 'equal what "$(status a id)" "$(status b id)"' 'FAILED: what: there is nothing to compare'
answers list pod/one
passes "one" 'if none pods; then exit 1; fi; if gone demo; then exit 1; fi'
ends "one that must not be" 'nothing what kubectl get pods' 'FAILED: what: wanted none, got "pod/one"'
answers
passes "no answer is not none" 'for check in "none pods" "gone demo" "prints_nothing status demo step" "is_no_member demo demo-1" "is_another_pod p uid" "still before members demo"; do
  if $check 2>/dev/null; then echo "passed: $check"; fi; done' ''
ends "nothing, without an answer" 'nothing what kubectl get pods' 'FAILED: what: this failed: kubectl get pods'
ends "a verdict on the store without metrics" store_verdict 'FAILED: status 1 of: metrics='
answers list ''
passes "members that are unknown are not gone" 'if is_no_member demo demo-1; then exit 1; fi'
answers list 'demo-2 demo-3'
passes "a member that is gone" 'is_no_member demo demo-1; if is_no_member demo demo-2; then exit 1; fi'
passes "what is still there" $'still $\'demo-1\\ndemo-2\' members demo' demo-2
passes "counts" 'count ""; count $'"'a\nb'" $'0\n2'

# --- a scenario that ends says why, and where
ends "a failed command" $'\nfalse' 'FAILED: status 1 of: false, at .*scenario.sh:2'
ends "a failed command in a function" $'f() {\n  false\n  true\n}\nf' 'FAILED: status 1 of: false, at .*scenario.sh:2 .*scenario.sh:5'
ends "die in a condition" 'eventually 5 what die loud' 'FAILED: loud'
ends "die in a subshell" 'x=$(die quiet)' 'FAILED: quiet'
passes "failures in conditions are none" 'if false; then :; fi; false || true; x=$(false; echo still); eventually 5 what true >/dev/null; echo "$x"' still
grep -q . "$work/err" && fail "a failure was reported that is none"
ends "a condition that never holds" 'SECONDS=0; eventually 0 what false' 'FAILED: what: not within 0 s'
ends "what must never be" 'never 5 what true' 'FAILED: what: it happened'
scenario 'die "the reason"'
[ "$(grep -c -- '--- clusters' "$work/err")" = 1 ] || fail "the cluster is not shown once"

# --- names of pods
answers state Succeeded log value
passes "names" 'for n in $(seq 20); do (etcdctl_pod demo get "$n" >/dev/null; etcdctl_pod demo get "$n" >/dev/null) & done; wait'
names=$(jq -r .metadata.name "$work/fake/applied" | sort)
[ "$(uniq <<<"$names" | wc -l)" = 40 ] || fail "a name was used twice: $names"
if grep -vxE '[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?' <<<"$names"; then fail "these are no names of pods"; fi

# --- what drops a status, in the scenarios themselves
if grep -nE '\[ -z "\$\(|equal "[^"]*" ""|! kubectl |![^|&]*members demo \||\| sha256sum\)"|<\((members|pods)|local [a-z]+=\$\([^(]' tests/e2e/lib.sh tests/e2e/scenarios/*.sh | grep -v 'sort "\$work'; then
  fail "these pass if their command fails: see checks.sh"
fi
# --- a run that was killed: its scenario still runs, a process id was used again, and a program was not recorded
export QUORATE_E2E_DIR=$work/cluster
# cleared COMMAND: clear_remains, with this for down, which would touch the machine's networks
cleared() {
  status=0
  bash -euo pipefail -c 'does=$1; . tests/kubernetes/cluster.sh; down() { eval "$does"; }; clear_remains' - "$1" >"$work/out" 2>"$work/err" || status=$?
}
runs() { grep -q . "/proc/$1/cmdline" 2>/dev/null; } # a zombie has none
mkdir -p "$QUORATE_E2E_DIR/scenarios"
touch "$QUORATE_E2E_DIR/of-a-run"
setsid bash -c '(while :; do command -p sleep 0.1; done) & echo $! >"$QUORATE_E2E_DIR/child"; wait' & started+=($!); disown
leader=$! && echo $leader >"$QUORATE_E2E_DIR/scenarios/one"
setsid env -u QUORATE_E2E_DIR sleep 100 & started+=($!); disown
echo $! >"$QUORATE_E2E_DIR/scenarios/two"
another=$!
until [ -s "$QUORATE_E2E_DIR/child" ] && grep -qa '^sleep' "/proc/$another/cmdline"; do sleep 0.1; done
child=$(cat "$QUORATE_E2E_DIR/child") && started+=("$child")
cleared 'rm -rf "$dir"'
[ $status = 0 ] || fail "clear failed"
for process in "$leader" "$child"; do if runs "$process"; then fail "a scenario of a killed run goes on"; fi; done
runs "$another" || fail "clear ended a process that is not the run's"
mkdir -p "$QUORATE_E2E_DIR"
ln -s "$(command -v sleep)" "$work/bin/kubelet"
bash -c 'exec -a "kubelet --config=$QUORATE_E2E_DIR/kubelet.yaml" "$1" 100' - "$work/bin/kubelet" & started+=($!); disown
kubelet=$!
until [ "$(cat "/proc/$kubelet/comm")" = kubelet ]; do sleep 0.1; done
cleared 'rm -rf "$dir"'
[ $status != 0 ] || fail "clear passed with a kubelet that runs"
grep -q "^process $kubelet: kubelet --config=" "$work/err" || fail "clear does not name the kubelet"
kill -9 "$kubelet"
while runs "$kubelet"; do sleep 0.1; done
cleared false
[ $status = 0 ] || fail "clear found something where nothing is"

echo "checks-test.sh: $tested cases and three clearings passed"
