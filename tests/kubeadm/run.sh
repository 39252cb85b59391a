#!/usr/bin/env bash
# kubeadm itself on Quorate, on hosts that are namespaces of this machine (hosts.sh): each runs containerd, the kubelet, and
# what kubeadm starts there as static pods.
#
#   tests/kubeadm/run.sh            all three
#   tests/kubeadm/run.sh external   three hosts with the command line of deploy/systemd as external etcd: external.sh
#   tests/kubeadm/run.sh stacked    Quorate as kubeadm's own etcd on three hosts: stacked.sh
#   tests/kubeadm/run.sh static_pod the manifest of deploy/static-pod on one host: static-pod.sh
#
# KEEP=folder puts the logs of a run that fails there. Needs root, what tests/kubernetes/packages.sh installs, and what `make kubeadm`
# builds; docs/tasks/kubeadm.md says what is shown and what cannot be here.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
bin=$top/target/kubernetes/bin
binary=${QUORATE_STATIC:-$top/target/image/context/out/quorate} # static: it runs in an image that has nothing else
parts=("$@"); [ ${#parts[@]} -gt 0 ] || parts=(external static_pod stacked)
for part in "${parts[@]}"; do
  [[ $part =~ ^(external|static_pod|stacked)$ ]] || { echo "tests/kubeadm: there is no \"$part\": external, static_pod or stacked" >&2; exit 2; }
done
before=v1.34.3 after=v1.34.4  # the tags of one and the same binary, which is the second
etcd_tag=$(sed -n 's/^ *imageTag: //p' deploy/kubeadm/stacked.yaml)
etcd_newer=${etcd_tag%-*}-$((${etcd_tag##*-} + 1))

log() { printf '%s  %s\n' "$(date +%T)" "$*"; }
die() { log "FAILED: $*" >&2; exit 1; }

[ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || die "needs Linux and root (namespaces, mounts, cgroups)"
for tool in containerd ctr runc buildah ip nsenter unshare curl jq openssl python3; do
  command -v $tool >/dev/null || die "$tool is missing: tests/kubernetes/packages.sh installs it"
done
for tool in kube kubeadm kubelet kubectl pause; do
  [ -x "$bin/$tool" ] || die "$bin/$tool is missing: make kubeadm builds it"
done
[ -x "$binary" ] || die "$binary is missing: make kubeadm builds it"
pause=$("$bin/kubeadm" config images list --kubernetes-version "$after" 2>/dev/null | sed -n 's|.*/pause:||p')

. tests/kubeadm/checks.sh
. tests/kubeadm/hosts.sh
. tests/kubeadm/images.sh
. tests/kubeadm/external.sh
. tests/kubeadm/stacked.sh
. tests/kubeadm/static-pod.sh

exec 7>/tmp/quorate-kubeadm.lock; flock -n 7 || die "another run is under way"
clear_remains
dir=$(mktemp -d /tmp/quorate-kubeadm.XXXXXX)
finish() {
  local status=$?
  trap - EXIT
  kill $(jobs -p) 2>/dev/null || true # what asks in the background
  [ $status = 0 ] || show
  [ -z "${KEEP:-}" ] || keep_logs
  network_down
  rm -rf "$dir"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

images
log "the images are made"
network_up
for part in "${parts[@]}"; do
  began=$SECONDS
  "$part"
  for n in 1 2 3 4; do host_down $n; done
  passed=$((${passed:-0} + 1))
  log "$part: held in $((SECONDS - began)) s"
done
# tests/soak.sh parses the beginning of this line
echo "test result: ok. $passed passed; $checks checks in $SECONDS s"
