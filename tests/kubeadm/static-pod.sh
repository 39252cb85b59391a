# shellcheck shell=bash
# The manifest of deploy/static-pod instead of kubeadm's own etcd, sourced by run.sh: the steps of its README on one host.

static_pod() {
  local file=$dir/${prefix}1/static-pod.yaml name
  host_up 1
  containerd_up 1
  key=$("$bin/kubeadm" certs certificate-key)
  stacked_configuration >"$file"
  for name in etcd-ca etcd-server etcd-peer etcd-healthcheck-client apiserver-etcd-client; do
    kubeadm 1 init phase certs $name --config="$file"
  done
  on 1 mkdir -p /etc/kubernetes/manifests
  sed -e "s/10\.0\.0\.1/$(address 1)/g" -e "s/host-1/${prefix}1/g" -e "s|image: quorate:.*|image: localhost/quorate:1|" deploy/static-pod/quorate.yaml |
    on 1 tee /etc/kubernetes/manifests/quorate.yaml >/dev/null
  kubeadm 1 init --config="$file" --skip-phases=etcd/local
  [ ! -e "$dir/${prefix}1/own/etc/kubernetes/manifests/etcd.yaml" ] || die "kubeadm made an etcd although that phase was left out"
  contains "kube-apiserver's manifest is as for kubeadm's etcd" "$(on 1 cat /etc/kubernetes/manifests/kube-apiserver.yaml)" \
    --etcd-servers=https://127.0.0.1:2379 --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
  equal "the member of our manifest" "$(voters 1)" "$(members 1)"
  contains "kube-apiserver finds its etcd ready" "$(kube 1 get --raw '/readyz?verbose')" '[+]etcd ok'
  kept 1 static-pod written
}
