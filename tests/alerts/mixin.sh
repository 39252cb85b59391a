#!/usr/bin/env bash
# etcd's mixin as it is published, its alerts and its dashboard, over three servers of ours and three of real etcd by the same flags: a
# real Prometheus scrapes both, the same faults happen to both, and the same alerts must fire for both, and all but those of a full store end again; and wherever a query
# returns data for etcd, it does for ours. All on loopback, in three minutes.
#
# Of the mixin's settings only the interval of scraping is another one. Of its rules only durations are shorter: a fault of seconds counts
# as one of minutes. Four alerts wait for what cannot be made here, a disk or a network that takes half a second, and fragmentation, which
# ours does not have: of these what they compare must be there.
#
#   QUORATE=path   the binary; else target/debug/quorate
set -euo pipefail
cd "$(dirname "$0")/../.."
exec 3>&1 4>&2
tests/needs.sh go prometheus jq curl
quorate=${QUORATE:-$PWD/target/debug/quorate}
etcd=$PWD/target/interop/bin/etcd etcdctl=$PWD/target/interop/bin/etcdctl
for tool in "$quorate" "$etcd" "$etcdctl"; do
  [ -x "$tool" ] || { echo "tests/alerts/mixin.sh: $tool is missing: make alerts-live" >&2; exit 1; }
done
prometheus=127.0.0.1:24590
kinds="ours-etcd etcd"
client() { case $1 in ours-etcd) echo "127.0.0.1:2451$2" ;; etcd) echo "127.0.0.1:2453$2" ;; esac; } # client KIND N
peer() { case $1 in ours-etcd) echo "127.0.0.1:2452$2" ;; etcd) echo "127.0.0.1:2454$2" ;; esac; }
listens() { (exec 5<>"/dev/tcp/${1%:*}/${1#*:}") 2>/dev/null; }
for address in $prometheus $(for kind in $kinds; do for n in 1 2 3; do client $kind $n; peer $kind $n; done; done); do
  if listens "$address"; then echo "tests/alerts/mixin.sh: another process listens on $address: end it first" >&2; exit 1; fi
done
work=$(mktemp -d)
declare -A members=()
declare -A others=() # processes besides the members, each with a group of its own for what it starts
leave() {
  local code=$? pid
  # First what stops members.
  for pid in "${others[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
  for pid in "${members[@]}"; do kill -CONT "$pid" 2>/dev/null || true; kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  [ $code = 0 ] || { { echo "--- the ends of the logs"; tail -n 3 "$work"/*.log | cut -c1-300; } >&3 2>&4 || true; }
  rm -rf "$work"
}
trap leave EXIT
beside() { # beside NAME COMMAND...: until the end, or until ended NAME
  local name=$1; shift
  set -m
  "$@" 3>&- 4>&- &
  set +m
  others[$name]=$!
}
ended() { # ended NAME
  kill -- "-${others[$1]}" 2>/dev/null || true
  wait "${others[$1]}" 2>/dev/null || true
  unset "others[$1]"
}
die() { echo "tests/alerts/mixin.sh: $*" >&4; exit 1; }
eventually() { # eventually SECONDS WHAT COMMAND...
  local until=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || die "not in time: $what"
    sleep 0.5
  done
}

# --- the mixin, from the module of etcd that has it
export GOFLAGS=-mod=readonly
(
  cd tests/alerts/mixin
  go mod download go.etcd.io/etcd/v3
  CGO_ENABLED=0 go build -trimpath -o "$work/jsonnet" github.com/google/go-jsonnet/cmd/jsonnet
  go list -m -f '{{.Dir}}/contrib/mixin' go.etcd.io/etcd/v3
) >"$work/folder"
mixin=$(cat "$work/folder")
of_mixin() { # of_mixin FILE FIELD: with its own settings
  "$work/jsonnet" -e "((import '$mixin/config.libsonnet') + (import '$mixin/$1') + {_config+:: {scrape_interval_seconds: 2, grafana7x: true}}).$2"
}
of_mixin alerts/alerts.libsonnet prometheusAlerts >"$work/published.json"
of_mixin dashboards/etcd-grafana7x.libsonnet grafanaDashboards | jq -r '.. | .expr? // empty' >"$work/dashboard"
jq '(.groups[].rules[] | .for) = "2s" | (.groups[].rules[] | .expr) |=
  (gsub("\\[15m:1m\\]"; "[40s:1s]") | gsub("\\[(5|15)m\\]"; "[16s]"))' "$work/published.json" >"$work/rules.json"
jq -r '.groups[].rules[].alert' "$work/rules.json" | sort -u >"$work/alerts"
[ "$(wc -l <"$work/alerts")" -ge 12 ] && [ "$(wc -l <"$work/dashboard")" -ge 15 ] || die "the mixin has $(wc -l <"$work/alerts") alerts and $(wc -l <"$work/dashboard") queries"

# --- two clusters and Prometheus
start_member() { # start_member KIND N
  local command=("$etcd") initial m
  [ "$1" = etcd ] || command=("$quorate" server)
  initial=$(for m in 1 2 3; do printf ',m%s=http://%s' $m "$(peer "$1" $m)"; done)
  "${command[@]}" --name="m$2" --data-dir="$work/$1-$2" --log-level=error --metrics=extensive --quota-backend-bytes=$((16 << 20)) \
    --listen-client-urls="http://$(client "$1" "$2")" --advertise-client-urls="http://$(client "$1" "$2")" \
    --listen-peer-urls="http://$(peer "$1" "$2")" --initial-advertise-peer-urls="http://$(peer "$1" "$2")" \
    --initial-cluster="${initial#,}" --initial-cluster-token="$1" --initial-cluster-state=new >>"$work/$1-$2.log" 2>&1 3>&- 4>&- &
  members[$1-$2]=$!
}
end_member() { # end_member KIND N
  kill -9 "${members[$1-$2]}"
  wait "${members[$1-$2]}" 2>/dev/null || true
  unset "members[$1-$2]"
}
ctl() { # ctl KIND N ARGUMENT...
  local endpoint; endpoint=$(client "$1" "$2"); shift 2
  "$etcdctl" --endpoints="http://$endpoint" --command-timeout=5s "$@"
}
serves() { ctl "$1" "$2" put greeting hello; }
for kind in $kinds; do for n in 1 2 3; do start_member $kind $n; done; done
for kind in $kinds; do for n in 1 2 3; do eventually 30 "$kind serves" serves $kind $n; done; done
{
  printf '%s\n' 'global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}' 'rule_files: [rules.json]' scrape_configs:
  for kind in $kinds; do
    printf -- '- {job_name: %s, static_configs: [{targets: ["%s", "%s", "%s"]}]}\n' $kind "$(client $kind 1)" "$(client $kind 2)" "$(client $kind 3)"
  done
} >"$work/prometheus.yaml"
promtool check config "$work/prometheus.yaml" >"$work/check.log" || die "$(cat "$work/check.log")"
watches() { exec prometheus --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/data" --web.listen-address=$prometheus >"$work/prometheus.log" 2>&1; }
beside prometheus watches
began=$(date +%s)
ask() { curl -sf --get "http://$prometheus/api/v1/$1" --data-urlencode "query=$2" "${@:3}" | jq -e '.data.result'; }
fires() { ask query "ALERTS{alertname=\"$1\",alertstate=\"firing\",job=\"$2\"}" | jq -e 'length > 0'; }
fire() { # fire ALERT...: for both
  local alert kind
  for alert in "$@"; do
    for kind in $kinds; do eventually 90 "$alert fires for $kind" fires "$alert" $kind; done
    echo "$alert" >>"$work/fired"
    echo "$alert fires, of both"
  done
}
firing() { ask query 'ALERTS{alertstate="firing"}' | jq -r '.[].metric | "\(.alertname) of \(.job)"'; }
quiet() { [ -z "$(firing)" ] && ask query up | jq -e 'length == 6'; }
# What a client does all the time: requests, a watch, a lease that is kept alive.
busy() { # busy KIND
  exec >/dev/null 2>&1
  ctl "$1" 1 watch greeting & ctl "$1" 1 lease keep-alive "$(ctl "$1" 1 lease grant 60 | awk '{print $2}')" &
  while [ -d "$work" ]; do ctl "$1" 1 put greeting hello; ctl "$1" 1 get greeting; sleep 0.1; done
}
for kind in $kinds; do beside "busy-$kind" busy $kind; done
sleep 20
eventually 20 "nothing fires of two healthy clusters" quiet

# --- members that stand still for a moment, again and again
stall() {
  local pid
  while [ -d "$work" ]; do
    for pid in "${members[@]}"; do kill -STOP "$pid"; done; sleep 0.4
    for pid in "${members[@]}"; do kill -CONT "$pid"; done; sleep 0.2
  done
}
beside stall stall
fire etcdGRPCRequestsSlow
ended stall
for pid in "${members[@]}"; do kill -CONT "$pid"; done
eventually 90 "all ends once they go on" quiet

# --- a leader that changes
leader() { ctl "$1" "$2" endpoint status -w fields | awk '$1 == "\"MemberID\"" {id = $3} $1 == "\"Leader\"" {leader = $3} END {exit id != leader}'; }
member() { printf %x "$(ctl "$1" "$2" endpoint status -w fields | awk '$1 == "\"MemberID\"" {print $3}')"; }
for kind in $kinds; do
  for n in 1 2 3 1 2 3 1; do
    for m in 1 2 3; do
      if leader $kind $m; then [ $m = $n ] || ctl $kind $m move-leader "$(member $kind $n)" >/dev/null; break; fi
    done
    sleep 1
  done
done
fire etcdHighNumberOfLeaderChanges
eventually 90 "all ends once the leader stays" quiet

# --- one member less, and one more, while clients go on
for kind in $kinds; do end_member $kind 3; done
fire etcdMembersDown
for kind in $kinds; do end_member $kind 2; done
fails() { exec >/dev/null 2>&1; while [ -d "$work" ]; do ctl "$1" 1 put greeting hello --command-timeout=300ms || true; done; } # fails KIND
for kind in $kinds; do for n in 1 2 3 4; do beside "fails-$kind-$n" fails $kind; done; done
fire etcdInsufficientMembers etcdNoLeader etcdHighNumberOfFailedGRPCRequests etcdHighNumberOfFailedProposals
for kind in $kinds; do for n in 1 2 3 4; do ended "fails-$kind-$n"; done; done
for kind in $kinds; do for n in 2 3; do start_member $kind $n; done; done
eventually 120 "all ends once the members are back" quiet

# --- a store that fills up to its quota
head -c 100000 /dev/zero | tr '\0' x >"$work/value"
for kind in $kinds; do
  for n in $(seq 400); do
    if ! answer=$(ctl $kind 1 put "large-$n" <"$work/value" 2>&1); then break; fi
  done
  [[ $answer = *"mvcc: database space exceeded"* ]] || die "$kind is not full: $answer"
done
fire etcdExcessiveDatabaseGrowth etcdDatabaseQuotaLowSpace

# --- what fires by no fault here, and the dashboard
over_time() { ask query_range "$1" --data "start=$began" --data "end=$(date +%s)" --data step=2 | jq length; }
sort -u "$work/fired" | comm -13 - "$work/alerts" >"$work/rest"
for alert in $(cat "$work/rest"); do
  query=$(jq -r --arg alert "$alert" '[.groups[].rules[] | select(.alert == $alert)][0].expr | gsub("\n"; " ") | sub(" [<>] .*"; "")' "$work/rules.json")
  for kind in $kinds; do
    found=$(over_time "(${query//job=~\".\*etcd.\*\"/job=\"$kind\"})")
    [ "$found" -gt 0 ] || die "$alert has nothing of $kind to compare: $query"
  done
done
while IFS= read -r query; do
  for kind in $kinds; do
    # shellcheck disable=SC2016 # Grafana's variables
    one=$(sed -e "s/\\\$cluster/$kind/g" -e 's/\$__rate_interval/16s/g' <<<"$query")
    found=$(over_time "$one")
    [ "$found" -gt 0 ] || die "a query of the dashboard returns nothing of $kind: $query"
  done
done <"$work/dashboard"
echo "etcd's mixin: $(sort -u "$work/fired" | wc -l) of its $(wc -l <"$work/alerts") alerts fired for both clusters by the same faults, what the others compare is there ($(paste -sd, "$work/rest")); all $(wc -l <"$work/dashboard") queries of its dashboard return data"
