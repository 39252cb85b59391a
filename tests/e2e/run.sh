#!/usr/bin/env bash
# End-to-end scenarios on a real Kubernetes.
#
#   tests/e2e/run.sh             every scenario that is not marked "soak"
#   tests/e2e/run.sh NAME...     these
#   E2E_SOAK=1 tests/e2e/run.sh  all, those for `make soak` too
#
# Brings up the test cluster of tests/kubernetes, installs the operator by the Helm chart for the
# first scenarios and by deploy/install.yaml for the rest, and leaves nothing behind.
#
#   E2E_NO_BUILD=1   takes image and binaries as they are
#   E2E_KEEP=1       leaves the test cluster up
#   E2E_STORE=etcd   the test cluster keeps its state in etcd, to compare; else in Quorate itself
#   E2E_EXISTING=1   uses the cluster of $KUBECONFIG instead, with kubectl, helm and jq from $PATH.
#                    Its nodes can pull (or have) the images $E2E_IMAGE and $E2E_ETCDCTL_IMAGE, volumes
#                    are of the class $E2E_STORAGE_CLASS or the default one, and the operator is not
#                    installed there: the run installs it and removes it with all that it made.
#                    Scenarios marked "own cluster" kill parts of Kubernetes and are left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
. tests/e2e/lib.sh
export PATH=$top/target/kubernetes/bin:$PATH
export QUORATE_E2E_DIR=${QUORATE_E2E_DIR:-/tmp/quorate-e2e}

marked() { grep -q "^# $2\$" "tests/e2e/scenarios/$1.sh"; }
wanted=("$@")
if [ ${#wanted[@]} -eq 0 ]; then
  for file in tests/e2e/scenarios/*.sh; do
    name=$(basename "$file" .sh)
    { marked "$name" soak && [ -z "${E2E_SOAK:-}" ]; } || wanted+=("$name")
  done
fi
for name in "${wanted[@]}"; do
  [ -f "tests/e2e/scenarios/$name.sh" ] || { echo "no scenario \"$name\"; there are: $(cd tests/e2e/scenarios && echo *.sh | sed 's/\.sh//g')" >&2; exit 2; }
done
# Those that change the chart's values come first: the second half runs without the chart.
scenarios=()
for name in "${wanted[@]}"; do if marked "$name" 'by chart'; then scenarios+=("$name"); fi; done
for name in "${wanted[@]}"; do if ! marked "$name" 'by chart'; then scenarios+=("$name"); fi; done

down() {
  if [ -n "${E2E_EXISTING:-}" ]; then leave_existing
  elif [ -z "${E2E_KEEP:-}" ]; then tests/kubernetes/cluster.sh down; fi
}
crd=customresourcedefinition/etcdclusters.quorate.dev
enter_existing() {
  local tool
  for tool in kubectl helm jq; do
    command -v $tool >/dev/null || { echo "E2E_EXISTING needs $tool on the PATH" >&2; exit 1; }
  done
  kubectl version >/dev/null || { echo "no Kubernetes answers: KUBECONFIG must be that of the cluster to use" >&2; exit 1; }
  if kubectl get $crd >/dev/null 2>&1; then
    echo "Quorate is installed on this cluster: the run would remove it, and every EtcdCluster with it; use another one" >&2; exit 1
  fi
  trap down EXIT
}
leave_existing() {
  kubectl delete namespace -l quorate.dev/e2e=scenario --wait --timeout=180s >/dev/null || true
  kubectl delete --ignore-not-found -f deploy/install.yaml --wait --timeout=120s >/dev/null || true
}

if [ -n "${E2E_EXISTING:-}" ]; then
  enter_existing
else
  [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || { echo "make e2e needs Linux and root, or E2E_EXISTING=1 and KUBECONFIG" >&2; exit 1; }
  if [ -z "${E2E_NO_BUILD:-}" ]; then
    tests/needs.sh rust go
    tests/kubernetes/packages.sh
    tests/needs.sh cc musl
    tests/interop/build.sh
    tests/kubernetes/build.sh
    tests/kubernetes/quorate-image.sh
    tests/kubernetes/install-yaml.sh --check
  fi
  exec 8>"$QUORATE_E2E_DIR.lock"; flock -n 8 || { echo "another run of the scenarios holds $QUORATE_E2E_DIR.lock" >&2; exit 1; }
  export KUBECONFIG=$QUORATE_E2E_DIR/kubeconfig
  tests/kubernetes/cluster.sh clear
  mkdir -p "$QUORATE_E2E_DIR/images"
  [ -n "${E2E_KEEP:-}" ] || touch "$QUORATE_E2E_DIR/of-a-run"
  cp target/image/quorate.tar "$QUORATE_E2E_DIR/images/"
  trap down EXIT
  tests/kubernetes/cluster.sh up 3
  ns=default bash -euo pipefail -c '. tests/e2e/lib.sh; note_store'
fi

install_by_chart() {
  helm upgrade --install quorate charts/quorate --namespace quorate-system --create-namespace --set allNamespaces=true \
    --set image.repository="${quorate_image%:*}",image.tag="${quorate_image##*:}" >/dev/null
  kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
  say "the operator runs, installed by the Helm chart"
}

install_by_manifest() {
  helm uninstall quorate --namespace quorate-system --wait >/dev/null
  kubectl get crd etcdclusters.quorate.dev >/dev/null || { echo "uninstalling the chart deleted the CRD, and with it every cluster" >&2; exit 1; }
  sed "s|quorate:0.1.0|$quorate_image|g" deploy/install.yaml | kubectl apply --server-side --force-conflicts -f - >/dev/null
  kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
  say "the operator runs, installed by deploy/install.yaml"
}

# the first line of a scenario's head that is not a mark
title() { grep -m1 -vE '^# (shellcheck |own cluster$|by chart$|soak$)' "tests/e2e/scenarios/$1.sh" | sed 's/^# //'; }

passed=0 failed=0 installed= table=()
half=$(((${#scenarios[@]} + 1) / 2))
for name in "${scenarios[@]}"; do
  if [ -n "${E2E_EXISTING:-}" ] && marked "$name" 'own cluster'; then
    echo "=== scenario $name: left out, it needs the test cluster"; continue
  fi
  if [ -z "$installed" ]; then install_by_chart; installed=chart
  elif [ "$installed" = chart ] && [ $passed -ge $half ] && ! marked "$name" 'by chart'; then install_by_manifest; installed=manifest; fi
  echo "=== scenario $name: $(title "$name")"
  began=$SECONDS
  ns=e2e-$name
  kubectl create namespace "$ns" >/dev/null
  kubectl label namespace "$ns" quorate.dev/e2e=scenario pod-security.kubernetes.io/enforce=restricted >/dev/null
  # a shell of its own, because errexit does not hold inside of a condition
  if ns=$ns bash -euo pipefail -c '. tests/e2e/lib.sh; . "$1"' - "tests/e2e/scenarios/$name.sh" 8>&-; then
    passed=$((passed + 1)); table+=("$(printf '%6d s  %s' $((SECONDS - began)) "$name")"); echo "=== $name passed in $((SECONDS - began)) s"
  else
    failed=$((failed + 1)); echo "=== $name FAILED after $((SECONDS - began)) s"
    break # what follows would run on a cluster in an unknown state
  fi
  kubectl delete namespace "$ns" --wait=false >/dev/null
done
[ ${#table[@]} -eq 0 ] || printf '%s\n' "--- seconds a scenario" "${table[@]}" "$(printf '%6d s  in all' $SECONDS)"
# the first words are those that tests/soak.sh counts
[ $failed -gt 0 ] || echo "test result: ok. $passed passed"
[ $failed -eq 0 ] || echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
[ -n "${E2E_EXISTING:-}" ] || ns=default bash -euo pipefail -c '. tests/e2e/lib.sh; store_verdict; store_figures'

