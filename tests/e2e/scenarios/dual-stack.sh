# shellcheck shell=bash
# soak
# own cluster
# dual stack
# a cluster gets a second IP family while it serves, and gives it back: every Service has it, clients and names lead to members by both, a roll and a replacement go on, no write fails and nobody is restarted for it; a cluster of IPv6 alone; what Kubernetes refuses is told
services() { kubectl -n "$ns" get services -l "app.kubernetes.io/instance=$1" -o json; }
families() { services "$1" | jq -r '[.items[].spec | "\(.ipFamilyPolicy) \(.ipFamilies | join(","))"] | unique | join("; ")'; }
have() { local now; now=$(families "$1") && [ "$now" = "$2" ]; }
pods() { kubectl -n "$ns" get pods -l quorate.dev/cluster=demo,app.kubernetes.io/component=member -o jsonpath='{range .items[*]}{.metadata.name}={.metadata.uid}{"\n"}{end}' | sort; }
asks() { kubectl -n "$ns" patch qec "$1" --type=merge -p "{\"spec\":{\"service\":$2}}"; }
host() { case $1 in *:*) echo "[$1]" ;; *) echo "$1" ;; esac; }
# records TYPE NAME: the addresses that cluster DNS has for a name, A or AAAA. Asked from outside at the pod of the DNS, whose
# networks this machine routes.
records() {
  local dns
  dns=$(kubectl -n kube-system get pods -l k8s-app=kube-dns -o jsonpath='{.items[0].status.podIP}')
  python3 - "$dns" "$1" "$2" <<'PYTHON'
import ipaddress, socket, struct, sys

server, kind, name = sys.argv[1:]
number = {"A": 1, "AAAA": 28}[kind]
query = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0)
query += b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0" + struct.pack(">2H", number, 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
    asked.settimeout(5)
    asked.sendto(query, (server, 1053))
    answer = asked.recv(4096)
flags, _, answers = struct.unpack_from(">3H", answer, 2)
if flags & 15 not in (0, 3):
    sys.exit(f"cluster DNS answers with the code {flags & 15}")
at, found = len(query), []
for _ in range(answers):
    while answer[at] and answer[at] < 192:
        at += answer[at] + 1
    at += 2 if answer[at] else 1
    type_, _, _, size = struct.unpack_from(">2HIH", answer, at)
    at += 10
    if type_ == number:
        found.append(str(ipaddress.ip_address(answer[at : at + size])))
    at += size
print(" ".join(sorted(found)))
PYTHON
}
pod_addresses() { kubectl -n "$ns" get pod "$1-0" -o json | jq -r --arg colon "$2" '[.status.podIPs[].ip | select(contains(":") == ($colon == ":"))] | join(" ")'; }
# named CLUSTER KINDS: each member's name has the addresses of its pod, of these kinds ("A AAAA") and of no other
named() {
  local member all wanted found kind colon
  all=$(members "$1") && [ -n "$all" ] || return 1
  for member in $all; do
    for kind in A AAAA; do
      colon=; [ $kind = A ] || colon=:
      wanted=
      case " $2 " in *" $kind "*) wanted=$(pod_addresses "$member" "$colon") && [ -n "$wanted" ] || return 1 ;; esac
      found=$(records $kind "$member-0.$1-peers.$ns.svc.cluster.local") || return 1
      [ "$found" = "$wanted" ] || return 1
    done
  done
}
addresses() { kubectl -n "$ns" get service "$1" -o jsonpath='{.spec.clusterIPs[*]}'; }

apply_cluster demo 3
ready demo 3
equal_families() { local now; now=$(families "$1"); equal "IP families of the Services of $1" "$2" "$now"; }
equal_families demo "SingleStack IPv4"
eventually 30 "the members' names have A alone" named demo "A"
before=$(pods)
witness_start demo dual

# Live, and nobody is restarted.
asks demo '{"ipFamilyPolicy":"PreferDualStack"}' >/dev/null
eventually 60 "every Service has both families" have demo "PreferDualStack IPv4,IPv6"
eventually 30 "the members' names have A and AAAA" named demo "A AAAA"
shown() { local now; now=$(status demo endpoints.ipFamilies) && [ "$now" = '["IPv4","IPv6"]' ]; }
eventually 30 "the status has both" shown
now=$(pods)
equal "the pods" "$before" "$now"
for service in demo-client demo-client-0 demo-client-1 demo-client-2; do
  both=$(addresses "$service")
  equal "addresses of $service" 2 "$(wc -w <<<"$both")"
  for address in $both; do
    etcdctl_at "http://$(host "$address"):2379" put "through/$service/$address" yes >/dev/null || die "no write through $service at $address"
  done
done
written=$(etcdctl_pod demo get through/ --prefix --keys-only | grep -c .)
equal "writes through each address" 8 "$written"
for member in $(members demo); do
  for colon in "" ":"; do
    address=$(pod_addresses "$member" "$colon")
    health=$(etcdctl_at "http://$(host "$address"):2379" endpoint health 2>&1) || die "$member at $address: $health"
    contains "$health" "is healthy"
  done
done
log "clients through both addresses of the client Service and of each slot, and at both addresses of each member"

# A roll and a replacement.
operator_kill
kubectl -n "$ns" patch qec demo --type=merge -p '{"spec":{"updateStrategy":{"minReadySeconds":3},"podTemplate":{"metadata":{"annotations":{"example.org/round":"1"}}}}}' >/dev/null
rolled() { is_ready demo 3 && [ "$(status demo updatedReplicas)" = 3 ] && prints_nothing still "$before" pods; }
eventually 240 "every member runs the current spec" rolled
eventually 30 "the members' names have the addresses of the new pods" named demo "A AAAA"
old=$(follower demo)
kubectl -n "$ns" patch qec demo --type=merge -p "{\"spec\":{\"replaceMembers\":[\"$old\"]}}" >/dev/null
replaced() { is_no_member demo "$old" && whole demo 3; }
eventually 240 "$old is replaced" replaced
eventually 30 "so does the name of its successor" named demo "A AAAA"

# One family is named, and Kubernetes adds the other one; the first one stays.
asks demo '{"ipFamilies":["IPv4"],"labels":{"example.org/pool":"a"}}' >/dev/null
labelled() { [ "$(kubectl -n "$ns" get service demo-client -o jsonpath='{.metadata.labels.example\.org/pool}')" = a ] && whole demo 3; }
eventually 60 "the client Service is applied again" labelled
asks demo '{"labels":{"example.org/pool":"b"}}' >/dev/null
again() { [ "$(kubectl -n "$ns" get service demo-client -o jsonpath='{.metadata.labels.example\.org/pool}')" = b ] && whole demo 3; }
eventually 60 "and once more" again
equal_families demo "PreferDualStack IPv4,IPv6"
if said=$(asks demo '{"ipFamilies":["IPv6","IPv4"]}' 2>&1); then die "another first family was admitted"; fi
contains "$said" "service.ipFamilies must begin with"

# And back.
before=$(pods)
asks demo '{"ipFamilyPolicy":"SingleStack"}' >/dev/null
eventually 60 "every Service has one family again" have demo "SingleStack IPv4"
eventually 60 "the members' names have A alone" named demo "A"
now=$(pods)
equal "the pods" "$before" "$now"
witness_stop demo dual
slots demo 3
drop_cluster demo

# IPv6 alone, beside pods that have both: the members have no other name for each other.
kubectl -n "$ns" apply -f - >/dev/null <<YAML
apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {name: six}
spec:
  replicas: 3
  image: $quorate_image
  storage: {size: 1Gi$(storage_class shared)}
  service: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]}
  tls: {}
YAML
ready six 3
equal_families six "SingleStack IPv6"
eventually 30 "the members' names have AAAA alone" named six "AAAA"
address=$(addresses six-client)
contains "$address" ":"
etcdctl_with six-client "https://six-client.$ns.svc:2379" put key value >/dev/null || die "no write to $address"
drop_cluster six
