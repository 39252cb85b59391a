# shellcheck shell=bash
# Hosts on this machine, sourced by run.sh: each has a network namespace, a hostname, processes and the directories of
# a host of its own, so that kubeadm writes to the paths that it always writes to, and the machine's own stay as they
# are. The first process of a host takes all others with it when it is killed.

prefix=qka
bridge=${prefix}0
gateway=10.97.0.1
address() { echo "10.97.0.1$1"; } # of host N, 1 to 9
declare -A first=()               # by host: the process that the others of it end with

network_up() {
  ip link add $bridge type bridge
  ip addr add $gateway/24 dev $bridge
  ip link set $bridge up
}

# In the host's namespaces: what kubeadm, the kubelet and containerd write lies in $1, the rest is the machine's.
# Kubelets need directories of a disk, hence the second kind of mount.
host_mounts() {
  local place
  for place in /etc /var/lib /var/log /usr/libexec; do
    mkdir -p "$1/over$place" "$1/work$place"
    mount -t overlay overlay -o "lowerdir=$place,upperdir=$1/over$place,workdir=$1/work$place" $place
  done
  for place in /etc/kubernetes /var/lib/kubelet /var/lib/etcd /var/lib/quorate /var/log/pods; do
    mkdir -p "$1/own$place" $place
    mount --bind "$1/own$place" $place
  done
  mount -t tmpfs tmpfs /run
  mkdir -p /run/netns
}
export -f host_mounts

host_up() { # host_up N
  local n=$1 name=$prefix$1 parent until=$((SECONDS + 10))
  ip netns add "$name"
  ip link add "${prefix}v$n" type veth peer name eth0 netns "$name"
  ip link set "${prefix}v$n" master $bridge up
  ip -n "$name" addr add "$(address "$n")/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
  ip -n "$name" route add default via $gateway
  mkdir -p "$dir/$name"
  # A shell takes in the orphans of a host, as its init would.
  nsenter --net="/var/run/netns/$name" unshare --mount --uts --ipc --pid --fork --mount-proc --kill-child \
    bash -euo pipefail -c 'hostname "$1"; host_mounts "$2"; echo "$3 $1" >>/etc/hosts; echo 1 >/proc/sys/net/ipv4/ip_forward; touch "$2/up"
      while :; do sleep 3600 & wait $! || true; done' bash "$name" "$dir/$name" "$(address "$n")" >>"$dir/$name/log" 2>&1 </dev/null 7>&- &
  parent=$!
  until [ -f "$dir/$name/up" ]; do
    [ $SECONDS -lt $until ] || die "host $name did not start: $(tail -3 "$dir/$name/log")"
    sleep 0.1
  done
  first[$n]=$(pgrep -P $parent)
  cgroups "$name"
}

# Kubelets that share a cgroup root delete one another's pods, so each has its own.
cgroups() {
  local root
  for root in $(hierarchies); do mkdir -p "$root/$1"; done
  root=/sys/fs/cgroup/cpuset
  if [ -d $root ]; then
    cat $root/cpuset.mems >"$root/$1/cpuset.mems"
    cat $root/cpuset.cpus >"$root/$1/cpuset.cpus"
  fi
}
hierarchies() { local h; for h in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do [ ! -d /sys/fs/cgroup/$h ] || echo /sys/fs/cgroup/$h; done; }
remove_cgroups() { # remove_cgroups HOST: a process that was killed stays in its cgroup until it has ended
  local root until=$((SECONDS + 5))
  for root in /sys/fs/cgroup/* /sys/fs/cgroup; do
    while [ -d "$root/$1" ] && [ $SECONDS -lt $until ]; do
      find "$root/$1" -depth -type d -exec rmdir {} \; 2>/dev/null || true
      [ ! -d "$root/$1" ] || sleep 0.1
    done
  done
}

on() { # on N COMMAND...: in host N, with kubeadm, the kubelet and a systemctl for it
  local n=$1; shift
  nsenter --target "${first[$n]}" --mount --uts --ipc --net --pid \
    env -i HOME=/root PATH="$top/tests/kubeadm:$bin:$PATH" "$@" 7>&-
}

containerd_up() { # containerd_up N: with the images, and a network for pods
  local n=$1 d=$dir/$prefix$1 archive until=$((SECONDS + 30))
  mkdir -p "$d/cni"
  cat >"$d/containerd.toml" <<EOF
version = 2
root = "$d/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:$pause"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$d/cni"
EOF
  cat >"$d/cni/10-pods.conflist" <<EOF
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.$n.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
EOF
  on "$n" setsid containerd -c "$d/containerd.toml" >"$d/containerd.log" 2>&1 </dev/null &
  until on "$n" ctr version >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || die "containerd of host $n did not start: $(tail -3 "$d/containerd.log")"
    sleep 0.2
  done
  for archive in "$dir"/images/*.tar; do
    on "$n" ctr -n k8s.io images import "$archive" >>"$d/containerd.log" 2>&1 || die "host $n cannot import $archive"
  done
}

host_down() { # host_down N
  local name=$prefix$1 until=$((SECONDS + 5))
  [ -z "${first[$1]:-}" ] || kill -9 "${first[$1]}" 2>/dev/null || true
  unset "first[$1]"
  while [ -n "$(ip netns pids "$name" 2>/dev/null)" ] && [ $SECONDS -lt $until ]; do sleep 0.1; done
  # the link first: a link that is removed with its namespace disappears only later
  ip link del "${prefix}v$1" 2>/dev/null || true
  ip netns del "$name" 2>/dev/null || true
  remove_cgroups "$name"
  [ -z "$dir" ] || rm -rf "${dir:?}/$name"
}
network_down() {
  local n
  for n in 1 2 3 4; do host_down $n; done
  ip link del $bridge 2>/dev/null || true
}
# What a run that was killed left: no other run holds the lock.
clear_remains() {
  local n p
  for n in 1 2 3 4; do
    for p in $(ip netns pids $prefix$n 2>/dev/null); do kill -9 "$p" 2>/dev/null || true; done
  done
  dir= network_down
}
