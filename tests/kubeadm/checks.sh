# shellcheck shell=bash
# Checks, and how the test asks a host and a cluster; sourced by run.sh.

checks=0
# Before an upgrade kubeadm looks at CoreDNS, which is not installed here (cluster_configuration says why). Nothing else is
# ignored, neither of init nor of join nor of upgrade.
ignored=CoreDNSUnsupportedPlugins,CoreDNSMigration
held() { checks=$((checks + 1)); log "$*"; }
equal() { # equal WHAT WANTED GOT
  [ -n "$2" ] && [ "$2" = "$3" ] || die "$1: wanted \"$2\", got \"$3\""
  if [[ $2 = *$'\n'* ]]; then held "$1: as wanted, $(wc -l <<<"$2") lines"; else held "$1: $2"; fi
}
contains() { # contains WHAT TEXT WORDS...
  local what=$1 text=$2 words; shift 2
  for words in "$@"; do [[ $text = *"$words"* ]] || die "$what: no \"$words\" in: $text"; done
  held "$what"
}
lacks() { # lacks WHAT TEXT WORDS
  [[ $2 != *"$3"* ]] || die "$1: \"$3\" is in: $2"
  held "$1"
}
eventually() { # eventually SECONDS WHAT COMMAND...
  local what=$2 until=$((SECONDS + $1)) began=$SECONDS; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || die "$what: not within $((SECONDS - began)) s"
    sleep 0.5
  done
  held "$what ($((SECONDS - began)) s)"
}

# kubeadm N ARGUMENT...: its whole output is in a file of the host, and is shown if it fails
kubeadm() {
  local n=$1; shift
  log "host $n: kubeadm $*"
  on "$n" kubeadm "$@" >"$dir/$prefix$n/kubeadm" 2>&1 </dev/null || { cat "$dir/$prefix$n/kubeadm" >&2; die "kubeadm $* on host $n"; }
}
said() { cat "$dir/$prefix$1/kubeadm"; } # what kubeadm last said on host N
kube() { # kube N ARGUMENT...: kubectl by the admin of host N
  local n=$1; shift
  on "$n" kubectl --kubeconfig=/etc/kubernetes/admin.conf "$@" </dev/null
}
kube_apply() { on "$1" kubectl --kubeconfig=/etc/kubernetes/admin.conf apply -f - >/dev/null 2>&1; }
kept() { # kept N NAME VALUE: writes a ConfigMap by the API server that host N is configured for, and reads it
  kube "$1" create configmap "$2" --from-literal=value="$3" >/dev/null || die "ConfigMap $2 is not written"
  equal "ConfigMap $2 of host $1" "$3" "$(kube "$1" get configmap "$2" -o jsonpath='{.data.value}')"
}
still_kept() { equal "ConfigMap $2 of host $1" "$3" "$(kube "$1" get configmap "$2" -o jsonpath='{.data.value}')"; }

# What a kubelet needs on this machine alone, for every host of a cluster; and of one host.
kubelet_configuration() {
  cat <<EOF
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failSwapOn: false
fileCheckFrequency: 1s
nodeStatusUpdateFrequency: 4s
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
EOF
}
node_registration() { # node_registration N
  cat <<EOF
nodeRegistration:
  name: $prefix$1
  criSocket: unix:///run/containerd/containerd.sock
  kubeletExtraArgs:
  - {name: cgroup-root, value: /$prefix$1}
  - {name: node-ip, value: $(address "$1")}
EOF
}
# What is not of the store: one image for everything of Kubernetes, and no image of CoreDNS or of kube-proxy, whose image
# has the host's iptables.
cluster_configuration() { # cluster_configuration FILE [SED]: a page's, completed for this machine
  sed "${2:-}" "$1"
  cat <<EOF
kubernetesVersion: $before
imageRepository: localhost
networking: {serviceSubnet: 10.96.0.0/16}
dns: {disabled: true}
proxy: {disabled: true}
EOF
}

keep_logs() {
  local n
  for n in "${!first[@]}"; do
    mkdir -p "$KEEP/$prefix$n"
    cp -r "$dir/$prefix$n"/*.log "$dir/$prefix$n/kubeadm" "$dir/$prefix$n/over/var/log/kubelet.log" "$dir/$prefix$n/own/var/log/pods" "$KEEP/$prefix$n/" 2>/dev/null || true
  done
}
show() { # for a run that failed
  local n
  for n in "${!first[@]}"; do
    echo "--- host $n"
    on "$n" ctr -n k8s.io containers list 2>/dev/null || true
    tail -n 15 "$dir/$prefix$n/over/var/log/kubelet.log" 2>/dev/null || true
    for file in "$dir/$prefix$n/own/var/log/pods"/*/*/*.log; do
      [ ! -f "$file" ] || { echo "--- ${file#"$dir/"}"; tail -n 6 "$file" | cut -c1-400; }
    done
  done >&2
}
