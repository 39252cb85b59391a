#!/usr/bin/env bash
# Made the snapshots beside it, once for each release of etcd:
#
#   make.sh ETCD ETCDCTL FILE
#
# runs that etcd alone with users, leases, an alarm, a compaction, a deleted key and a learner that was never
# started, and saves a snapshot. `tests/server/restored.rs` expects this content; the last line prints that etcd's
# hash of its keys. Needs curl and ports 23990 and 23991.
set -euo pipefail
etcd=$1 ctl="$2 --endpoints=127.0.0.1:23990" file=$3
dir=$(mktemp -d)
"$etcd" --name old --data-dir "$dir/data" --bcrypt-cost=4 --listen-client-urls http://127.0.0.1:23990 --advertise-client-urls http://127.0.0.1:23990 \
  --listen-peer-urls http://127.0.0.1:23991 --initial-advertise-peer-urls http://127.0.0.1:23991 \
  --initial-cluster old=http://127.0.0.1:23991 >"$dir/log" 2>&1 &
trap 'kill $!; wait; rm -r "$dir"' EXIT
post() { curl -sf "http://127.0.0.1:23990/v3/$1" -d "$2" >/dev/null || { echo "failed: $1 $2" >&2; exit 1; }; }
until curl -sf http://127.0.0.1:23990/health >/dev/null; do sleep 0.1; done
post lease/grant '{"ID":"7","TTL":"86400"}'
post lease/grant '{"ID":"8","TTL":"172800"}'
$ctl put a 1 >/dev/null; $ctl put a 2 >/dev/null; $ctl put b 1 --lease=7 >/dev/null
$ctl put gone 1 >/dev/null; $ctl del gone >/dev/null; $ctl put secret s >/dev/null
$ctl compaction 5 --physical >/dev/null
$ctl put a 3 >/dev/null; $ctl put gone 2 >/dev/null; $ctl del gone >/dev/null; $ctl put b 2 --lease=8 >/dev/null
$ctl user add root:rootpw >/dev/null; $ctl role add root >/dev/null; $ctl user grant-role root root >/dev/null
$ctl user add alice:pw >/dev/null; $ctl role add some >/dev/null; $ctl user grant-role alice some >/dev/null
$ctl role grant-permission some readwrite a c >/dev/null
$ctl member add fresh --learner --peer-urls=http://127.0.0.1:23992 >/dev/null
post maintenance/alarm '{"action":"ACTIVATE","memberID":"5","alarm":"NOSPACE"}'
$ctl auth enable >/dev/null
$ctl --user=root:rootpw snapshot save "$file" >/dev/null 2>&1
echo "$("$etcd" --version | head -1): hash of the keys $($ctl --user=root:rootpw endpoint hashkv -w json | grep -o '"hash":[0-9]*')"
