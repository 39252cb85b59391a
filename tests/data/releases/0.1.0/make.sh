#!/usr/bin/env bash
# Writes the data directories beside this script: three members of release 0.1.0 (two stopped by SIGTERM, the third
# by SIGKILL) after every kind of entry that a client can cause, and one directory created by `quorate restore`,
# which has a checkpoint with data. Kept as a record of their content; never run again for 0.1.0.
#   make.sh QUORATE ETCDCTL     binaries of the release and of etcd
set -euo pipefail
quorate=$1 etcdctl=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
pids=()
stop() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait; }
trap 'stop; rm -rf "$work"' EXIT
cluster= endpoints=
for n in 1 2 3; do
  cluster+=${cluster:+,}m$n=http://127.230.1.$n:2380
  endpoints+=${endpoints:+,}http://127.230.1.$n:2379
done
start() {
  "$quorate" server --name "m$1" --data-dir "$work/m$1" --initial-cluster "$cluster" --initial-cluster-token golden \
    --listen-client-urls "http://127.230.1.$1:2379" --advertise-client-urls "http://127.230.1.$1:2379" \
    --listen-peer-urls "http://127.230.1.$1:2380" --initial-advertise-peer-urls "http://127.230.1.$1:2380" \
    --snapshot-count 50 >"$work/m$1.log" 2>&1 &
  pids[$1]=$!
}
ctl() { "$etcdctl" --endpoints "$endpoints" "$@"; }
for n in 1 2 3; do start $n; done
until ctl endpoint health >/dev/null 2>&1; do sleep 0.2; done

for i in $(seq 1 60); do ctl put "keys/$i" "value $i" >/dev/null; done
for i in 1 2 3; do ctl put keys/1 "again $i" >/dev/null; done
ctl del keys/2 >/dev/null
printf 'value("keys/3") = "value 3"\n\nput keys/3 "by a transaction"\nput keys/new "1"\n\n\n' | ctl txn >/dev/null
lease=$(ctl lease grant 1000000 | cut -d' ' -f2)
ctl put leased kept --lease="$lease" >/dev/null
ctl lease grant 900000 >/dev/null
ctl compaction 40 >/dev/null
# a member that was added and removed leaves a tombstone in the membership
gone=$(ctl member add gone --learner --peer-urls=http://127.230.1.9:2380 | sed -n 's/^Member *\([0-9a-f]*\) added.*/\1/p')
ctl member remove "$gone" >/dev/null
ctl alarm list >/dev/null
ctl role add reader >/dev/null
ctl role grant-permission reader --prefix=true read keys/ >/dev/null
ctl user add root:golden >/dev/null
ctl user add ann:golden >/dev/null
ctl user grant-role root root >/dev/null
ctl user grant-role ann reader >/dev/null
ctl auth enable >/dev/null
ctl --user root:golden put last "written under users" >/dev/null

# the content expected after an upgrade, as etcdctl prints it
ctl --user root:golden get "" --prefix -w json > "$here/keys.json"
ctl --user root:golden get keys/1 --rev 50 -w json > "$here/history.json"
ctl --user root:golden member list -w json > "$here/members.json"
ctl --user root:golden lease list -w json > "$here/leases.json"
"$etcdctl" --endpoints http://127.230.1.1:2379 --user root:golden endpoint hashkv -w json > "$here/hash.json"
"$etcdctl" --endpoints http://127.230.1.1:2379 --user root:golden snapshot save "$work/snapshot.db" >/dev/null
kill -9 "${pids[3]}"
stop
"$quorate" restore "$work/snapshot.db" --data-dir "$work/restored" --name restored \
  --initial-cluster restored=http://127.230.1.4:2380 --initial-advertise-peer-urls http://127.230.1.4:2380
for n in m1 m2 m3 restored; do
  tar -C "$work" --sparse --owner=0 --group=0 --sort=name --mtime=@0 -cf - "$n" | gzip -9n > "$here/$n.tar.gz"
done
ls -l "$here"
