# shellcheck shell=bash
# soak
# own cluster
# 8 GiB of data in members with a memory limit of 1 GiB, values in files, under the load of a control plane that stores into them: no request fails and no process is killed while the data are written, a pod is deleted, and a volume is lost
#
# The bulk is written past the API server, below a prefix that it does not know; its load goes on from before the first
# byte until after the last. LARGE_MIB and LARGE_LIMIT_MIB are the data and the limit of one member, LARGE_RATE_MIB how
# much is written in a second.
mebibytes=${LARGE_MIB:-8192}
limit=${LARGE_LIMIT_MIB:-1024}
rate=${LARGE_RATE_MIB:-32}
[ "$mebibytes" -gt "$limit" ] || die "$mebibytes MiB of data fit into a limit of $limit MiB: that shows nothing"

# Values of 16 KiB, in parts that each have a value of their own; half a mebibyte a request.
parts=4
keys=$((mebibytes * 64 / parts))
quota=$((mebibytes * 9 / 8 + 64))
value=$((16 << 10)) batch=32

# Three times the data, with what is not needed any more and the log; and room for once more, which every member wants
# to see free (a checkpoint with all values in it). A volume that is lost goes before the next one is made.
needed=$((3 * (mebibytes * 5 / 4 + 1024) + mebibytes + 1024))
free=$(df --output=avail -m "$QUORATE_E2E_DIR" | tail -1)
[ "$free" -ge "$needed" ] || die "$QUORATE_E2E_DIR has $free MiB free, and $needed are needed: set LARGE_MIB to less than $mebibytes"

work=$(mktemp -d)
hosted_node=4
cleanup() {
  local pid
  for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
export hosted="$work/kubeconfig"
# shellcheck source=tests/e2e/hosted.sh
source tests/e2e/hosted.sh
show() { sed "s/^/          $1: /" "$2"; }

# --- what is asked of a member by itself; pods are reached from this machine

endpoint_of() { # endpoint_of MEMBER
  local ip
  ip=$(kubectl -n "$ns" get pod "$1-0" -o jsonpath='{.status.podIP}')
  [ -n "$ip" ] || die "$1 has no address"
  echo "http://$ip:2379"
}
ask() { # ask MEMBER ARGUMENT...: etcdctl, with time for a hash of everything
  local endpoint
  endpoint=$(endpoint_of "$1") || return 1
  target/interop/bin/etcdctl --endpoints="$endpoint" --command-timeout=600s "${@:2}"
}
value_of() { # value_of MEMBER KEY: the checksum of its value, as this member has it
  local answer
  answer=$(ask "$1" get "$2" --consistency=s --write-out=json | jq -er '.kvs[0].value') || die "$1 does not give $2"
  [ "$(base64 -d <<<"$answer" | wc -c)" = $value ] || die "$1 gives another length of $2"
  sha256sum <<<"$answer" | cut -d' ' -f1
}
key() { printf 'large/%s/%024d' "$1" "$2"; } # key PART NUMBER: as `quorate bench` names them, 32 bytes long
written=() # the checksum of each part's value
check_reads() { # random keys of every part from every member, then as many as it answers in five seconds
  local member part number got
  for member in $(members demo); do
    for part in $(seq $parts); do
      for _ in 1 2 3 4 5; do
        number=$(((RANDOM << 15 | RANDOM) % keys))
        got=$(value_of "$member" "$(key "$part" $number)")
        equal "the value of key $number of part $part on $member" "${written[$part]}" "$got"
      done
    done
    target/image/context/out/quorate bench get --endpoints="$(endpoint_of "$member")" --serializable --clients=4 --seconds=5 \
      --seed=$RANDOM --prefix="large/$((RANDOM % parts + 1))/" --key-space=$keys --value-size=$value >"$work/reads" 2>&1 ||
      { show "$member" "$work/reads"; die "$member does not give what it has"; }
    log "$member gives random keys: $(sed -n 's/^ *//; /answers in/p' "$work/reads")"
  done
}

# --- memory: the working set as a kubelet computes it, and that without any cache, in MiB

process_of() { pgrep -f -- "server --name=$1 " | head -1; }
memory_of() { # memory_of MEMBER: working set, anonymous memory, and the most that its process had resident
  local pid group folder usage stat
  pid=$(process_of "$1") || return 1
  group=$(sed -n 's/^[0-9]*:memory://p' "/proc/$pid/cgroup")
  if [ -n "$group" ]; then
    folder=/sys/fs/cgroup/memory$group usage=$folder/memory.usage_in_bytes stat='total_inactive_file total_rss'
  else
    group=$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
    folder=/sys/fs/cgroup$group usage=$folder/memory.current stat='inactive_file anon'
  fi
  awk -v usage="$(cat "$usage")" -v names="$stat" 'BEGIN { split(names, name, " ") }
    FILENAME ~ /memory.stat$/ && $1 == name[1] { inactive = $2 }
    FILENAME ~ /memory.stat$/ && $1 == name[2] { anonymous = $2 }
    $1 == "VmHWM:" { most = $2 }
    END { printf "%d %d %d\n", (usage - inactive) / 1048576, anonymous / 1048576, most / 1024 }' "$folder/memory.stat" "/proc/$pid/status"
}
sample() { # until it is ended: a line "member working-set anonymous most" of each member in half a second
  local member figures
  while :; do
    for member in $(pgrep -af 'server --name=demo-[0-9]+ ' | sed -n 's/.*server --name=\(demo-[0-9]*\) .*/\1/p' | sort -u); do
      if figures=$(memory_of "$member" 2>/dev/null); then echo "$member $figures"; fi
    done >>"$work/memory"
    sleep 0.5
  done
}
most() { # most COLUMN: the largest figure of all samples
  awk -v column="$1" '$column > most { most = $column } END { print most + 0 }' "$work/memory"
}
tell_memory() { # tell_memory WHEN
  local member
  for member in $(members demo); do
    log "$1: $member has $(memory_of "$member" | awk '{printf "%d MiB of working set, %d anonymous, %d resident at most", $1, $2, $3}')"
  done
}
restarts() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o json | jq -c '[.items[].status.containerStatuses[0] | .restartCount]'; }
check_memory() { # check_memory WHEN: nothing was killed, and nothing came near
  tell_memory "$1"
  equal "restarts of the members' containers" '[0,0,0]' "$(restarts)"
  [ -s "$work/memory" ] || die "no memory was measured"
  [ "$(most 3)" -lt $limit ] || die "$(most 3) MiB of anonymous memory, of a limit of $limit MiB"
  log "$1: at most $(most 2) MiB of working set, $(most 3) anonymous, of $limit"
}

tell_volumes() { # what each member has on its disk
  local member pvc volume
  for member in $(members demo); do
    pvc=$(status demo "members[?(@.name==\"$member\")].volumeClaimName")
    volume=$(kubectl -n "$ns" get pvc "$pvc" -o jsonpath='{.spec.volumeName}')
    volume=$(kubectl get pv "$volume" -o json | jq -er '.spec.hostPath.path')
    log "$member has $(du -sm "$volume/data" | cut -f1) MiB on its volume, $(du -sm "$volume/data/values" | cut -f1) of them files of values"
  done
}

# --- the cluster, and a control plane on it

tests/kubernetes/cluster.sh node $hosted_node
log "node $hosted_node is there"
kubectl taint node qrt-node$hosted_node hosted=only:NoSchedule >/dev/null
hosted_image $hosted_node
kubectl -n "$ns" apply -f - >/dev/null <<EOF
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: $((quota * 4))Mi, storageClassName: shared}
  server:
    quota: ${quota}Mi
    extraArgs: [{name: feature-gates, value: ValuesOnDisk=true}]
  resources: {limits: {memory: ${limit}Mi}}
  healing: {unhealthySeconds: 60, learnerDeadlineSeconds: 1800}
EOF
ready demo 3
slots demo 3
sample &
sampler=$!
hosted_setup
hosted_apiserver $hosted_node "$(slot_endpoints demo)"
test-load "$hosted" >"$work/load" 2>&1 &
loader=$!
goes_on() { # goes_on WHEN: the load ends by itself only if it cannot go on
  kill -0 $loader 2>/dev/null || { show load "$work/load"; die "the load ended $1"; }
}

# --- the data

ended() { local phase; phase=$(kubectl -n "$ns" get pod "$1" -o jsonpath='{.status.phase}') && { [ "$phase" = Succeeded ] || [ "$phase" = Failed ]; }; }
began=$SECONDS
for part in $(seq $parts); do
  run_pod "fill-$part" "$quorate_image" bench fill --endpoints=http://demo-client:2379 --prefix="large/$part/" --seed="$part" \
    --key-space=$keys --value-size=$value --batch=$batch --clients=8 --connections=3 --rate=$((rate * 2)) --timeout=60
  eventually $((mebibytes / parts * 3 / rate + 120)) "part $part of $parts is written" ended "fill-$part"
  kubectl -n "$ns" logs "fill-$part" | sed "s/^/          fill $part: /"
  equal "how part $part ended" Succeeded "$(kubectl -n "$ns" get pod "fill-$part" -o jsonpath='{.status.phase}')"
  # The last key: it may still be in memory, where those before it are in files.
  written[part]=$(value_of "$(leader demo)" "$(key "$part" $((keys - 1)))")
  tell_memory "$((mebibytes * part / parts)) MiB"
  goes_on "while part $part was written"
done
log "$mebibytes MiB were written in $((SECONDS - began)) s"
[ "$(printf '%s\n' "${written[@]}" | sort -u | wc -l)" = $parts ] || die "the parts have equal values: nothing would be seen of a wrong one"
check_memory "$mebibytes MiB are written"
tell_volumes
check_reads
nothing "alarms" ask "$(leader demo)" alarm list

# --- the leader's pod is deleted: the same member, with its data, within seconds

victim=$(leader demo)
uid=$(pod_uid "$victim-0")
first=$(members demo)
began=$EPOCHREALTIME
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
eventually 60 "$victim, which led, has a new pod" is_another_pod "$victim-0" "$uid"
serves() { ask "$victim" --command-timeout=2s get "$(key 1 0)" --consistency=s --keys-only; }
eventually 60 "$victim serves again" serves
log "$victim served again $(awk -v from="$began" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.1f", to - from}') s after its pod was deleted"
ready demo 3
equal "the members" "$first" "$(members demo)"
goes_on "when the leader's pod was deleted"
check_memory "a pod was deleted"

# --- a member's volume is lost: another one receives everything, and votes

victim=$(follower demo)
pvc=$(status demo "members[?(@.name==\"$victim\")].volumeClaimName")
kubectl -n "$ns" delete pvc "$pvc" --wait=false >/dev/null
kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
log "the pod and the volume of $victim were deleted"
began=$SECONDS
eventually 120 "$victim is no member any more" is_no_member demo "$victim"
has_learner() { newcomer=$(status demo 'members[?(@.role=="Learner")].name') && [ -n "$newcomer" ]; }
eventually 120 "a learner is there" has_learner
at=$SECONDS
ready demo 3 1800
log "$newcomer received $mebibytes MiB and votes $((SECONDS - at)) s after it was added, $((SECONDS - began)) s after the loss"
eventually 120 "the cluster is whole" whole demo 3
tell_volumes
goes_on "when a volume was lost"
check_memory "a member was replaced"
check_reads

# --- what the load has met, and the same data everywhere

kill -TERM $loader
if ! wait $loader; then show load "$work/load"; die "requests failed"; fi
show load "$work/load"
equal "restarts of the API server" 0 "$(kubectl -n "$ns" get pod hosted -o jsonpath='{.status.containerStatuses[0].restartCount}')"
kubectl -n "$ns" delete pod hosted --wait=true >/dev/null
revision=$(ask "$(leader demo)" endpoint status --write-out=json | jq -e '.[0].Status.header.revision')
hashes=()
for member in $(members demo); do
  at=$SECONDS
  hash=$(ask "$member" endpoint hashkv --rev="$revision" --write-out=json | jq -ec '.[0].HashKV | [.hash, .compact_revision]') || die "$member has no hash"
  log "$member has the hash and the compacted revision $hash ($((SECONDS - at)) s)"
  hashes+=("$hash")
done
equal "the hashes" "${hashes[0]} ${hashes[0]} ${hashes[0]}" "${hashes[*]}"
nothing "alarms" ask "$(leader demo)" alarm list
check_memory "everything was hashed"

# --- a crash: by itself, since what is in flight on a process that is killed fails with any store

kill $sampler
victim=$(follower demo)
pid=$(process_of "$victim")
began=$EPOCHREALTIME
kill -KILL "$pid"
runs_again() { local now; now=$(process_of "$victim") && [ "$now" != "$pid" ] && serves; }
eventually 60 "$victim was killed and serves again" runs_again
log "$victim served again $(awk -v from="$began" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.1f", to - from}') s after its process was killed"
ready demo 3
drop_cluster demo
tests/kubernetes/cluster.sh forget $hosted_node
