# shellcheck shell=bash
# own cluster
# Kubernetes lives on its store: 5,000 objects in pinned pages, watches over compactions, consistent lists from cache, the store killed
#
# Two API servers share the store. "cached" is the cluster's own, with every cache as shipped; "direct" has no
# watch cache, so its lists and watches come from the store; from the second part on it compacts every five
# seconds.
maps=/api/v1/namespaces/$ns/configmaps
work=$(mktemp -d)
direct_url=$(tests/kubernetes/cluster.sh direct 0)
# with the jobs that it started: a watch would otherwise run until the API server ends
trap 'rm -rf "$work"; for job in $(jobs -p); do pkill -P "$job" || true; kill "$job" 2>/dev/null || true; done; tests/kubernetes/cluster.sh direct stop' EXIT
cached() { kubectl "$@"; }
direct() { kubectl --server="$direct_url" "$@"; }
metrics() { "$1" get --raw /metrics >"$work/metrics-$1"; }
# counter SERVER NAME [LABEL...]: the sum of the last sample of the series whose labels contain all of these
counter() {
  local server=$1 name=$2; shift 2
  awk -v name="$name" -v want="$*" 'BEGIN { n = split(want, labels, " ") }
    index($0, name "{") == 1 || index($0, name " ") == 1 {
      for (i = 1; i <= n; i++) if (!index($0, labels[i])) next
      sum += $NF
    } END { printf "%d\n", sum }' "$work/metrics-$server"
}
version_of() { jq -r .metadata.resourceVersion; }
compacted() { # every revision before $1 is compacted: a list at it fails
  [ "$(direct get --raw "$maps?limit=1&resourceVersion=$1&resourceVersionMatch=Exact" 2>&1 >/dev/null | grep -c -i 'expired\|too old\|no longer\|Gone')" = 1 ]
}
create_maps() { # create_maps FIRST COUNT
  jq -nc --argjson first "$1" --argjson count "$2" --arg ns "$ns" 'range($first; $first + $count) | {apiVersion: "v1", kind: "ConfigMap",
    metadata: {name: "m\(100000 + .)", namespace: $ns, labels: {parity: (if . % 2 == 0 then "even" else "odd" end)}},
    data: {number: "\(.)", text: ("x" * 200)}}' | cached create -f - >/dev/null
}

# --- 5,000 objects, created by four writers at once
began=$SECONDS
writers=()
for first in 0 1250 2500 3750; do create_maps $first 1250 & writers+=($!); done
for writer in "${writers[@]}"; do wait "$writer"; done
log "5,000 config maps created in $((SECONDS - began)) s"

# --- pages of 500 at one revision, while the objects change: walk SERVER QUERY prints the objects
walk() {
  local server=$1 token= page=0
  : >"$work/names-$server"; : >"$work/versions-$server"; : >"$work/remaining-$server"
  while :; do
    "$server" get --raw "$maps?limit=500${2:-}${token:+&continue=$token}" >"$work/page"
    jq -r '.items[].metadata.name' "$work/page" >>"$work/names-$server"
    version_of <"$work/page" >>"$work/versions-$server"
    jq -r '.metadata.remainingItemCount // 0' "$work/page" >>"$work/remaining-$server"
    token=$(jq -r '.metadata.continue // empty' "$work/page")
    page=$((page + 1))
    if [ $page = 2 ]; then # concurrent changes: neither may appear in this walk
      cached -n "$ns" delete configmap "m10$((4000 + walks))" --wait=false >/dev/null
      cached -n "$ns" create configmap "n-new-$walks" --from-literal=new=yes >/dev/null
    fi
    [ -n "$token" ] || break
  done
}
walks=0
for server in direct cached; do
  expected=$(direct get --raw "$maps" | jq -r '.items[].metadata.name' | sort)
  walk $server
  equal "names over pages of $server" "$(sha256sum <<<"$expected")" "$(sort "$work/names-$server" | sha256sum)"
  equal "pages of $server" "$(($(wc -l <<<"$expected") / 500 + ($(wc -l <<<"$expected") % 500 > 0)))" "$(wc -l <"$work/versions-$server" | tr -d ' ')"
  equal "revisions that the pages of $server show" 1 "$(sort -u "$work/versions-$server" | wc -l | tr -d ' ')"
  total=$(wc -l <<<"$expected")
  equal "counts that the pages of $server leave" "$(for ((n = total - 500; n > 0; n -= 500)); do echo $n; done; echo 0)" "$(cat "$work/remaining-$server")"
  walks=$((walks + 1))
  log "$server: $total objects in pages of 500 at revision $(head -1 "$work/versions-$server"), counted, while two changed"
done
even() { "$1" get --raw "$maps?labelSelector=parity=even" | jq -ceS '[.items[] | [.metadata.name, .metadata.resourceVersion]] | select(length > 0)' | sha256sum; }
stored=$(even direct)
shown=$(even cached)
equal "the answer to one selector, from store and cache" "$stored" "$shown"

# --- a watch continues across compactions; an old revision and an old page are 410 Gone
tests/kubernetes/cluster.sh direct stop
direct_url=$(tests/kubernetes/cluster.sh direct 5)
direct get --raw "$maps?limit=500" >"$work/page"
old=$(version_of <"$work/page")
token=$(jq -r .metadata.continue "$work/page")
direct get --raw "$maps?watch=1&resourceVersion=$old" >"$work/watch-direct" &
cached get --raw "$maps?watch=1&resourceVersion=$old&allowWatchBookmarks=true" >"$work/watch-cached" &
touched() { cached -n "$ns" patch configmap m100000 --type=merge -p "{\"data\":{\"touched\":\"$1\"}}" -o json | version_of; }
seen() { jq -r 'select(.type == "MODIFIED") | .object.data.touched' "$work/watch-$1" 2>/dev/null | grep -qx "$2"; }
for change in before after; do
  version=$(touched $change)
  for server in direct cached; do eventually 20 "the watch of $server saw the change $change the compaction" seen $server $change; done
  # the first change too, not only the old revision: a watch may start at the compacted revision itself
  [ $change = after ] || eventually 60 "revision $version is compacted" compacted "$version"
done
answer=$(timeout 20 kubectl --server="$direct_url" get --raw "$maps?watch=1&resourceVersion=$old" 2>&1 || true)
grep -q 'too old resource version\|Expired\|"code":410' <<<"$answer" || die "a watch from a compacted revision was not refused: ${answer:0:300}"
answer=$(curl -s --cacert "$QUORATE_E2E_DIR/pki/ca.crt" -H "Authorization: Bearer $(cut -d, -f1 "$QUORATE_E2E_DIR/pki/tokens.csv")" "$direct_url$maps?limit=500&continue=$token")
equal "a page from before the compaction" 410 "$(jq -r .code <<<"$answer")"
next=$(jq -r '.metadata.continue // empty' <<<"$answer")
[ -n "$next" ] || die "410 gave no token to go on with: ${answer:0:300}"
equal "the rest, at the newest revision" $(($(wc -l <<<"$expected") - 500)) "$(direct get --raw "$maps?continue=$next" | jq '.items | length')"
log "an old watch and an old page are 410 Gone, and the page's new token goes on"

# --- consistent lists are served from the cache: the store's progress notifications make it fresh
metrics cached
reads=$(counter cached apiserver_watch_cache_consistent_read_total 'resource="configmaps"' 'success="true"' 'fallback="false"')
fetched() { counter cached apiserver_storage_list_fetched_objects_total 'resource="configmaps"'; }
before=$(fetched)
for round in $(seq 10); do
  # a write to another resource advances the revision, which the cache of config maps learns only by progress
  version=$(cached -n "$ns" create secret generic "s$round" --from-literal=a=b -o json | version_of)
  listed=$(cached get --raw "$maps?labelSelector=parity=odd" | version_of)
  [ "$listed" -ge "$version" ] || die "a consistent list at $listed is older than the write at $version"
done
metrics cached
equal "consistent lists served from the cache" $((reads + 10)) "$(counter cached apiserver_watch_cache_consistent_read_total 'resource="configmaps"' 'success="true"' 'fallback="false"')"
# each gets the store's revision with a list of one object; the other objects come from the cache
fetched=$(($(fetched) - before))
[ $fetched -le 20 ] || die "10 consistent lists from the cache fetched $fetched objects from the store"
[ "$(counter cached etcd_bookmark_counts)" -gt 0 ] || die "no progress notification of the store reached the API server"
log "10 consistent lists from the cache, with $fetched objects read from the store; $(counter cached etcd_bookmark_counts) progress notifications"

# --- bookmarks, and a list as a watch
stream=$(cached get --raw "$maps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5")
total=$(direct get --raw "$maps" | jq '.items | length')
equal "objects of a list as a watch" "$total" "$(jq -r 'select(.type == "ADDED") | .object.metadata.name' <<<"$stream" | sort -u | wc -l | tr -d ' ')"
equal "marks for the end of the list" 1 "$(jq -c 'select(.type == "BOOKMARK" and .object.metadata.annotations["k8s.io/initial-events-end"] == "true")' <<<"$stream" | grep -c .)"
# A bookmark is sent shortly before the end, at a revision that another write created.
version=$(cached get --raw "$maps?limit=1" | version_of)
cached get --raw "$maps?watch=1&allowWatchBookmarks=true&timeoutSeconds=8&resourceVersion=$version" >"$work/marks" &
watcher=$!
elsewhere=$(cached -n "$ns" create secret generic bookmark --from-literal=a=b -o json | version_of)
cached get --raw "$maps?labelSelector=parity=odd" >/dev/null
wait $watcher
mark=$(jq -r 'select(.type == "BOOKMARK") | .object.metadata.resourceVersion' "$work/marks" | tail -1)
[ "${mark:-0}" -ge "$elsewhere" ] || die "the bookmark of a watch is at ${mark:-none}, a write was at $elsewhere"
log "a list as a watch of $total objects; a bookmark at a revision that only progress tells of"

# --- server-side apply: two owners of one object
apply_as() { cached -n "$ns" apply --server-side --field-manager="$1" "${@:3}" -f - 2>&1 <<<"{apiVersion: v1, kind: ConfigMap, metadata: {name: owned}, data: {$2}}"; }
apply_as one 'a: first, b: first' >/dev/null
if answer=$(apply_as two 'a: second'); then die "a field of another manager was overwritten: $answer"; fi
grep -qi 'conflict' <<<"$answer" || die "not a conflict: $answer"
apply_as two 'a: second' --force-conflicts >/dev/null
apply_as one 'c: third' >/dev/null
equal "the object of two managers" '{"a":"second","c":"third"}' "$(cached -n "$ns" get configmap owned -o json | jq -cS .data)"
log "server-side apply: conflict, takeover and a field given up"

# --- the store dies by SIGKILL under writers; no acknowledged write is lost and the watches continue
: >"$work/acknowledged"
(for n in $(seq 1 400); do
  [ ! -f "$work/enough" ] || break
  cached -n "$ns" create configmap "k-$n" --request-timeout=5s >/dev/null 2>&1 && echo "k-$n" >>"$work/acknowledged"
done) &
writer=$!
acknowledged() { [ "$(wc -l <"$work/acknowledged")" -ge "$1" ]; }
eventually 30 "10 writes are acknowledged" acknowledged 10
store_verdict
tests/kubernetes/cluster.sh kill-store
count=$(wc -l <"$work/acknowledged")
eventually 60 "10 more after the store was killed and started" acknowledged $((count + 10))
touch "$work/enough"; wait $writer
missing=$(comm -23 <(sort "$work/acknowledged") <(direct get --raw "$maps" | jq -r '.items[].metadata.name' | sort) | grep -c . || true)
equal "acknowledged objects that are missing of $(wc -l <"$work/acknowledged")" 0 "$missing"
touched survived >/dev/null
for server in direct cached; do eventually 60 "the watch of $server saw a change after the store was killed" seen $server survived; done

# --- half of them are deleted in one request, and all lists agree
cached delete --raw "$maps?labelSelector=parity=even" >/dev/null
for server in direct cached; do
  for parity in even odd; do $server get --raw "$maps?labelSelector=parity=$parity" | jq '.items | length' >"$work/left-$server-$parity"; done
  equal "even objects that $server still shows" 0 "$(cat "$work/left-$server-even")"
done
equal "odd objects, as store and cache show them" "$(cat "$work/left-direct-odd")" "$(cat "$work/left-cached-odd")"
store_verdict
store_figures
