#!/usr/bin/env bash
# A real Kubernetes on this machine, each node in a network namespace of its own.
#
#   cluster.sh up [NODES]   control plane, NODES nodes (2), cluster DNS, storage classes shared, local and sized
#   cluster.sh node N       one more node, N from 1 to 9
#   cluster.sh import N ARCHIVE  an image more on node N
#   cluster.sh lose N       node N loses power: kubelet, containerd and every container die at once
#   cluster.sh restart-kubelet N   the kubelet of node N is restarted; its containers go on
#   cluster.sh revive N     a lost node boots again: kubelet, containerd, new sandboxes for its pods
#   cluster.sh forget N     removes the rest of a lost node: its Node object, namespace, files
#   cluster.sh kill-pod NAMESPACE POD  the processes of a pod's containers die by SIGKILL, its sandbox stays
#   cluster.sh kill-store   the control plane's store dies by SIGKILL and starts again on its disk
#   cluster.sh direct SECONDS  a second API server on the same store, without a watch cache: its responses
#                           come from the store. It compacts at this interval; 0 is never. Prints its URL
#   cluster.sh direct stop  ends it
#   cluster.sh clear        ends the scenarios of a killed run and removes its remains, as by down; one that is in use
#                           is an error, and so is anything that does not go
#   cluster.sh down         removes everything: processes, mounts, namespaces, bridge, cgroups, files
#
# The control plane keeps its state in a Quorate server with the command line of deploy/static-pod;
# E2E_STORE=etcd takes real etcd with the same flags instead, to compare.
#
# E2E_FAMILIES=dual gives nodes, pods and Services IPv6 addresses besides those of IPv4, which stay the default.
#
# State is in $QUORATE_E2E_DIR, including the kubeconfig. Needs root and the packages that packages.sh installs;
# the binaries come from build.sh. One cluster at a time on one machine, because its address ranges are fixed: a
# lock refuses a second run instead of mixing the two. A run of scenarios leaves the file "of-a-run" in
# $QUORATE_E2E_DIR while the cluster is its own. All nodes share one kernel and one file system: see
# docs/kubernetes-tests.md for the consequences.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
bin=$top/target/kubernetes${KUBERNETES:+-$KUBERNETES}/bin
dir=${QUORATE_E2E_DIR:-/tmp/quorate-e2e}
images=$dir/images
bridge=qrt0
gateway=10.99.0.1
pods=10.244
services=10.96.0.0/16
dns=10.96.0.10
# The same of IPv6: the prefix of the nodes', the pods' and the Services' networks.
nodes6=fd00:99: pods6=fd00:244 services6=fd00:96::/112
store=$(cat "$dir/store-kind" 2>/dev/null || echo "${E2E_STORE:-quorate}")
families=$(cat "$dir/families" 2>/dev/null || echo "${E2E_FAMILIES:-single}")
store_binary=${E2E_STORE_BINARY:-$top/target/image/context/out/quorate}
prefix=qrt-node
export PATH=$bin:$PATH KUBECONFIG=$dir/kubeconfig

fail() { echo "cluster.sh: $*" >&2; exit 1; }

dual() { [ "$families" = dual ]; }

# Every process that this script starts is recorded by its id, and only those are ever ended: all of them have a
# file of $dir on their command line, which an unrelated process that reused the id does not.
ours() { grep -qaF "$dir/" "/proc/$1/cmdline" 2>/dev/null; }

start() {
  local name=$1; shift
  mkdir -p "$dir/log" "$dir/pids"
  setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null 7>&- 8>&- &
  echo $! >"$dir/pids/$name"
}

stop() {
  local file
  for file in "$@"; do
    [ -f "$file" ] && ours "$(cat "$file")" && kill "$(cat "$file")" 2>/dev/null || true
  done
}

wait_for() { # wait_for SECONDS WHAT COMMAND...
  local seconds=$1 what=$2 until=$((SECONDS + $1)); shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || fail "$what was not there after $seconds s; logs are in $dir/log"
    sleep 0.2
  done
}

preflight() {
  [ "$(id -u)" = 0 ] || fail "needs root (network namespaces, cgroups, containerd)"
  local tool
  for tool in containerd runc ip iptables nsenter openssl conntrack ctr; do
    command -v $tool >/dev/null || fail "$tool is missing: tests/kubernetes/packages.sh installs what is needed"
  done
  [ -x /usr/lib/cni/bridge ] || fail "/usr/lib/cni/bridge is missing: tests/kubernetes/packages.sh installs it"
  [ -x "$bin/kube-apiserver" ] || fail "$bin/kube-apiserver is missing: run tests/kubernetes/build.sh"
  case $store in
    quorate) [ -x "$store_binary" ] || fail "$store_binary is missing: run tests/kubernetes/quorate-image.sh" ;;
    etcd) [ -x "$top/target/interop/bin/etcd" ] || fail "target/interop/bin/etcd is missing: run tests/interop/build.sh" ;;
    *) fail "E2E_STORE is quorate or etcd, not \"$store\"" ;;
  esac
  case $families in
    single) ;;
    dual)
      [ -d /proc/sys/net/ipv6 ] || fail "this kernel has no IPv6, which E2E_FAMILIES=dual needs"
      ip6tables -t nat -L -n >/dev/null || fail "this kernel has no NAT of IPv6, which E2E_FAMILIES=dual needs" ;;
    *) fail "E2E_FAMILIES is single or dual, not \"$families\"" ;;
  esac
  ! ip link show $bridge >/dev/null 2>&1 || fail "a test cluster is up already (bridge $bridge): run cluster.sh down"
}

certificates() {
  mkdir -p "$dir/pki"; cd "$dir/pki"
  openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=quorate-test 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -keyout api.key -out api.csr -subj /CN=kube-apiserver 2>/dev/null
  openssl x509 -req -in api.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out api.crt -days 30 2>/dev/null \
    -extfile <(printf 'subjectAltName=IP:%s,IP:10.96.0.1,IP:127.0.0.1,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local' $gateway)
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  printf '%s,admin,admin,system:masters\n' "$(openssl rand -hex 16)" >tokens.csv
  chmod 600 ./*.key tokens.csv
  cd - >/dev/null
  "$here/certificates.sh" "$dir/pki/store" $gateway
}

kubeconfig() {
  cat >"$KUBECONFIG" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://$gateway:6443", certificate-authority: $dir/pki/ca.crt}}]
users: [{name: admin, user: {token: $(cut -d, -f1 "$dir/pki/tokens.csv")}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
EOF
}

# The flags of deploy/static-pod/quorate.yaml, with this cluster's address, ports and paths.
store_flags() {
  sed -n 's/^    - \(--.*\)$/\1/p' "$top/deploy/static-pod/quorate.yaml" |
    sed "s|10\.0\.0\.1|$gateway|g; s|:2379|:23790|g; s|:2380|:23800|g; s|:2381|:23810|g
      s|/etc/kubernetes/pki/etcd|$dir/pki/store|g; s|/var/lib/quorate|$dir/store|g"
}

start_store() {
  local flags command=("$store_binary" server)
  [ "$store" = quorate ] || command=("$top/target/interop/bin/etcd" --log-level=error)
  mapfile -t flags < <(store_flags)
  start store "${command[@]}" "${flags[@]}"
}

kill_store() {
  local pid
  pid=$(cat "$dir/pids/store")
  kill -9 "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  start_store
}

# api_server NAME PORT [FLAG...]: an API server on the store; the cluster's own is on 6443
api_server() {
  local name=$1 port=$2; shift 2
  start "$name" kube-apiserver --etcd-servers=https://127.0.0.1:23790 --etcd-cafile="$dir/pki/store/ca.crt" \
    --etcd-certfile="$dir/pki/store/client.crt" --etcd-keyfile="$dir/pki/store/client.key" \
    --bind-address=$gateway --advertise-address=$gateway --secure-port="$port" \
    --tls-cert-file="$dir/pki/api.crt" --tls-private-key-file="$dir/pki/api.key" --client-ca-file="$dir/pki/ca.crt" \
    --service-cluster-ip-range="$services$(dual && echo ",$services6" || :)" --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$dir/pki/sa.pub" --service-account-signing-key-file="$dir/pki/sa.key" \
    --token-auth-file="$dir/pki/tokens.csv" --authorization-mode=RBAC --allow-privileged=true \
    --kubelet-preferred-address-types=InternalIP --delete-collection-workers=8 \
    --feature-gates=MutatingAdmissionPolicy=true,ClusterTrustBundle=true,ClusterTrustBundleProjection=true \
    --runtime-config=admissionregistration.k8s.io/v1beta1=true,certificates.k8s.io/v1beta1/clustertrustbundles=true "$@"
}

direct() {
  local url=https://$gateway:6444
  if [ "$1" = stop ]; then
    stop "$dir/pids/direct"
    while [ -f "$dir/pids/direct" ] && kill -0 "$(cat "$dir/pids/direct")" 2>/dev/null; do sleep 0.1; done
    rm -f "$dir/pids/direct"
    return
  fi
  [ ! -f "$dir/pids/direct" ] || fail "the direct API server is up already: cluster.sh direct stop"
  api_server direct 6444 --watch-cache=false --etcd-compaction-interval="$1s" --endpoint-reconciler-type=none
  wait_for 60 "the direct API server" kubectl --server=$url get --raw /readyz
  echo $url
}

control_plane() {
  ip link add $bridge type bridge
  ip addr add $gateway/24 dev $bridge
  ip link set $bridge up
  cat /proc/sys/net/ipv4/ip_forward >"$dir/ip_forward"
  sysctl -qw net.ipv4.ip_forward=1
  if dual; then
    ip -6 addr add ${nodes6}:1/64 dev $bridge nodad
    cat /proc/sys/net/ipv6/conf/all/forwarding >"$dir/ip6_forward"
    sysctl -qw net.ipv6.conf.all.forwarding=1
  fi
  start_store
  api_server apiserver 6443
  wait_for 60 "the API server" kubectl get --raw /readyz
  start controllers kube-controller-manager --kubeconfig="$KUBECONFIG" --service-account-private-key-file="$dir/pki/sa.key" \
    --root-ca-file="$dir/pki/ca.crt" --use-service-account-credentials=true --leader-elect=false --node-monitor-grace-period=16s
  start scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false
  start disks test-disks "$KUBECONFIG" "$dir/disks"
  kubectl apply -f "$here/manifests/storage.yaml" >/dev/null
}

cgroup_hierarchies() { for h in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do [ -d /sys/fs/cgroup/$h ] && echo /sys/fs/cgroup/$h; done; }

node_network() {
  local n=$1 ns=$2 ip=$3 m
  ip netns add "$ns"
  ip link add "qrtv$n" type veth peer name eth0 netns "$ns"
  ip link set "qrtv$n" master $bridge up
  ip -n "$ns" addr add "$ip/24" dev eth0
  ip -n "$ns" link set eth0 up
  ip -n "$ns" link set lo up
  ip -n "$ns" route add default via $gateway
  ip route replace "$pods.$n.0/24" via "$ip"
  for m in 1 2 3 4 5 6 7 8 9; do
    [ "$m" = "$n" ] || ip -n "$ns" route replace "$pods.$m.0/24" via "10.99.0.1$m"
  done
  if dual; then
    ip netns exec "$ns" sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0
    ip -n "$ns" -6 addr add "${nodes6}:1$n/64" dev eth0 nodad
    ip -n "$ns" -6 route add default via ${nodes6}:1
    ip -6 route replace "$pods6:$n::/64" via "${nodes6}:1$n"
    for m in 1 2 3 4 5 6 7 8 9; do
      [ "$m" = "$n" ] || ip -n "$ns" -6 route replace "$pods6:$m::/64" via "${nodes6}:1$m"
    done
  fi
}

# Kubelets that share a cgroup root delete one another's pods, so each has its own root.
node_cgroups() {
  local ns=$1 h
  for h in $(cgroup_hierarchies); do mkdir -p "$h/$ns"; done
  if [ -d /sys/fs/cgroup/cpuset ]; then
    cat /sys/fs/cgroup/cpuset/cpuset.mems >"/sys/fs/cgroup/cpuset/$ns/cpuset.mems"
    cat /sys/fs/cgroup/cpuset/cpuset.cpus >"/sys/fs/cgroup/cpuset/$ns/cpuset.cpus"
  fi
}

node_files() {
  local n=$1 ns=$2 d=$3 range6= route6=
  if dual; then range6=", [{\"subnet\": \"$pods6:$n::/64\"}]" route6=', {"dst": "::/0"}'; fi
  mkdir -p "$d/cni" "$d/kubelet" "$d/static"
  cat >"$d/containerd.toml" <<EOF
version = 2
root = "$d/containerd"
state = "$d/run"
[grpc]
  address = "$d/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  # What a scenario puts there: the CAs of registries.
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$dir/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$d/cni"
EOF
  cat >"$d/cni/10-pods.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$d/ipam", "ranges": [[{"subnet": "$pods.$n.0/24"}]$range6], "routes": [{"dst": "0.0.0.0/0"}$route6]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
  cat >"$d/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /$ns
clusterDNS: [$dns]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$d/containerd.sock
failSwapOn: false
featureGates: {ClusterTrustBundle: true, ClusterTrustBundleProjection: true}
podLogsDir: $d/logs
staticPodPath: $d/static
fileCheckFrequency: 1s
nodeStatusUpdateFrequency: 4s
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
EOF
}

node() {
  local n=$1 ns=$prefix$1 ip=10.99.0.1$1 d=$dir/node$1
  [[ $n =~ ^[1-9]$ ]] || fail "a node's number is 1 to 9, not \"$n\""
  [ ! -d "$d" ] || fail "node $n is there already"
  node_network "$n" "$ns" "$ip"
  node_cgroups "$ns"
  node_files "$n" "$ns" "$d"
  node_processes "$n" "$ns" "$ip" "$d"
  wait_for 60 "node $n" kubectl wait --for=condition=Ready "node/$ns" --timeout=1s
}

node_processes() {
  local n=$1 ns=$2 ip=$3 d=$4 archive range6=
  if dual; then range6=,$pods6::/32; fi
  local enter=(nsenter --net=/var/run/netns/$ns) # not ip netns exec: that would hide the cgroups
  start "node$n-containerd" "${enter[@]}" containerd -c "$d/containerd.toml"
  wait_for 30 "containerd of node $n" ctr -a "$d/containerd.sock" version
  for archive in "$images"/*.tar; do import "$n" "$archive"; done
  start_kubelet "$n" "$ns" "$ip" "$d"
  start "node$n-proxy" "${enter[@]}" kube-proxy --kubeconfig="$KUBECONFIG" --hostname-override="$ns" \
    --cluster-cidr="$pods.0.0/16$range6" --conntrack-max-per-core=0
}

start_kubelet() {
  local n=$1 ns=$2 ip=$3 d=$4 ip6=
  if dual; then ip6=,${nodes6}:1$n; fi
  start "node$n-kubelet" nsenter --net=/var/run/netns/"$ns" kubelet --config="$d/kubelet.yaml" --kubeconfig="$KUBECONFIG" \
    --root-dir="$d/kubelet" --hostname-override="$ns" --node-ip="$ip$ip6"
}

# As after a boot: the disks are present, the state in memory is lost.
revive() {
  local n=$1 mount d=$dir/node$1
  [ -d "$d" ] && [ ! -f "$dir/pids/node$n-kubelet" ] || fail "node $n is not a lost one"
  for mount in $(awk -v d="$d/run/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r); do umount -l "$mount" || true; done
  rm -rf "$d/run" "$d/containerd.sock" "$d/containerd.sock.ttrpc"
  node_processes "$n" "$prefix$n" "10.99.0.1$n" "$d"
}

# Its pods go on; what it has in memory is lost.
restart_kubelet() {
  local n=$1 d=$dir/node$1 file=$dir/pids/node$1-kubelet
  [ -f "$file" ] || fail "node $n has no kubelet"
  stop "$file"
  wait_for 30 "the end of the kubelet of node $n" sh -c "! kill -0 $(cat "$file")"
  start_kubelet "$n" "$prefix$n" "10.99.0.1$n" "$d"
}

import() { # import NODE ARCHIVE
  ctr -a "$dir/node$1/containerd.sock" -n k8s.io images import "$2" >>"$dir/log/node$1-images.log" 2>&1 || fail "cannot import $2: see $dir/log/node$1-images.log"
}

# Every process in the node's cgroups and its container shims, and none outside of them.
kill_containers() {
  local ns=$1 d=$2 p
  for p in $(find "/sys/fs/cgroup/pids/$ns" "/sys/fs/cgroup/$ns" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u); do kill -9 "$p" 2>/dev/null || true; done
  for p in $(ps -eo pid,args | awk -v d="$d/" '/containerd-shim/ && index($0, d) {print $1}'); do kill -9 "$p" 2>/dev/null || true; done
}

kill_pod() {
  local uid p killed=
  # a static pod's cgroup is named after its manifest's hash, not its mirror pod
  uid=$(kubectl -n "$1" get pod "$2" -o json | jq -r '.metadata.annotations["kubernetes.io/config.hash"] // .metadata.uid')
  for p in $(find /sys/fs/cgroup/pids/$prefix* /sys/fs/cgroup/$prefix* -path "*pod$uid*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u); do
    [ "$(cat "/proc/$p/comm" 2>/dev/null)" = pause ] || { kill -9 "$p" 2>/dev/null && killed=yes; }
  done
  [ -n "$killed" ] || fail "no process of pod $2 in $1 was found"
}

lose() {
  local f
  for f in "$dir/pids/node$1"-*; do
    [ -f "$f" ] && ours "$(cat "$f")" && kill -9 "$(cat "$f")" 2>/dev/null || true
    rm -f "$f"
  done
  kill_containers "$prefix$1" "$dir/node$1"
}

release_node() { # releases the kernel's resources of node N
  local n=$1 ns=$prefix$1 mount cni
  for mount in $(awk -v d="$dir/node$n/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r); do umount -l "$mount" || true; done
  for cni in $(ls /var/run/netns 2>/dev/null | grep '^cni-' || true); do
    # a pod's namespace belongs to this cluster if its peer link is in the node's namespace; all are removed with
    # it
    grep -rqs "$cni" "$dir/node$n/containerd" "$dir/node$n/run" && { umount -l "/var/run/netns/$cni" 2>/dev/null || true; rm -f "/var/run/netns/$cni"; }
  done
  ip netns del "$ns" 2>/dev/null || true
  ip link del "qrtv$n" 2>/dev/null || true
  remove_cgroups "$ns"
}

# A process that was killed stays in its cgroup until it has ended.
remove_cgroups() {
  local h until=$((SECONDS + 5))
  for h in /sys/fs/cgroup/* /sys/fs/cgroup; do # kubelet and runc use more of them than node_cgroups made
    while [ -d "$h/$1" ] && [ $SECONDS -lt $until ]; do
      find "$h/$1" -depth -type d -exec rmdir {} \; 2>/dev/null || true
      [ ! -d "$h/$1" ] || sleep 0.1
    done
  done
}

# What is of a test cluster on this machine, one line each: nothing after down.
remains() {
  local path p
  ip -o link show 2>/dev/null | awk -F': ' -v bridge=$bridge '{sub("@.*", "", $2)} $2 == bridge || $2 ~ /^qrtv[1-9]$/ {print "link " $2}'
  for path in /var/run/netns/"$prefix"[1-9]; do [ ! -e "$path" ] || echo "network namespace $path"; done
  awk -v d="$dir/" 'index($2, d) == 1 {print "mount " $2}' /proc/mounts
  for p in $(find /sys/fs/cgroup/*/"$prefix"[1-9] /sys/fs/cgroup/"$prefix"[1-9] -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un); do
    echo "process $p of a node's cgroup: $(cat "/proc/$p/comm" 2>/dev/null || true)"
  done
  processes
}
# Its programs that run, recorded or not: an editor of a file in $dir is none.
processes() {
  local p
  for p in /proc/[0-9]*; do
    case $(cat "$p/comm" 2>/dev/null) in
      containerd* | kubelet | kube-* | quorate | etcd | test-disks | cert-manager)
        ! ours "${p#/proc/}" || echo "process ${p#/proc/}: $(tr '\0' ' ' <"$p/cmdline" | cut -c -80)" ;;
    esac
  done
}

forget() {
  lose "$1"; sleep 0.3
  kubectl delete node "$prefix$1" --ignore-not-found >/dev/null
  release_node "$1"
  rm -rf "${dir:?}/node$1"
}

in_use() {
  local f n
  for f in "$dir"/pids/*; do [ -f "$f" ] && ours "$(cat "$f")" && return; done
  for n in 1 2 3 4 5 6 7 8 9; do [ -z "$(ip netns pids $prefix$n 2>/dev/null)" ] || return 0; done
  return 1
}

# The scenarios of a run that was killed alone: each leads a process group, and would go on upon the next cluster, whose
# kubeconfig has the same path. run.sh records the groups; a process of theirs has $dir in its environment.
end_scenarios() {
  local file p until=$((SECONDS + 5)) found
  for file in "$dir"/scenarios/*; do
    [ -f "$file" ] || continue
    found=yes
    while [ -n "$found" ] && [ $SECONDS -lt $until ]; do # again, since a process may start another one meanwhile
      found=
      for p in $(pgrep -g "$(cat "$file")"); do
        if grep -qzxF "QUORATE_E2E_DIR=$dir" "/proc/$p/environ" 2>/dev/null; then
          found=yes
          kill -9 "$p" 2>/dev/null || true
        fi
      done
      [ -z "$found" ] || sleep 0.1
    done
    [ -z "$found" ] || fail "the scenario ${file##*/} of a killed run does not end: process group $(cat "$file")"
    rm -f "$file"
  done
}

# A machine keeps bridges and namespaces if all the processes of a run were killed.
clear_remains() {
  local left until
  left=$(remains)
  [ -n "$left" ] || [ -d "$dir" ] || return 0
  [ -f "$dir/of-a-run" ] || ! in_use || fail "a test cluster is up already (bridge $bridge): run cluster.sh down"
  echo "a run that was killed left a test cluster: it goes"
  end_scenarios
  down
  until=$((SECONDS + 5)) # a process that was killed takes a moment to end
  while left=$(remains) && [ -n "$left" ] && [ $SECONDS -lt $until ]; do sleep 0.1; done
  [ -z "$left" ] || fail "this is left of a run that was killed, and cluster.sh cannot remove it:"$'\n'"$left"
}

down() {
  local n f until
  stop "$dir"/pids/*-kubelet "$dir"/pids/*-proxy "$dir"/pids/disks
  for n in 1 2 3 4 5 6 7 8 9; do
    [ -d "$dir/node$n" ] && lose "$n"
    for f in $(ip netns pids $prefix$n 2>/dev/null); do kill -9 "$f" 2>/dev/null || true; done
  done
  stop "$dir"/pids/*
  until=$((SECONDS + 2)) # an API server with open watches takes a minute to end by itself
  for f in "$dir"/pids/*; do
    while [ -f "$f" ] && ours "$(cat "$f")"; do
      [ $SECONDS -lt $until ] || { kill -9 "$(cat "$f")" 2>/dev/null || true; break; }
      sleep 0.1
    done
  done
  for n in 1 2 3 4 5 6 7 8 9; do release_node "$n"; done
  for f in $(awk -v d="$dir/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r); do umount -l "$f" || true; done
  for n in 1 2 3 4 5 6 7 8 9; do
    ip route del "$pods.$n.0/24" 2>/dev/null || true
    ip -6 route del "$pods6:$n::/64" 2>/dev/null || true
  done
  ip link del $bridge 2>/dev/null || true
  [ -f "$dir/ip6_forward" ] && sysctl -qw "net.ipv6.conf.all.forwarding=$(cat "$dir/ip6_forward")" || true
  [ -f "$dir/ip_forward" ] && sysctl -qw "net.ipv4.ip_forward=$(cat "$dir/ip_forward")" || true
  # never through a mount
  f=$(awk -v d="$dir/" 'index($2, d) == 1 {print $2}' /proc/mounts)
  [ -z "$f" ] || fail "these mounts do not go, and nothing of $dir was deleted: $f"
  # kept on request, because logs show why a run failed
  if [ -n "${QUORATE_E2E_KEEP_LOGS:-}" ]; then rm -rf "$QUORATE_E2E_KEEP_LOGS"; cp -r "$dir/log" "$QUORATE_E2E_KEEP_LOGS" 2>/dev/null || true; fi
  rm -rf "$dir"
}

up() {
  local nodes=${1:-2} n boots=() failed=
  preflight
  mkdir -p "$dir" "$images" "$dir/disks"
  chmod 711 "$dir"
  echo "$store" >"$dir/store-kind"
  echo "$families" >"$dir/families"
  exec 7>"$dir/lock"; flock -n 7 || fail "another run holds $dir/lock"
  certificates
  kubeconfig
  "$here/image.sh" localhost/pause:1 "$bin/pause" "$images/pause.tar"
  "$here/image.sh" localhost/coredns:1 "$bin/coredns" "$images/coredns.tar"
  "$here/image.sh" localhost/etcdctl:1 "$top/target/interop/bin/etcdctl" "$images/etcdctl.tar"
  # the scenario "follow" leaves it
  "$here/image.sh" localhost/etcd:1 "$top/target/interop/bin/etcd" "$images/etcd.tar"
  # only the scenario "backup" uses it
  [ ! -x "$top/target/stores/bin/versitygw" ] || "$here/image.sh" localhost/versitygw:1 "$top/target/stores/bin/versitygw" "$images/versitygw.tar"
  control_plane
  for n in $(seq "$nodes"); do node "$n" & boots+=($!); done
  for n in "${boots[@]}"; do wait "$n" || failed=yes; done # all of them, so that none is still running on a failure
  [ -z "$failed" ] || exit 1
  kubectl apply -f "$here/manifests/dns.yaml" >/dev/null
  wait_for 90 "cluster DNS" kubectl -n kube-system rollout status deployment/coredns --timeout=1s
  echo "Kubernetes is up: $nodes nodes, its state in $store; export KUBECONFIG=$KUBECONFIG"
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0 # sourced by a test
case ${1:-} in
  up) up "${2:-2}" ;;
  node) node "${2:?number of the node}" ;;
  import) import "${2:?number of the node}" "${3:?archive}" ;;
  lose) lose "${2:?number of the node}" ;;
  restart-kubelet) restart_kubelet "${2:?number of the node}" ;;
  revive) revive "${2:?number of the node}" ;;
  forget) forget "${2:?number of the node}" ;;
  kill-pod) kill_pod "${2:?namespace}" "${3:?name of the pod}" ;;
  kill-store) kill_store ;;
  direct) direct "${2:?seconds between compactions, or stop}" ;;
  clear) clear_remains ;;
  down) down ;;
  *) sed -n '2,27p' "$0"; exit 2 ;;
esac
