#!/usr/bin/env bash
# Hosts outside Kubernetes: network namespaces that run the command line of deploy/systemd with the certificates of
# its guide, and are partitioned.
#
#   tests/topology/run.sh           clusters of 1 to 7 hosts against the quorum table; partitions 3:2 and
#                                   3:3 and a leader alone; which hosts serve, which refuse and how, nothing lost;
#                                   three IPv6-only hosts, one of them
#                                   known to the others and to clients by its name;
#                                   and before them a server without any flag, beside etcd
#   tests/topology/run.sh SIZE...   these sizes; TOPOLOGY_FAMILY=6: with IPv6 only
#
# Two bridges are the two sides of a partition: a host is moved from one to the other, and its connections hang as
# if a switch had failed. TOPOLOGY_SERVER=etcd runs real etcd with the same flags, to compare. Needs root,
# iproute2, curl, jq and target/interop/bin; cleans up afterwards.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
server=${TOPOLOGY_SERVER:-quorate}
binary=$(realpath -m "${QUORATE:-$top/target/debug/quorate}")
quorate=$binary
prefix=qtp
family=${TOPOLOGY_FAMILY:-4}
address() { if [ "$family" = 6 ]; then echo "fd98::$1"; else echo "10.98.0.$1"; fi; } # of host N
at() { if [ "$family" = 6 ]; then echo "[fd98::$1]"; else echo "10.98.0.$1"; fi; }    # the same in a URL
named=; [ "$family" != 6 ] || named=2 # the host whose URLs contain its name, which resolves to its address only
called() { if [ "$1" = "$named" ]; then echo "$prefix$1"; else at "$1"; fi; }      # host N in the URLs given to others
bridges=(${prefix}A ${prefix}B)
dir=$(mktemp -d /tmp/quorate-topology.XXXXXX)
given=$*
sizes=("$@"); [ ${#sizes[@]} -gt 0 ] || sizes=(1 2 3 4 5 6 7)
pids=() size=0

log() { printf '%s  %s\n' "$(date +%T)" "$*"; }
die() {
  log "FAILED: $*"
  local host
  for host in $(seq $size); do echo "--- $prefix$host"; tail -15 "$dir/$prefix$host/log" | cut -c1-300; done >&2
  exit 1
}
preflight() {
  local tool n
  [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || { echo "topology: needs Linux and root (network namespaces)" >&2; exit 1; }
  for tool in ip curl jq; do command -v $tool >/dev/null || { echo "topology: $tool is missing: tests/kubernetes/packages.sh installs it" >&2; exit 1; }; done
  for tool in etcdctl etcd; do [ -x target/interop/bin/$tool ] || { echo "topology: target/interop/bin/$tool is missing: make interop builds it" >&2; exit 1; }; done
  [ "$server" != etcd ] || binary=$top/target/interop/bin/etcd
  [ -x "$binary" ] || { echo "topology: $binary is missing: cargo build --bin quorate" >&2; exit 1; }
  # a run without SIZES ends with IPv6-only hosts, and must not pass without them
  [ -e /proc/sys/net/ipv6 ] || { [ "$family" = 4 ] && [ -n "$given" ]; } ||
    { echo "topology: this kernel has no IPv6 (/proc/sys/net/ipv6 is missing): boot it without ipv6.disable=1; for IPv4 alone name the sizes: SIZES='1 2 3 4 5 6 7'" >&2; exit 1; }
  exec 7>/tmp/quorate-topology.lock; flock -n 7 || { echo "topology: another run is under way" >&2; exit 1; }
  # no other run holds the lock, so existing hosts are those of a killed run
  local pid
  for pid in $(for n in $(seq 7); do ip netns pids $prefix$n 2>/dev/null; done); do kill -9 "$pid" 2>/dev/null || true; done
  remove_network
}
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true # also for pending requests of clients, which end by their own deadline
  remove_network
  rm -rf "$dir"
}

# --- hosts and their network
remove_network() {
  local n
  # the link first: a link that is removed with its namespace disappears only later
  for n in $(seq 7); do ip link del ${prefix}v$n 2>/dev/null || true; ip netns del $prefix$n 2>/dev/null || true; rm -rf /etc/netns/$prefix$n; done
  for n in "${bridges[@]}"; do ip link del $n 2>/dev/null || true; done
}
network() {
  local n m
  for n in "${bridges[@]}"; do ip link add $n type bridge; ip link set $n up; done
  for n in $(seq 7); do
    ip netns add $prefix$n
    ip link add ${prefix}v$n type veth peer name eth0 netns $prefix$n
    ip link set ${prefix}v$n master ${bridges[0]} up
    if [ "$family" = 6 ]; then
      # whatever the machine's defaults for new interfaces
      ip netns exec $prefix$n sh -c 'for one in all default eth0; do echo 0 >/proc/sys/net/ipv6/conf/$one/disable_ipv6; done'
      ip -n $prefix$n addr add "$(address $n)/64" dev eth0 nodad
      # ip netns exec mounts it over /etc/hosts
      mkdir -p /etc/netns/$prefix$n
      for m in $(seq 7); do echo "$(address $m) $prefix$m"; done >/etc/netns/$prefix$n/hosts
    else
      ip -n $prefix$n addr add "$(address $n)/24" dev eth0
    fi
    ip -n $prefix$n link set eth0 up
    ip -n $prefix$n link set lo up
  done
}
side() { local bridge=$1 n; shift; for n in "$@"; do ip link set ${prefix}v$n master $bridge up; done; }
cut_off() { local n; for n in "$@"; do ip link set ${prefix}v$n down; done; }
heal() { side ${bridges[0]} $(seq $size); }

# The unit's command line, as systemd assembles it from host.env.
command_line() { # command_line HOST: one word a line
  local n=$1 name=$prefix$1 initial
  initial=$(for m in $(seq $size); do printf ',%s=https://%s:2380' $prefix$m "$(called $m)"; done)
  sed -n '/^ExecStart=/,/[^\\]$/p' deploy/systemd/quorate.service | sed -e 's/^ExecStart=//' -e 's/ *\\$//' -e 's/^ *//' | tr ' ' '\n' |
    sed -e "s|\${QUORATE_NAME}|$name|g; /^--listen-/s|\${QUORATE_ADDRESS}|$(at $n)|g; s|\${QUORATE_ADDRESS}|$(called $n)|g; s|\${QUORATE_CLUSTER}|${initial#,}|g
      s|\${QUORATE_STATE}|new|g; s|\${QUORATE_TOKEN}|topology-$size|g
      s|/etc/quorate/pki|$dir/pki/$name|g; s|/var/lib/quorate|$dir/$name/data|g; s|/usr/local/bin/quorate|$binary|g" |
    if [ "$server" = etcd ]; then grep -vx server; else cat; fi
}
start_host() {
  local words
  mkdir -p "$dir/$prefix$1"
  mapfile -t words < <(command_line "$1")
  [[ ${words[*]} != *'${'* ]] || die "a variable of the unit is not known here: ${words[*]}"
  ip netns exec $prefix$1 "${words[@]}" >>"$dir/$prefix$1/log" 2>&1 </dev/null 7>&- &
  pids+=($!)
}
stop_all() {
  local pid
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait "${pids[@]}" 2>/dev/null || true
  pids=()
  rm -rf "$dir/$prefix"*
}

# --- clients: each host asks its own server
ctl() { # ctl HOST ARGUMENT...
  local n=$1; shift
  ip netns exec $prefix$n target/interop/bin/etcdctl --endpoints=https://$(called $n):2379 \
    --cacert="$dir/pki/ca.crt" --cert="$dir/pki/client.crt" --key="$dir/pki/client.key" --command-timeout="${limit:-5s}" "$@" 2>&1
}
written=0
put() { # put HOST: a new key; it is recorded once it is acknowledged
  local key
  key=k$1-$BASHPID-$((written += 1))
  ctl "$1" put "$key" "value of $key" >/dev/null && echo "$key" >>"$dir/acknowledged"
}
serves() { put "$1" && ctl "$1" get anchor >/dev/null; }
all_serve() { # all_serve SECONDS HOST...: each of them takes writes and linearizable reads
  local until=$((SECONDS + $1)) n; shift
  for n in "$@"; do
    until limit=2s serves "$n" >/dev/null 2>&1; do [ $SECONDS -lt $until ] || die "host $n does not serve: $(ctl "$n" put probe x || true)"; done
  done
}
no_leader_seen() { [ "$(field "$1" Leader)" = 0 ]; }
# all_refuse HOST...: neither writes nor linearizable reads; a serializable read is still answered
all_refuse() {
  local n until=$((SECONDS + 20)) job jobs=()
  for n in "$@"; do # a leader without a quorum steps down within an election timeout
    until no_leader_seen "$n"; do [ $SECONDS -lt $until ] || die "host $n still believes in a leader: $(ctl "$n" endpoint status -w json)"; done
  done
  for n in "$@"; do
    refuses "$n" & jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || die "a host without quorum answered"; done
}
refuses() {
  local n=$1 answer limit=${refusal_limit:-2s} reader until=$((SECONDS + 40))
  ctl "$n" get anchor >"$dir/refusal-$n" & reader=$!
  if put "$n"; then log "host $n without quorum took a write"; return 1; fi
  if wait $reader; then log "host $n without quorum answered a linearizable read"; return 1; fi
  answer=$(cat "$dir/refusal-$n")
  grep -qE 'etcdserver: (request timed out|no leader|leader changed)|context deadline exceeded' <<<"$answer" || { log "host $n refused in other words: $answer"; return 1; }
  answer=$(ctl "$n" get anchor --consistency=s --print-value-only) || { log "host $n refused a serializable read: $answer"; return 1; }
  [ "$answer" = anchor ] || { log "host $n has another anchor: $answer"; return 1; }
  [ -n "${refusal_limit:-}" ] || return 0
  # in a partition the client waits for the server's own error
  answer=$(grep -oE 'etcdserver: (request timed out|no leader|leader changed)' "$dir/refusal-$n" | sort -u | paste -sd, || true)
  [ -n "$answer" ] || { log "host $n gave no reason: $(cat "$dir/refusal-$n")"; return 1; }
  echo "$answer" >"$dir/reason-$n"
  [ "$(health "$n" health)" = 503 ] && [ "$(health "$n" livez)" = 200 ] || { log "host $n: /health $(health "$n" health), /livez $(health "$n" livez)"; return 1; }
  # readiness tolerates one election
  until [ "$(health "$n" readyz)" = 503 ]; do [ $SECONDS -lt $until ] || { log "host $n still reports that it is ready"; return 1; }; sleep 0.2; done
}
health() { ip netns exec $prefix$1 curl -s -m 20 -o /dev/null -w '%{http_code}' http://127.0.0.1:2381/$2; }
# field HOST NAME: a field of its status, as text: jq would round the IDs
field() { ctl "$1" endpoint status -w fields | awk -v name="\"$2\"" '$1 == name {print $3}'; }
leads() { local id; id=$(field "$1" MemberID) && [ -n "$id" ] && [ "$id" = "$(field "$1" Leader)" ]; }
leading() { # the host that leads
  local n until=$((SECONDS + 20))
  while [ $SECONDS -lt $until ]; do for n in "$@"; do if leads "$n"; then echo "$n"; return; fi; done; done
  die "none of $* leads"
}
nothing_lost() { # every acknowledged key is on every host, and the hosts are equal
  local n until hashes
  for n in $(seq $size); do
    ctl "$n" get k --prefix --keys-only | sed '/^$/d' | sort >"$dir/keys"
    [ -z "$(comm -23 <(sort "$dir/acknowledged") "$dir/keys")" ] || die "acknowledged keys are missing on host $n: $(comm -23 <(sort "$dir/acknowledged") "$dir/keys" | head -3 | paste -sd' ')"
  done
  until=$((SECONDS + 10))
  until hashes=$(for n in $(seq $size); do ctl "$n" endpoint hashkv -w json | jq '.[0].HashKV.hash'; done | sort -u | wc -l) && [ "$hashes" = 1 ]; do
    [ $SECONDS -lt $until ] || die "the hosts hold $hashes different states"
  done
}
without() { comm -23 <(seq "$size" | sort) <(printf '%s\n' "$@" | sort); }

# --- the tests
found() {
  local n answer
  size=$1
  : >"$dir/acknowledged"
  for n in $(seq $size); do start_host "$n"; done
  all_serve 40 $(seq $size)
  if [ -n "$named" ]; then
    answer=$(ctl 1 member list)
    [[ $answer = *"https://$(at 1):2380, https://$(at 1):2379"* && $answer = *"https://$prefix$named:2380, https://$prefix$named:2379"* ]] || die "the members are known by other URLs: $answer"
  fi
  ctl 1 put anchor anchor >/dev/null
  all_serve 10 $(seq $size)
}
table() { # one line of the quorum table
  local quorum=$((size / 2 + 1)) tolerated lost
  tolerated=$((size - quorum))
  lost=$(seq $((size - tolerated + 1)) "$size")
  if [ $tolerated -gt 0 ]; then
    cut_off $lost
    all_serve 20 $(seq $((size - tolerated)))
    all_refuse $lost
  fi
  if [ "$size" = 1 ]; then
    cut_off 1; all_serve 20 1 # a single host is its own quorum
  else
    cut_off $((size - tolerated))
    all_refuse $(seq "$size")
  fi
  heal
  all_serve 30 $(seq "$size")
  nothing_lost
  log "size $size: quorum $quorum; $([ "$size" = 1 ] && echo "cut off it serves itself" || echo "with $tolerated lost it serves, with $((tolerated + 1)) lost it refuses"); healed, $(wc -l <"$dir/acknowledged") acknowledged writes found on each host"
}
split() { # split MAJORITY-OR-HALF: hosts 1..N against the others, with a leader among the others
  local ours=$1 others lead
  others=$(seq $((ours + 1)) "$size")
  lead=$(leading $(seq "$size"))
  if [ "$lead" -le "$ours" ]; then # the harder case: the leader is on the smaller side
    ctl "$lead" move-leader "$(printf '%x' "$(field "$size" MemberID)")" >/dev/null || die "the leadership does not move from $lead to $size"
    lead=$(leading $others)
  fi
  side ${bridges[1]} $others
  if [ $((2 * ours)) -gt "$size" ]; then
    all_serve 20 $(seq "$ours")
    refusal_limit=12s all_refuse $others
  else
    refusal_limit=12s all_refuse $(seq "$size")
  fi
  heal
  all_serve 30 $(seq "$size")
  nothing_lost
  log "size $size: $ours:$((size - ours)) with the leader among the $((size - ours)): as in the table, refused with \"$(cat "$dir"/reason-* | sort -u | paste -sd,)\"; healed, nothing lost"
  rm -f "$dir"/reason-*
}
lonely_leader() {
  local lead term rest
  lead=$(leading $(seq "$size"))
  rest=$(without "$lead")
  term=$(field "$lead" RaftTerm)
  side ${bridges[1]} "$lead"
  all_serve 20 $rest
  refusal_limit=12s all_refuse "$lead"
  heal
  all_serve 30 $(seq "$size")
  [ "$(field "$lead" RaftTerm)" -gt "$term" ] || die "the old leader $lead is still in its term $term"
  nothing_lost
  log "size $size: the leader alone steps down and refuses with \"$(cat "$dir"/reason-*)\", the others elect; healed, it follows, nothing lost"
}
strangers() { # no certificate, a client's certificate on the peer port, plain text: each refused
  local answer
  if answer=$(ip netns exec ${prefix}1 target/interop/bin/etcdctl --endpoints=https://$(at 1):2379 --cacert="$dir/pki/ca.crt" --command-timeout=3s get anchor 2>&1); then die "a client without a certificate was served: $answer"; fi
  if answer=$(ip netns exec ${prefix}1 target/interop/bin/etcdctl --endpoints=http://$(at 1):2379 --command-timeout=3s get anchor 2>&1); then die "a client without TLS was served: $answer"; fi
  if answer=$(ip netns exec ${prefix}1 curl -s -m 5 --cacert "$dir/pki/peer-ca.crt" --cert "$dir/pki/client.crt" --key "$dir/pki/client.key" https://$(at 1):2380/version 2>&1); then die "the peer port took a client's certificate: $answer"; fi
  log "size $size: no client without a certificate, none without TLS, no client on the peer port"
}
# A server without any flag beside real etcd without any: what an etcdctl without any says of both, and what they leave in their folder.
bare() {
  local command until said answers=() ctl="$top/target/interop/bin/etcdctl"
  size=0
  for command in "$quorate server" "$top/target/interop/bin/etcd"; do
    size=$((size + 1))
    mkdir -p "$dir/$prefix$size"
    (cd "$dir/$prefix$size" && exec ip netns exec $prefix$size $command >log 2>&1 </dev/null 7>&-) &
    pids+=($!)
    until=$((SECONDS + 20))
    until ip netns exec $prefix$size "$ctl" put greeting hello >/dev/null 2>&1; do [ $SECONDS -lt $until ] || die "$command does not serve at etcd's default URL"; done
    said=$(ip netns exec $prefix$size "$ctl" member list) || die "$command does not list its members"
    answers+=("$(cut -d, -f2- <<<"$said"; ls "$dir/$prefix$size")")
  done
  [ "${answers[0]}" = "${answers[1]}" ] || die "without a flag it is \"${answers[0]}\", and etcd \"${answers[1]}\""
  log "without any flag, as etcd without any: $(paste -sd' ' <<<"${answers[0]}")"
  stop_all
}

preflight
trap cleanup EXIT
trap 'exit 130' INT TERM
if command -v systemd-analyze >/dev/null; then
  sed "s|/usr/local/bin/quorate|$binary|" deploy/systemd/quorate.service >"$dir/quorate.service"
  answer=$(systemd-analyze verify "$dir/quorate.service" 2>&1) && [ -z "$answer" ] || { log "FAILED: systemd reports about the unit: $answer"; exit 1; }
  log "systemd accepts the unit"
else
  log "skipped: systemd's own look at the unit (no systemd-analyze: Debian package systemd)"
fi
network
QUORATE=$quorate deploy/systemd/certificates.sh "$dir/pki" $(for n in $(seq 7); do echo "$prefix$n=$(address $n)"; done)
[ -n "$given" ] || [ "$server" = etcd ] || bare
for n in "${sizes[@]}"; do
  began=$SECONDS
  found "$n"
  table
  [ "$n" != 3 ] || strangers
  [ "$n" != 5 ] || { split 3; lonely_leader; }
  [ "$n" != 6 ] || split 3
  stop_all
  log "size $n took $((SECONDS - began)) s"
done
log "topology: all held in $SECONDS s"
if [ $# -eq 0 ] && [ "$family" = 4 ]; then
  cleanup
  trap - EXIT
  exec 7>&-
  TOPOLOGY_FAMILY=6 exec tests/topology/run.sh 3
fi
