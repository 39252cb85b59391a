#!/usr/bin/env bash
# End-to-end scenarios on a real Kubernetes.
#
#   tests/e2e/run.sh             every scenario that is not marked "soak"
#   tests/e2e/run.sh NAME...     these
#
# Brings up the test cluster of tests/kubernetes, installs the operator by the Helm chart for the
# first scenarios and by deploy/install.yaml for the rest, and leaves nothing behind. With
# E2E_EXISTING=1 it uses the cluster of $KUBECONFIG, where the image $E2E_IMAGE and an etcdctl image
# $E2E_ETCDCTL_IMAGE can be pulled; with E2E_KEEP=1 it leaves the test cluster up; with
# E2E_NO_BUILD=1 it takes image and binaries as they are.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
. tests/e2e/lib.sh
export PATH=$top/target/kubernetes/bin:$PATH
export QUORATE_E2E_DIR=${QUORATE_E2E_DIR:-/tmp/quorate-e2e}

scenarios=("$@")
if [ ${#scenarios[@]} -eq 0 ]; then
  for file in tests/e2e/scenarios/*.sh; do
    grep -q '^# soak$' "$file" || scenarios+=("$(basename "$file" .sh)")
  done
fi
for name in "${scenarios[@]}"; do
  [ -f "tests/e2e/scenarios/$name.sh" ] || { echo "no scenario \"$name\"; there are: $(cd tests/e2e/scenarios && echo *.sh | sed 's/\.sh//g')" >&2; exit 2; }
done

down() { [ -n "${E2E_EXISTING:-}" ] || [ -n "${E2E_KEEP:-}" ] || tests/kubernetes/cluster.sh down; }

if [ -z "${E2E_EXISTING:-}" ]; then
  [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || { echo "make e2e needs Linux and root, or E2E_EXISTING=1 and KUBECONFIG" >&2; exit 1; }
  if [ -z "${E2E_NO_BUILD:-}" ]; then
    tests/kubernetes/packages.sh
    tests/peers/build.sh
    tests/kubernetes/build.sh
    tests/kubernetes/quorate-image.sh
    tests/kubernetes/install-yaml.sh --check
  fi
  export KUBECONFIG=$QUORATE_E2E_DIR/kubeconfig
  mkdir -p "$QUORATE_E2E_DIR/images"
  cp target/image/quorate.tar "$QUORATE_E2E_DIR/images/"
  trap down EXIT
  tests/kubernetes/cluster.sh up 3
fi

install_by_chart() {
  helm upgrade --install quorate charts/quorate --namespace quorate-system --create-namespace \
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

passed=0 failed=0 installed=
half=$(((${#scenarios[@]} + 1) / 2))
for name in "${scenarios[@]}"; do
  if [ -z "$installed" ]; then install_by_chart; installed=chart
  elif [ "$installed" = chart ] && [ $passed -ge $half ]; then install_by_manifest; installed=manifest; fi
  echo "=== scenario $name: $(sed -n '2s/^# //p' "tests/e2e/scenarios/$name.sh")"
  began=$SECONDS
  ns=e2e-$name
  kubectl create namespace "$ns" >/dev/null
  kubectl label namespace "$ns" pod-security.kubernetes.io/enforce=restricted >/dev/null
  # a shell of its own, because errexit does not hold inside of a condition
  if ns=$ns bash -euo pipefail -c '. tests/e2e/lib.sh; . "$1"' - "tests/e2e/scenarios/$name.sh"; then
    passed=$((passed + 1)); echo "=== $name passed in $((SECONDS - began)) s"
  else
    failed=$((failed + 1)); echo "=== $name FAILED after $((SECONDS - began)) s"
    break # what follows would run on a cluster in an unknown state
  fi
  kubectl delete namespace "$ns" --wait=false >/dev/null
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
