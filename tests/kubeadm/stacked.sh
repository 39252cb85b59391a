# shellcheck shell=bash
# Quorate in the place of kubeadm's own etcd, sourced by run.sh: deploy/kubeadm/stacked.yaml on three hosts.

token=abcdef.0123456789abcdef

stacked() {
  local n
  for n in 1 2 3; do host_up $n; done
  for n in 1 2 3; do containerd_up $n; done
  stacked_init
  stacked_join 2
  stacked_join 3
  stacked_renew
  stacked_upgrade
  stacked_newer
  stacked_reset
}

etcd_manifest() { on "$1" cat /etc/kubernetes/manifests/etcd.yaml; }
member_call() { # member_call N PATH [CURL'S ARGUMENT...]: of the member on host N, from there
  local n=$1 path=$2; shift 2
  on "$n" curl -sSf -m 5 --cacert /etc/kubernetes/pki/etcd/ca.crt --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt \
    --key /etc/kubernetes/pki/etcd/healthcheck-client.key "$@" "https://127.0.0.1:2379$path"
}
members() { # members N: by the member on host N, one line each: peer URL, voter or learner
  member_call "$1" /v3/cluster/member/list -d '{}' | jq -r '.members[] | "\(.peerURLs[0]) \(if .isLearner then "learner" else "voter" end)"' | sort
}
voters() { for n in "$@"; do echo "https://$(address $n):2380 voter"; done; }
etcd_process() { on "$1" pgrep -x etcd; } # in the namespace of the host's processes
etcd_pod() { kube 1 -n kube-system get pod "etcd-$prefix$1" -o jsonpath="{$2}"; }
pod_is_ready() { [ "$(etcd_pod "$1" '.status.conditions[?(@.type=="Ready")].status')" = True ]; }

# The paths of all probes of the manifest, of which there are two.
probes() {
  local path paths
  paths=$(etcd_manifest "$1" | sed -n 's/^ *path: \(\/[a-z]*z\)$/\1/p' | sort -u)
  equal "the probes of kubeadm's manifest" $'/livez\n/readyz' "$paths"
  for path in $paths; do
    equal "$path of host $1" 200 "$(on "$1" curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:2381$path")"
  done
}

stacked_configuration() { # of host 1, with $key
  cluster_configuration deploy/kubeadm/stacked.yaml "s/10\.0\.0\.1:/$(address 1):/; s/YOUR-REGISTRY/localhost/"
  printf -- '---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: %s}\n' "$(address 1)"
  printf 'bootstrapTokens: [{token: %s}]\ncertificateKey: %s\n' $token "$key"
  node_registration 1
  kubelet_configuration
}
stacked_init() {
  local file=$dir/${prefix}1/stacked.yaml manifest path
  key=$("$bin/kubeadm" certs certificate-key)
  stacked_configuration >"$file"
  kubeadm 1 config validate --config="$file"
  kubeadm 1 init --config="$file" --upload-certs
  manifest=$(etcd_manifest 1)
  contains "the manifest is that of kubeadm with our image" "$manifest" '    - etcd' "image: localhost/etcd:$etcd_tag" \
    --feature-gates=InitialCorruptCheck=true --watch-progress-notify-interval=5s --snapshot-count=10000 "--initial-cluster=${prefix}1="
  # every flag as kubeadm wrote it, by the process that runs
  equal "the command line of the process" "$(sed -n 's/^    - \(--\|etcd$\)/\1/p' <<<"$manifest")" "$(on 1 sh -c 'tr "\0" "\n" </proc/$(pgrep -x etcd)/cmdline')"
  contains "a flag of extraArgs has its effect" "$(on 1 curl -s http://127.0.0.1:2381/metrics)" 'etcd_server_quota_backend_bytes 8589934592'
  contains "it is Quorate" "$(on 1 sh -c 'cat /var/log/pods/*_etcd-*/etcd/*.log')" 'ready to serve client requests'
  probes 1
  eventually 60 "the pod is ready by these probes" pod_is_ready 1
  contains "kube-apiserver finds its etcd ready" "$(kube 1 get --raw '/readyz?verbose')" '[+]etcd ok'
  kept 1 stacked written
}

# Writes down what the member on host 1 says of its members until it is ended.
watch_members() { while true; do members 1 2>/dev/null || true; sleep 0.1; done; }
stacked_join() {
  local n=$1 file=$dir/$prefix$1/join.yaml seen=$dir/members watcher peer roles
  {
    printf 'apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n'
    printf 'discovery: {bootstrapToken: {apiServerEndpoint: "%s:6443", token: %s, caCertHashes: ["sha256:%s"]}}\n' "$(address 1)" $token "$(ca_hash)"
    printf 'controlPlane: {localAPIEndpoint: {advertiseAddress: %s}, certificateKey: %s}\n' "$(address "$n")" "$key"
    node_registration "$n"
  } >"$file"
  watch_members >"$seen" & watcher=$!
  kubeadm "$n" join --config="$file" -v=1
  kill $watcher; wait $watcher 2>/dev/null || true
  peer=https://$(address "$n"):2380
  contains "kubeadm added a learner and promoted it" "$(said "$n")" 'as learner' 'The learner was promoted as a voting member'
  roles=$(grep -F "$peer " "$seen" | uniq | cut -d' ' -f2 | paste -sd' ')
  equal "host $n by the members list while it joined" "learner voter" "$roles"
  equal "the members" "$(voters $(seq "$n"))" "$(members "$n")"
  eventually 60 "the pod of host $n is ready" pod_is_ready "$n"
  probes "$n"
  still_kept "$n" stacked written
}
ca_hash() { on 1 sh -c 'openssl x509 -pubkey -noout -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der' | sha256sum | cut -d' ' -f1; }

# serial N PORT: of the certificate that the member on host N shows there
serial() {
  on "$1" sh -c "openssl s_client -connect $(address "$1"):$2 -CAfile /etc/kubernetes/pki/etcd/ca.crt \
    -cert /etc/kubernetes/pki/etcd/peer.crt -key /etc/kubernetes/pki/etcd/peer.key </dev/null 2>/dev/null | openssl x509 -noout -serial"
}
shows() { [ "$(serial "$1" "$2")" = "$(on "$1" openssl x509 -noout -serial -in "/etc/kubernetes/pki/etcd/$3.crt")" ]; }
# Reads and writes by the API server of host 1 until it is ended, one line each.
use() {
  local i=0
  while true; do
    i=$((i + 1))
    if kube 1 patch configmap stacked --type=merge -p "{\"data\": {\"turn\": \"$i\"}}" >/dev/null 2>&1; then echo served; else echo failed; fi
  done
}
stacked_renew() {
  local n name old_server old_peer process uses=$dir/uses user
  use >"$uses" & user=$!
  for n in 1 2 3; do
    process=$(etcd_process $n) old_server=$(serial $n 2379) old_peer=$(serial $n 2380)
    for name in etcd-server etcd-peer etcd-healthcheck-client apiserver-etcd-client; do kubeadm $n certs renew $name; done
    eventually 10 "host $n shows the renewed certificate to clients" shows $n 2379 server
    eventually 10 "host $n shows the renewed certificate to members" shows $n 2380 peer
    [ "$(serial $n 2379)" != "$old_server" ] && [ "$(serial $n 2380)" != "$old_peer" ] || die "the certificates of host $n were not renewed"
    equal "the process of host $n, not started again" "$process" "$(etcd_process $n)"
    still_kept $n stacked written
  done
  kill $user; wait $user 2>/dev/null || true
  equal "writes by an API server while all members renew, of $(wc -l <"$uses")" served "$(sort -u "$uses" | paste -sd' ')"
  [ "$(wc -l <"$uses")" -ge 10 ] || die "only so many: $(wc -l <"$uses")"
  equal "the members after the renewals" "$(voters 1 2 3)" "$(members 1)"
}

stacked_upgrade() {
  local n etcd=() process=()
  for n in 1 2 3; do
    eventually 60 "host $n is Ready" kube 1 wait --for=condition=Ready "node/$prefix$n" --timeout=1s
    etcd[n]=$(etcd_manifest $n) process[n]=$(etcd_process $n)
  done
  kubeadm 1 upgrade plan $after --etcd-upgrade=false --ignore-preflight-errors="$ignored"
  contains "kubeadm upgrade plan" "$(said 1)" "kubeadm upgrade apply $after"
  kubeadm 1 upgrade apply $after --yes --etcd-upgrade=false --ignore-preflight-errors="$ignored"
  for n in 2 3; do kubeadm $n upgrade node --etcd-upgrade=false --ignore-preflight-errors="$ignored"; done
  for n in 1 2 3; do
    contains "kube-apiserver of host $n is upgraded" "$(on $n cat /etc/kubernetes/manifests/kube-apiserver.yaml)" "kube-apiserver:$after"
    equal "the manifest of etcd on host $n" "${etcd[n]}" "$(etcd_manifest $n)"
    equal "the process of etcd on host $n" "${process[n]}" "$(etcd_process $n)"
    eventually 60 "the API server of host $n is ready" kube $n get --raw /readyz
    still_kept $n stacked written
  done
}

# A newer image of the store, one host after the other. kubeadm's manifest then names only the host itself in
# --initial-cluster, which a member that has data must not heed.
stacked_newer() {
  local n process=()
  for n in 1 2 3; do process[n]=$(etcd_process $n); done
  kube 1 -n kube-system get configmap kubeadm-config -o yaml | sed "s/imageTag: $etcd_tag/imageTag: $etcd_newer/" | kube_apply 1
  kubeadm 1 upgrade apply $after --yes --ignore-preflight-errors="$ignored"
  for n in 2 3; do kubeadm $n upgrade node --ignore-preflight-errors="$ignored"; done
  for n in 1 2 3; do
    contains "the manifest of etcd on host $n has the newer image" "$(etcd_manifest $n)" "image: localhost/etcd:$etcd_newer" "--initial-cluster=$prefix$n=https://$(address $n):2380"
    [ "$(etcd_process $n)" != "${process[n]}" ] || die "etcd on host $n was not started again"
    equal "the members by host $n" "$(voters 1 2 3)" "$(members $n)"
    still_kept $n stacked written
  done
}

stacked_reset() {
  # A whole reset while the member runs, then a join under the same name and address.
  kubeadm 3 reset --force
  contains "the data of host 3 is deleted" "$(said 3)" 'Deleted contents of the etcd data directory: /var/lib/etcd'
  [ -z "$(on 3 ls -A /var/lib/etcd)" ] || die "something is in /var/lib/etcd: $(on 3 ls -lA /var/lib/etcd)"
  equal "the members without host 3" "$(voters 1 2)" "$(members 1)"
  kept 1 after-reset written
  kube 1 delete node ${prefix}3 >/dev/null
  stacked_join 3
  # The phase alone leaves the pod to the kubelet, which would start it again on an empty directory: so it stops before.
  on 3 mv /etc/kubernetes/manifests/etcd.yaml /etc/kubernetes/
  eventually 60 "etcd of host 3 has stopped" stopped 3
  kubeadm 3 reset phase remove-etcd-member
  [ -z "$(on 3 ls -A /var/lib/etcd)" ] || die "something is in /var/lib/etcd: $(on 3 ls -lA /var/lib/etcd)"
  equal "the members without host 3" "$(voters 1 2)" "$(members 1)"
  still_kept 2 stacked written
}
stopped() { [ -z "$(etcd_process "$1")" ]; }
