# shellcheck shell=bash
# External etcd, sourced by run.sh: three hosts run the command line of deploy/systemd, and kubeadm makes a control plane on
# a fourth with deploy/kubeadm/external.yaml.

external() {
  local n
  for n in 1 2 3 4; do host_up $n; done
  external_members
  containerd_up 4
  external_configuration
  external_version_check
  external_phases
  external_init
  external_upgrade
}

# unit_command N: the unit's command line, as systemd assembles it from host.env, one word a line
unit_command() {
  local n=$1 all
  all=$(for m in 1 2 3; do printf ',%s=https://%s:2380' $prefix$m "$(address $m)"; done)
  sed -n '/^ExecStart=/,/[^\\]$/p' deploy/systemd/quorate.service | sed -e 's/^ExecStart=//' -e 's/ *\\$//' -e 's/^ *//' | tr ' ' '\n' |
    sed -e "s|\${QUORATE_NAME}|$prefix$n|g; s|\${QUORATE_ADDRESS}|$(address "$n")|g; s|\${QUORATE_CLUSTER}|${all#,}|g
      s|\${QUORATE_STATE}|new|g; s|\${QUORATE_TOKEN}|kubeadm|g; s|^/usr/local/bin/quorate$|$binary|"
}
external_members() {
  local n words
  QUORATE=$binary deploy/systemd/certificates.sh "$dir/pki" $(for n in 1 2 3; do echo "$prefix$n=$(address $n)"; done)
  for n in 1 2 3; do
    on $n mkdir -p /etc/quorate
    on $n cp -r "$dir/pki/$prefix$n" /etc/quorate/pki
    mapfile -t words < <(unit_command $n)
    [[ ${words[*]} != *'${'* ]] || die "a variable of the unit is not known here: ${words[*]}"
    on $n setsid "${words[@]}" >"$dir/$prefix$n/server.log" 2>&1 </dev/null &
  done
  # where external.yaml has them, as the page says
  on 4 mkdir -p /etc/kubernetes/pki/etcd
  on 4 cp "$dir/pki/ca.crt" /etc/kubernetes/pki/etcd/ca.crt
  on 4 cp "$dir/pki/client.crt" /etc/kubernetes/pki/apiserver-etcd-client.crt
  on 4 cp "$dir/pki/client.key" /etc/kubernetes/pki/apiserver-etcd-client.key
  for n in 1 2 3; do eventually 60 "external member $n is healthy" external_healthy $n; done
}
external_call() { # external_call N PATH [CURL'S ARGUMENT...]: of member N, with the control plane's certificate
  local n=$1 path=$2; shift 2
  on 4 curl -sSf -m 5 --cacert /etc/kubernetes/pki/etcd/ca.crt --cert /etc/kubernetes/pki/apiserver-etcd-client.crt \
    --key /etc/kubernetes/pki/apiserver-etcd-client.key "$@" "https://$(address "$n"):2379$path"
}
external_healthy() { [ "$(external_call "$1" /health | jq -r .health)" = true ]; }

external_configuration() {
  local file=$dir/${prefix}4/external.yaml
  {
    cluster_configuration deploy/kubeadm/external.yaml 's/10\.0\.0\.1\([123]\)/10.97.0.1\1/'
    echo "controlPlaneEndpoint: $(address 4):6443"
    printf -- '---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {advertiseAddress: %s}\n' "$(address 4)"
    node_registration 4
    kubelet_configuration
  } >"$file"
  kubeadm 4 config validate --config="$file"
}

# kubeadm asks every endpoint for its version, with the certificate: an endpoint where nothing listens is the control.
external_version_check() {
  local file=$dir/${prefix}4/external.yaml output
  kubeadm 4 init phase preflight --config="$file"
  lacks "ExternalEtcdVersion and ExternalEtcdClientCertificates pass" "$(said 4)" ExternalEtcd
  sed "s|https://$(address 3):2379|https://$(address 3):2378|" "$file" >"$file.closed"
  if output=$(on 4 kubeadm init phase preflight --config="$file.closed" 2>&1 </dev/null); then
    die "an endpoint where nothing listens passed: $output"
  fi
  contains "ExternalEtcdVersion refuses an endpoint where nothing listens" "$output" 'ERROR ExternalEtcdVersion' ':2378'
}

external_phases() {
  local file=$dir/${prefix}4/external.yaml manifest words
  kubeadm 4 init phase certs all --config="$file"
  contains "no certificate of etcd is made" "$(said 4)" 'External etcd mode: Skipping etcd/server'
  kubeadm 4 init phase kubeconfig all --config="$file"
  kubeadm 4 init phase control-plane all --config="$file"
  manifest=$(on 4 cat /etc/kubernetes/manifests/kube-apiserver.yaml)
  contains "kube-apiserver has the flags of the page" "$manifest" \
    "--etcd-servers=https://$(address 1):2379,https://$(address 2):2379,https://$(address 3):2379" \
    --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt \
    --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key
  on 4 sh -c 'rm /etc/kubernetes/manifests/*'
}

# All phases of `kubeadm init`, with the kubelet, on what the single ones have left.
external_init() {
  local file=$dir/${prefix}4/external.yaml
  kubeadm 4 init --config="$file"
  [ ! -e "$dir/${prefix}4/own/etc/kubernetes/manifests/etcd.yaml" ] || die "kubeadm made an etcd although that is external"
  contains "kube-apiserver finds its etcd ready" "$(kube 4 get --raw '/readyz?verbose')" '[+]etcd ok' '[+]etcd-readiness ok'
  kept 4 external written
  equal "its key in member 2" 1 "$(external_call 2 /v3/kv/range -d "{\"key\": \"$(printf /registry/configmaps/default/external | base64)\", \"count_only\": true}" | jq -r .count)"
  kubeadm 4 init phase upload-config all --config="$file"
  contains "the uploaded configuration has the endpoints" "$(kube 4 -n kube-system get configmap kubeadm-config -o jsonpath='{.data.ClusterConfiguration}')" \
    external: "https://$(address 2):2379"
}

# Its certificates are not kubeadm's to renew.
external_upgrade() {
  kubeadm 4 certs check-expiration
  lacks "kubeadm knows no certificate of etcd" "$(said 4)" etcd
  eventually 60 "host 4 is Ready" kube 4 wait --for=condition=Ready "node/${prefix}4" --timeout=1s
  kubeadm 4 upgrade apply $after --yes --ignore-preflight-errors="$ignored"
  contains "kube-apiserver is upgraded" "$(on 4 cat /etc/kubernetes/manifests/kube-apiserver.yaml)" "kube-apiserver:$after"
  still_kept 4 external written
}
