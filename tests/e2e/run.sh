#!/usr/bin/env bash
# End-to-end scenarios on a real Kubernetes.
#
#   tests/e2e/run.sh             every scenario that is not marked "soak"
#   tests/e2e/run.sh NAME...     these
#   E2E_SOAK=1 tests/e2e/run.sh  all, those for `make soak` too
#
# Brings up the test cluster of tests/kubernetes, installs the operator with the Helm chart for the first half of
# the scenarios and with deploy/install.yaml for the rest, and cleans up afterwards.
#
# Two scenarios run at a time, each in a namespace of its own, since they mostly wait. The output of each is
# printed when it ends. After those, the scenarios that disturb others or would be disturbed run one by one: each
# has one of these lines in its head.
#
#   # alone         cordons a node, checks that nothing happens for a while, or the like
#   # by chart      changes the chart's values; it runs in the first half
#   # own cluster   needs the test cluster, and touches its nodes, its API server or its store
#
# and one that needs nodes, pods and Services with both IP families has
#
#   # dual stack    the test cluster has them for the whole run
#
# and one that needs more than the Kubernetes of continuous integration has
#
#   # newest        run with KUBERNETES=newest, and left out otherwise
#
# The operator is shared. Its death is what most scenarios test and all must tolerate; only one scenario kills it
# at a time, while it acts and no scenario is querying it (with_operator in lib.sh). The first failure ends the
# run, and the scenario beside it.
#
#   E2E_LANES=1      one scenario at a time, or more than 2
#   E2E_NO_BUILD=1   takes image and binaries as they are
#   E2E_KEEP=1       leaves the test cluster up
#   E2E_STORE=etcd   the test cluster keeps its state in etcd, to compare; else in Quorate itself
#   E2E_EXISTING=1   uses the cluster of $KUBECONFIG instead, with kubectl, helm, jq, flock and setsid.
#                    Its nodes can pull (or have) the images $E2E_IMAGE, $E2E_ETCDCTL_IMAGE and $E2E_STORE_IMAGE, volumes
#                    are of the class $E2E_STORAGE_CLASS or the default one, and the operator is not
#                    installed there: the run installs it and removes it with all that it made.
#                    Scenarios marked "own cluster" are left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
. tests/e2e/lib.sh
export PATH=$top/target/kubernetes${KUBERNETES:+-$KUBERNETES}/bin:$PATH
export QUORATE_E2E_DIR=${QUORATE_E2E_DIR:-/tmp/quorate-e2e}

lanes=${E2E_LANES:-2}
[[ $lanes =~ ^[1-9]$ ]] || { echo "E2E_LANES is how many scenarios run at a time, 1 to 9, not \"$lanes\"" >&2; exit 2; }

marked() { grep -q "^# $2\$" "tests/e2e/scenarios/$1.sh"; }
alone() { marked "$1" alone || marked "$1" 'by chart' || marked "$1" 'own cluster'; }
wanted=("$@")
if [ ${#wanted[@]} -eq 0 ]; then
  for file in tests/e2e/scenarios/*.sh; do
    name=$(basename "$file" .sh)
    { marked "$name" soak && [ -z "${E2E_SOAK:-}" ]; } || { marked "$name" newest && [ -z "${KUBERNETES:-}" ]; } || wanted+=("$name")
  done
fi
for name in "${wanted[@]}"; do
  [ -f "tests/e2e/scenarios/$name.sh" ] || { echo "no scenario \"$name\"; there are: $(cd tests/e2e/scenarios && echo *.sh | sed 's/\.sh//g')" >&2; exit 2; }
  if marked "$name" newest && [ -z "${KUBERNETES:-}" ]; then echo "$name needs the newest Kubernetes: KUBERNETES=newest make kubernetes, then KUBERNETES=newest tests/e2e/run.sh $name" >&2; exit 2; fi
done
# Those that change the chart's values come first: the second half runs without the chart.
scenarios=()
for name in "${wanted[@]}"; do if marked "$name" 'by chart'; then scenarios+=("$name"); fi; done
for name in "${wanted[@]}"; do if ! marked "$name" 'by chart'; then scenarios+=("$name"); fi; done

declare -A running=() began=() # by process id (each leads a process group): the name of each running scenario, and its start
passed=0 failed=0 table=() count=1 # how many run at a time
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
export QUORATE_E2E_OPERATOR=$logs/operator.lock
leave() { # on every exit, once there is a cluster
  end_running "the run ends"
  down
  rm -rf "$logs"
}
down() {
  if [ -n "${E2E_EXISTING:-}" ]; then leave_existing
  elif [ -z "${E2E_KEEP:-}" ]; then tests/kubernetes/cluster.sh down; fi
}
crd=customresourcedefinition/etcdclusters.quorate.dev
enter_existing() {
  local tool
  for tool in kubectl helm jq flock setsid; do
    command -v $tool >/dev/null || { echo "E2E_EXISTING needs $tool on the PATH" >&2; exit 1; }
  done
  tests/e2e/checks-test.sh
  kubectl version >/dev/null || { echo "no Kubernetes answers: KUBECONFIG must be that of the cluster to use" >&2; exit 1; }
  if kubectl get $crd >/dev/null 2>&1; then
    echo "Quorate is installed on this cluster: the run would remove it, and every EtcdCluster with it; use another one" >&2; exit 1
  fi
  trap leave EXIT
}
leave_existing() {
  kubectl delete namespace -l quorate.dev/e2e=scenario --wait --timeout=180s >/dev/null || true
  kubectl delete --ignore-not-found -f deploy/install.yaml --wait --timeout=120s >/dev/null || true
}

install_by_chart() {
  helm upgrade --install quorate charts/quorate --namespace quorate-system --create-namespace --set allNamespaces=true \
    --set "$(image_values "$quorate_image")" >/dev/null
  kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
  log "the operator runs, installed by the Helm chart"
}

install_by_manifest() {
  helm uninstall quorate --namespace quorate-system --wait >/dev/null
  kubectl get crd etcdclusters.quorate.dev >/dev/null || { echo "uninstalling the chart deleted the CRD, and with it every cluster" >&2; exit 1; }
  sed -E "s|(image[:=] ?)quorate:[^ ]+|\1$quorate_image|" deploy/install.yaml | kubectl apply --server-side --force-conflicts -f - >/dev/null
  kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
  log "the operator runs, installed by deploy/install.yaml"
}

# the title: the first line of a scenario's head that is not a mark
title() { grep -m1 -vE '^# (shellcheck |alone$|own cluster$|by chart$|dual stack$|newest$|soak$)' "tests/e2e/scenarios/$1.sh" | sed 's/^# //'; }

start() { # start NAME beside|alone: its output goes to a file, that of one alone is printed as it comes too
  local name=$1 namespace=e2e-$1 out
  kubectl create namespace "$namespace" >/dev/null
  kubectl label namespace "$namespace" quorate.dev/e2e=scenario pod-security.kubernetes.io/enforce=restricted >/dev/null
  began[$name]=$SECONDS
  if [ "$2" = alone ]; then exec {out}> >(exec tee "$logs/$name" 8>&-); else exec {out}>"$logs/$name"; fi
  # a separate shell, because errexit does not apply inside a condition
  ns=$namespace setsid bash -euo pipefail -c '. tests/e2e/lib.sh; report_errors; . "$1"' - "tests/e2e/scenarios/$name.sh" </dev/null >&"$out" 2>&1 8>&- &
  running[$!]=$name
  # for cluster.sh clear, if this run is killed
  [ -n "${E2E_EXISTING:-}" ] || echo $! >"$QUORATE_E2E_DIR/scenarios/$name"
  exec {out}>&-
}

# Waits for the first of the running ones to end, and prints its output.
finish() {
  local pid name seconds status=0
  wait -n -p pid "${!running[@]}" || status=$?
  name=${running[$pid]}
  unset "running[$pid]"
  rm -f "$QUORATE_E2E_DIR/scenarios/$name"
  seconds=$((SECONDS - began[$name]))
  show "$name"
  if [ $status = 0 ]; then
    passed=$((passed + 1)); table+=("$(printf '%6d s  %s' $seconds "$name")"); echo "=== $name passed in $seconds s"
    kubectl delete namespace "e2e-$name" --wait=false >/dev/null
  else
    failed=$((failed + 1)); echo "=== $name FAILED after $seconds s"
    why "$name" >"$logs/$name.failed"
    end_running "$name failed"
  fi
}

# show NAME: its output, unless that was printed as it came
show() {
  [ "$count" -gt 1 ] || return 0
  echo "=== scenario $1: $(title "$1")"
  cat "$logs/$1"
}

# why NAME: what it said last, without the objects and logs that it printed when it failed
why() { echo "$1:"; grep -E '^[0-9]{2}(:[0-9]{2}){2}  ' "$logs/$1" | tail -n 12; }

# end_running WHY: the scenarios that still run get a SIGTERM, and after 20 s a SIGKILL
end_running() {
  local pid name until
  for pid in "${!running[@]}"; do
    name=${running[$pid]} until=$((SECONDS + 20))
    kill -TERM -- "-$pid" 2>/dev/null || true
    while kill -0 -- "-$pid" 2>/dev/null && [ $SECONDS -lt $until ]; do sleep 0.2; done
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    rm -f "$QUORATE_E2E_DIR/scenarios/$name"
    show "$name"
    echo "=== $name was ended after $((SECONDS - began[$name])) s, because $1"
  done
  running=()
}

# run COUNT NAME...: so many at a time; after a failure no further ones are started, because they would run on a
# cluster in an unknown state
run() {
  local name; count=$1; shift
  [ $# -gt 1 ] || count=1
  for name in "$@"; do
    [ ${#running[@]} -lt "$count" ] || finish
    [ $failed = 0 ] || return 0
    if [ "$count" = 1 ]; then
      echo "=== scenario $name: $(title "$name")"
      start "$name" alone
    else
      log "$name begins"
      start "$name" beside
    fi
  done
  while [ ${#running[@]} -gt 0 ]; do finish; done
}

run_half() { # run_half NAME...: those that may run beside others, then the rest
  local name beside=() others=()
  for name in "$@"; do if alone "$name"; then others+=("$name"); else beside+=("$name"); fi; done
  # those that wait most often first: the last one to start has nothing beside it
  mapfile -t beside < <(cd tests/e2e/scenarios; for name in "${beside[@]}"; do echo "$(grep -cE 'eventually|ready|slots|witness' "$name.sh") $name"; done | sort -srn -k1,1 | cut -d' ' -f2)
  run "$lanes" "${beside[@]}"
  run 1 "${others[@]}"
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
    tests/stores/build.sh versitygw
    tests/kubernetes/build.sh
    tests/kubernetes/quorate-image.sh
    tests/kubernetes/install-yaml.sh --check
  fi
  tests/e2e/checks-test.sh
  exec 8>"$QUORATE_E2E_DIR.lock"; flock -n 8 || { echo "another run of the scenarios holds $QUORATE_E2E_DIR.lock" >&2; exit 1; }
  export KUBECONFIG=$QUORATE_E2E_DIR/kubeconfig
  tests/kubernetes/cluster.sh clear
  mkdir -p "$QUORATE_E2E_DIR/images" "$QUORATE_E2E_DIR/scenarios"
  [ -n "${E2E_KEEP:-}" ] || touch "$QUORATE_E2E_DIR/of-a-run"
  cp target/image/quorate.tar "$QUORATE_E2E_DIR/images/"
  trap leave EXIT
  for name in "${scenarios[@]}"; do if marked "$name" 'dual stack'; then export E2E_FAMILIES=dual; fi; done
  tests/kubernetes/cluster.sh up 3
fi

first=() second=()
half=$(((${#scenarios[@]} + 1) / 2))
for name in "${scenarios[@]}"; do
  if [ -n "${E2E_EXISTING:-}" ] && marked "$name" 'own cluster'; then
    echo "=== scenario $name: left out, it needs the test cluster"
  elif [ ${#first[@]} -lt $half ] || marked "$name" 'by chart'; then first+=("$name")
  else second+=("$name"); fi
done
if [ ${#first[@]} -gt 0 ]; then
  install_by_chart
  run_half "${first[@]}"
fi
if [ $failed = 0 ] && [ ${#second[@]} -gt 0 ]; then
  install_by_manifest
  run_half "${second[@]}"
fi
[ ${#table[@]} -eq 0 ] || printf '%s\n' "--- seconds a scenario" "${table[@]}" "$(printf '%6d s  in all' $SECONDS)"
# tests/soak.sh parses the beginning of this line
[ $failed -gt 0 ] || echo "test result: ok. $passed passed"
[ $failed -eq 0 ] || { echo "$passed passed, $failed failed:"; cat "$logs"/*.failed; }
[ $failed -eq 0 ]
[ -n "${E2E_EXISTING:-}" ] || ns=default bash -euo pipefail -c '. tests/e2e/lib.sh; report_errors; store_verdict; store_figures'

