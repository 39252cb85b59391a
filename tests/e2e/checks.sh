# Shared by the scenarios, sourced by lib.sh: what ends a scenario, and checks that do not pass because a command
# failed. Never run, and asks nothing of a cluster by itself.
#
# Bash drops the status of a command inside "$(...)" among arguments, in <(...), and behind `!`: its empty answer then
# looks like "there is none". So an answer that is compared is assigned first, alone on its line (`local x=$(...)`
# and a second assignment beside it drop the status too), and "there is none" is asked with none, prints_nothing,
# nothing or still.

log() { printf '%s  %s\n' "$(date +%T)" "$*"; }

# Ends the scenario. In a subshell only that one ends, with the reason: the scenario does, at the command that wanted its
# answer, and shows the cluster then. In a condition of eventually or never, whose output is dropped, it is said all
# the same.
die() {
  if [ "$BASHPID" = $$ ] && [ -n "${aside:-}" ]; then exec 2>&4; fi
  log "FAILED: $*" >&2
  [ "$BASHPID" != $$ ] || show_cluster
  exit 1
}

# The trap for commands that end a scenario by errexit: which one, and where.
report_errors() { set -E; trap 'command_failed $? "$BASH_COMMAND"' ERR; }
command_failed() {
  local places='' i
  [ "$BASHPID" = $$ ] || return 0
  for ((i = 1; i < ${#BASH_SOURCE[@]}; i++)); do places+=" ${BASH_SOURCE[i]}:${BASH_LINENO[i - 1]}"; done
  log "FAILED: status $1 of: $2, at$places" >&2
  show_cluster
}

# Once: the traps of a scenario that ends may fail as well.
show_cluster() {
  [ -z "${cluster_is_shown:-}" ] || return 0
  cluster_is_shown=yes
  {
    echo "--- clusters"; kubectl -n "$ns" get qec -o wide
    echo "--- status"; kubectl -n "$ns" get qec -o json | jq '.items[].status'
    echo "--- recoveries"; kubectl -n "$ns" get qr -o json | jq ".items[] | {name: .metadata.name, status}"
    echo "--- users and roles"; kubectl -n "$ns" get etcdusers,etcdroles -o json | jq '.items[] | {kind, name: .metadata.name, status}'
    echo "--- backups"; kubectl -n "$ns" get qb,qbs,qbsched -o json | jq '.items[] | {kind, name: .metadata.name, status}'
    echo "--- objects"; kubectl -n "$ns" get sts,pods,pvc,svc,pdb -o wide
    echo "--- events"; kubectl -n "$ns" get events --sort-by=.lastTimestamp | tail -40
    echo "--- operator"; kubectl -n quorate-system logs deployment/quorate --tail=60
    local pod
    for pod in $(kubectl -n "$ns" get pods -l app.kubernetes.io/name=quorate -o name); do
      echo "--- $pod"; kubectl -n "$ns" logs "$pod" --tail=25
    done
  } >&2 2>&1 || true
}

# holds COMMAND...: without its output; descriptor 4 is for die
holds() { local aside=yes; "$@" 4>&2 >/dev/null 2>&1; }

# eventually SECONDS WHAT COMMAND...: polls until the command succeeds
eventually() {
  local seconds=$1 what=$2 until=$((SECONDS + $1)) began=$SECONDS; shift 2
  until holds "$@"; do
    [ $SECONDS -lt $until ] || die "$what: not within $seconds s"
    sleep 0.5
  done
  log "$what ($((SECONDS - began)) s)"
}

# never SECONDS WHAT COMMAND...: the command must fail for so long. It must not fail because the cluster cannot be
# asked: compare with !=, or die then.
never() {
  local seconds=$1 what=$2 until=$((SECONDS + $1)); shift 2
  while [ $SECONDS -lt $until ]; do
    if holds "$@"; then die "$what: it happened"; fi
    sleep 0.5
  done
}

# equal WHAT WANTED GOT: two answers that are both missing are not equal
equal() {
  [ -n "$2" ] || die "$1: there is nothing to compare \"$3\" with"
  [ "$2" = "$3" ] || die "$1: wanted \"$2\", got \"$3\""
}

contains() { # contains TEXT WORDS...: the text contains each of them
  local text=$1 words; shift
  for words in "$@"; do
    case $text in *"$words"*) ;; *) die "no \"$words\" in: $text" ;; esac
  done
}

# prints_nothing COMMAND...: it succeeds, and prints nothing
prints_nothing() { local printed; printed=$("$@") && [ -z "$printed" ]; }
# none RESOURCE ARGUMENT...: Kubernetes answers that there is none of them
none() { prints_nothing kubectl -n "$ns" get "$@" -o name --ignore-not-found; }
nothing() { # nothing WHAT COMMAND...: the command succeeds, and prints nothing
  local what=$1 printed; shift
  printed=$("$@") || die "$what: this failed: $*"
  [ -z "$printed" ] || die "$what: wanted none, got \"$printed\""
}
# still BEFORE COMMAND...: the lines of BEFORE that the command still prints, both sorted
still() {
  local now
  now=$("${@:2}") || return 1
  comm -12 <(printf '%s\n' "$1") <(printf '%s\n' "$now")
}
count() { if [ -z "$1" ]; then echo 0; else wc -l <<<"$1"; fi; } # count LINES
