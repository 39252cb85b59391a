#!/usr/bin/env bash
# Other people's judges of the chart, over what it renders for every case of tests/chart/cases: kubeconform with the schemas of
# Kubernetes, kube-score, and checkov. What they object to and is right as it is, is listed with its reason in
# kube-score/exceptions.txt and checkov/exceptions.txt (judge.py). Needs helm, Go, python3 and, the first time, their registries.
# All output is below target/chart.
#   run.sh        all of them, kubeconform with every Kubernetes that the chart takes: part of make chart
#   run.sh NAME   one of kubeconform, kube-score and checkov
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD top=$(cd ../../.. && pwd)
out=$top/target/chart
bin=$out/bin
only=${1:-}
# The newest patch of each minor version from Chart.yaml's kubeVersion on; 1.34.4 is the one that the end-to-end tests build.
versions="1.33.13 1.34.4 1.35.4 1.36.3 1.37.2"
case $only in '' | kubeconform | kube-score | checkov) ;; *) echo "run.sh takes kubeconform, kube-score or checkov, not \"$only\"" >&2; exit 2 ;; esac
mkdir -p "$bin"
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }
build() { # build NAME PACKAGE: from the module of that name
  if [ -x "$bin/$1" ] && [ -z "$(find "$here/$1" -name 'go.*' -newer "$bin/$1" -print -quit)" ]; then return; fi
  (cd "$here/$1" && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w" -o "$bin/$1" "$2")
  touch "$bin/$1"
}
schemas() { # schemas VERSION: in their folder
  local folder
  if [ -e "$out/schemas/$1/.done" ] && [ "$out/schemas/$1/.done" -nt schemas.py ]; then return; fi
  # outside of a module, so that its file is not changed
  folder=$(cd "$out" && GOWORK=off go mod download -json "k8s.io/kubernetes@v$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  ./schemas.py "$folder/api/openapi-spec/swagger.json" "$out/schemas/$1"
  touch "$out/schemas/$1/.done"
}

rm -rf "$out/rendered"
./rendered.py "$out/rendered"

if wanted kubeconform; then
  build kubeconform github.com/yannh/kubeconform/cmd/kubeconform
  for version in $versions; do
    schemas "$version"
    echo "kubeconform: Kubernetes $version"
    # The definitions of the Prometheus operator are no part of Kubernetes.
    "$bin/kubeconform" -strict -summary -kubernetes-version "$version" -skip PodMonitor,ServiceMonitor,PrometheusRule \
      -schema-location "$out/schemas/$version/{{ .ResourceKind }}{{ .KindSuffix }}.json" "$out/rendered"
  done
fi
if wanted kube-score; then
  build kube-score github.com/zegl/kube-score/cmd/kube-score
  ./judge.py kube-score "$bin/kube-score" "$out/rendered"
fi
if wanted checkov; then
  python=$out/checkov
  if [ ! -e "$python/.done" ] || [ checkov/requirements.txt -nt "$python/.done" ]; then
    rm -rf "$python"
    python3 -m venv "$python"
    "$python/bin/pip" install --quiet -r checkov/requirements.txt
    touch "$python/.done"
  fi
  ./judge.py checkov "$python/bin/checkov" "$out/rendered"
fi
