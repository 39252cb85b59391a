# shellcheck shell=bash
# soak
# by chart
# own cluster
# release 0.1.0's clusters are upgraded, taken back and upgraded again, operator and members, under writers that see no failed request
#
# Upgrades were untested on a real Kubernetes: data directories of 0.1.0 are kept in tests/data/releases and its
# objects are compared in a unit test, but neither shows a member that waits for an operator with another protocol,
# or a chart that removes a field when it is downgraded. So here the release creates the clusters itself, with its
# own chart and its own image, built from the commit that CHANGELOG.md names.
#
#   1. 0.1.0 creates two clusters: demo names neither version nor image, so it gets the version of the release's
#      definition and runs the image of that tag; sealed has TLS and names its image. The writers start, and write until
#      the end.
#   2. Its operator is replaced by this one: no pod is touched, and demo's version stays. This one heals members of 0.1.0
#      with the image of that tag.
#   3. The members follow, demo's by spec.version and sealed's by spec.image: every one, one at a time, with the same
#      disks. Values stay in memory (the gate ValuesOnDisk is off), or 0.1.0 could not read the disks once all members are
#      of this version.
#   4. The operator is downgraded first, which is the wrong order: present members refuse the one of 0.1.0
#      (decision 26). It changes nothing, the clusters serve, and this operator takes over again.
#   5. The right order: the members are downgraded, which is allowed because 0.1.0 can read every disk, then the
#      operator. It heals what this one left.
#   6. Upgraded again, as before.
#   7. The gate is removed and demo's values go to files: 0.1.0 is refused as its version from then on. No pod is touched
#      for that, and nothing is lost.
release=0.1.0
now=$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' charts/quorate/Chart.yaml)
[ -n "$now" ] || die "charts/quorate/Chart.yaml has no appVersion"
# Of this version members run the operator's own image, whatever its tag; of the release that of its tag, beside it.
old=localhost/quorate:$release new=$quorate_image
tests/kubernetes/release-image.sh $release
for node in 1 2 3; do tests/kubernetes/cluster.sh import $node "$PWD/target/releases/$release/quorate.tar"; done

holder() { kubectl -n quorate-system get lease quorate-operator -o jsonpath='{.spec.holderIdentity}'; }
operator_image() { kubectl -n quorate-system get pods -l app.kubernetes.io/component=operator -o jsonpath='{.items[*].spec.containers[0].image}'; }
acts() { local pod; pod=$(operator_pod) && [ -n "$pod" ] && [ "$(operator_image)" = "$1" ] && [[ $(holder) = "$pod"* ]]; } # acts IMAGE: its operator, and no other
operator_of() { # operator_of IMAGE CHART [FLAG...]
  local image=$1 chart=$2; shift 2
  helm upgrade quorate "$chart" --namespace quorate-system --reset-values --set "$(image_values "$image")" "$@" >/dev/null
  kubectl -n quorate-system rollout status deployment/quorate --timeout=120s >/dev/null
  eventually 60 "the operator of $image acts" acts "$image"
}
operator_of_release() { operator_of "$old" "target/releases/$release/chart"; }
operator_of_now() { operator_of "$new" charts/quorate --set allNamespaces=true; }

pods() { kubectl -n "$ns" get pods -l "quorate.dev/cluster=$1,app.kubernetes.io/component=member" -o jsonpath='{range .items[*]}{.metadata.name}={.metadata.uid}{"\n"}{end}' | sort; }
both_pods() { pods demo && pods sealed; }
both_members() { members demo && members sealed; }
images() { kubectl -n "$ns" get pods -l "quorate.dev/cluster=$1,app.kubernetes.io/component=member" -o json | jq -r '[.items[].spec.containers[0].image] | unique | join(" ")'; }
runs() { whole "$1" 3 && [ "$(images "$1")" = "$2" ] && [ "$(status "$1" updatedReplicas)" = 3 ]; } # runs CLUSTER IMAGE
in_memory='{"extraArgs":[{"name":"feature-gates","value":"ValuesOnDisk=false"}]}'
change() { kubectl -n "$ns" patch qec "$1" --type=merge -p "{\"spec\":$2}" >/dev/null; } # change CLUSTER SPEC
members_of() { # members_of VERSION IMAGE SERVER: demo's version, sealed's image, the server of both, and every member by it under its name
  local cluster kept
  kept=$(both_members)
  change demo "{\"version\":\"$1\",\"server\":$3}"
  change sealed "{\"image\":\"$2\",\"server\":$3}"
  for cluster in demo sealed; do eventually 400 "every member of $cluster runs $2" runs $cluster "$2"; done
  equal "the members" "$kept" "$(both_members)"
}
version_of() { kubectl -n "$ns" get qec "$1" -o jsonpath='{.spec.version}'; }
stalled() { kubectl -n "$ns" get qec demo -o jsonpath="{.status.conditions[?(@.type==\"Stalled\")].$1}"; }
is_refused() { [ "$(stalled reason)" = VersionRefused ]; }
data_of() { # data_of MEMBER: its data directory, on this host
  local pvc volume
  pvc=$(status demo "members[?(@.name==\"$1\")].volumeClaimName") || return 1
  volume=$(kubectl -n "$ns" get pvc "$pvc" -o jsonpath='{.spec.volumeName}') || return 1
  volume=$(kubectl get pv "$volume" -o json | jq -er '.spec.hostPath.path') || return 1
  echo "$volume/data"
}
values_are_in_files() { # of every member of demo
  local all member data
  all=$(members demo) && [ "$(count "$all")" = 3 ] || return 1
  for member in $all; do
    data=$(data_of "$member") || return 1
    compgen -G "$data/values/*.values" || return 1
  done
}
loses_a_disk() { # loses_a_disk CLUSTER: deletes a disk, and waits until it is healed
  local victim pvc
  victim=$(follower "$1")
  pvc=$(status "$1" "members[?(@.name==\"$victim\")].volumeClaimName")
  kubectl -n "$ns" delete pvc "$pvc" --wait=false >/dev/null
  kubectl -n "$ns" delete pod "$victim-0" --wait=false >/dev/null
  eventually 120 "$victim, whose volume is gone, is no member of $1 any more" is_no_member "$1" "$victim"
  ready "$1" 3
}

# --- 1. release 0.1.0
operator_of_release
for cluster in demo sealed; do
  kubectl -n "$ns" apply -f - >/dev/null <<END
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: $cluster}
spec:
  replicas: 3
  storage: {size: 1Gi$(storage_class shared)}
  updateStrategy: {minReadySeconds: 3}
  healing: {unhealthySeconds: 20, learnerDeadlineSeconds: 60}
  $([ $cluster = demo ] || echo "image: $old")
  $([ $cluster = demo ] || echo 'tls: {plaintext: Accepted}')
END
done
equal "the version of demo" "$release" "$(version_of demo)"
for cluster in demo sealed; do ready $cluster 3 240; done
for cluster in demo sealed; do
  equal "what the members of $cluster run" "$old" "$(images $cluster)"
  lease=$(etcdctl_pod $cluster lease grant 1000000 | cut -d' ' -f2)
  etcdctl_pod $cluster put of-the-release "$cluster" --lease="$lease" >/dev/null
  witness_start $cluster "$cluster"
done
of_the_release() {
  local cluster
  for cluster in demo sealed; do
    equal "the key of before in $cluster" "$cluster" "$(etcdctl_pod $cluster get of-the-release --print-value-only)"
    equal "leases of $cluster" 1 "$(etcdctl_pod $cluster lease list --write-out=json | jq '.leases | length')"
  done
}

# --- 2. the operator
before=$(both_pods)
operator_of_now
for cluster in demo sealed; do eventually 60 "$cluster is whole under this operator" whole $cluster 3; done
policies() { [ "$(kubectl -n "$ns" get networkpolicies -o name | grep -c .)" = 2 ]; }
eventually 60 "what 0.1.0 did not make is made" policies
equal "the pods after the operator's upgrade" "$before" "$(both_pods)"
equal "the version of demo" "$release" "$(version_of demo)"
loses_a_disk demo
equal "what the members of demo run" "$old" "$(images demo)"
equal "the pods of the other cluster" "$(grep '^sealed-' <<<"$before")" "$(pods sealed)"

# --- 3. the members
members_of "$now" "$new" "$in_memory"
of_the_release

# --- 4. the wrong order
before=$(both_pods)
operator_of_release
changed() { [ "$(both_pods)" != "$before" ]; }
never 40 "a pod is touched by an operator that its members refuse" changed
log "the operator of $release says: $(status demo summary)"
operator_of_now
for cluster in demo sealed; do eventually 60 "$cluster is whole under this operator again" whole $cluster 3; done
equal "the pods" "$before" "$(both_pods)"

# --- 5. back
members_of "$release" "$old" null # it does not know the gate
of_the_release
before=$(both_pods)
operator_of_release
for cluster in demo sealed; do eventually 60 "$cluster is whole under the operator of $release" whole $cluster 3; done
equal "the pods after the operator went back" "$before" "$(both_pods)"
loses_a_disk sealed
equal "what the members of sealed run" "$old" "$(images sealed)"

# --- 6. forward again
operator_of_now
members_of "$now" "$new" "$in_memory"
of_the_release

# --- 7. no way back
members_of "$now" "$new" null
keys=12000 value=16384 # more than the log of 128 MiB that makes a checkpoint due, whatever the number of its entries
run_pod fill "$quorate_image" bench fill --endpoints=http://demo-client:2379 --prefix=large/ --key-space=$keys --value-size=$value \
  --batch=32 --clients=2 --rate=10 --timeout=60 # 5 MiB a second, beside the writers
filled() { [ "$(kubectl -n "$ns" get pod fill -o jsonpath='{.status.phase}')" = Succeeded ]; }
eventually 180 "$keys values are written" filled
eventually 120 "they are in files, of every member" values_are_in_files
large() { etcdctl_pod demo get large/ --prefix --count-only --write-out=fields | sed -n 's/^"Count" : //p'; }
equal "large values of demo" $keys "$(large)"
before=$(pods demo)
change demo "{\"version\":\"$release\"}"
eventually 60 "$release is refused" is_refused
why=$(stalled message)
contains "$why" "$release is not allowed while" "its disk can be read only by 0.2.0 and later"
touched() { [ "$(pods demo)" != "$before" ]; }
never 20 "a pod is touched for a version that is refused" touched
change demo "{\"version\":\"$now\"}"
eventually 60 "demo is whole again" whole demo 3
equal "the pods of demo" "$before" "$(pods demo)"
equal "large values of demo" $keys "$(large)"
of_the_release
for cluster in demo sealed; do witness_stop $cluster $cluster; done
for cluster in demo sealed; do drop_cluster $cluster; done
