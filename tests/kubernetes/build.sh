#!/usr/bin/env bash
# Builds the programs of the test cluster: Kubernetes, CoreDNS, helm, the pause program, and (by tests/interop)
# etcd and etcdctl; with a NAME only that one. cert-manager and kubeadm are built only by their names, since only the
# tests with them need them. All output is in target/kubernetes/bin; what is newer than its sources is not built again. Needs
# Go; touches nothing outside target/ and Go's own caches.
#
# KUBERNETES=newest builds the newest Kubernetes there is instead, from the same sources with the modules of kube/newest.mod, into
# target/kubernetes-newest/bin; tests that are given the same run with it.
set -euo pipefail
cd "$(dirname "$0")"
top=$(cd ../.. && pwd)
kubernetes=${KUBERNETES:-}
case $kubernetes in
  "") version=v1.34.4 modules=go.mod ;;
  newest) version=v1.37.2 modules=newest.mod ;;
  *) echo "tests/kubernetes: KUBERNETES=$kubernetes is not known: it is newest, or nothing" >&2; exit 2 ;;
esac
minor=${version#v1.} minor=${minor%.*}
bin=$top/target/kubernetes${kubernetes:+-$kubernetes}/bin
only=${1:-}
if [ -n "$kubernetes" ] && [ "$only" = kubeadm ]; then
  echo "tests/kubernetes: there is no kubeadm of $version: unset KUBERNETES" >&2; exit 2
fi
mkdir -p "$bin"
command -v go >/dev/null || { echo "tests/kubernetes: Go is needed to build the test cluster (https://go.dev/doc/install)" >&2; exit 1; }

build() { # build NAME FOLDER PACKAGE [FLAG...]
  local name=$1 folder=$2 package=$3; shift 3
  if [ -n "$only" ] && [ "$name" != "$only" ]; then return; fi
  if [ -x "$bin/$name" ] && [ -z "$(find "$folder" -newer "$bin/$name" -type f -print -quit)" ]; then return; fi
  local began=$SECONDS
  (cd "$folder" && CGO_ENABLED=0 go build -mod=readonly -trimpath "$@" -o "$bin/$name" "$package")
  touch "$bin/$name"
  echo "built $name in $((SECONDS - began)) s"
}

stamp=k8s.io/component-base/version
build kube kube . -modfile="$modules" -tags providerless \
  -ldflags "-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor"
build coredns coredns . -ldflags "-s -w"
build pause pause . -ldflags "-s -w"
build helm helm helm.sh/helm/v3/cmd/helm -ldflags "-s -w"
# Of the same version, with which the tags of the images that it asks for begin.
[ "$only" != kubeadm ] || build kubeadm kubeadm k8s.io/kubernetes/cmd/kubeadm -tags providerless \
  -ldflags "-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor"
[ "$only" != cert-manager ] || build cert-manager cert-manager . -ldflags "-s -w"
[ -z "$only" ] || exit 0
for name in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl test-disks test-load test-informer; do
  ln -sf kube "$bin/$name"
done
