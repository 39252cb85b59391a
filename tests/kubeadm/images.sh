# shellcheck shell=bash
# The images that kubeadm asks for, sourced by run.sh, as archives in $dir/images. Kubernetes' own are one image with many
# names: the binary of tests/kubernetes has all its programs. It is there as two versions, so that there is an upgrade.

images() {
  mkdir -p "$dir/images" "$dir/layer/usr/local/bin"
  local tags=() name version
  install -m 0755 "$bin/kube" "$dir/layer/usr/local/bin/kube"
  for name in kube-apiserver kube-controller-manager kube-scheduler; do
    ln -s kube "$dir/layer/usr/local/bin/$name"
    for version in $before $after; do tags+=("localhost/$name:$version"); done
  done
  archive "$dir/layer" "$dir/images/kube.tar" "${tags[@]}"
  tests/kubernetes/image.sh "localhost/pause:$pause" "$bin/pause" "$dir/images/pause.tar"
  tests/kubernetes/image.sh localhost/quorate:1 "$binary" "$dir/images/quorate.tar"
  etcd_image
}

# archive FOLDER ARCHIVE TAG...
archive() {
  local folder=$1 archive=$2 work=$dir/archive tags; shift 2
  mkdir -p "$work"
  tar -C "$folder" --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$work/layer.tar" .
  tags=$(printf ',"%s"' "$@")
  printf '{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(sha256sum "$work/layer.tar" | cut -d' ' -f1)" >"$work/config.json"
  printf '[{"Config":"config.json","RepoTags":[%s],"Layers":["layer.tar"]}]' "${tags#,}" >"$work/manifest.json"
  tar -C "$work" -cf "$archive" layer.tar config.json manifest.json
  rm -r "$work" "$folder"
}

# Ours, from the Dockerfile that users build it with; also as a newer version of itself.
etcd_image() {
  local tool=(buildah --storage-driver vfs --root "$dir/buildah/root" --runroot "$dir/buildah/run")
  "${tool[@]}" bud --quiet --isolation chroot --build-context "quorate=$(dirname "$binary")" -t "localhost/etcd:$etcd_tag" deploy/kubeadm >/dev/null
  "${tool[@]}" tag "localhost/etcd:$etcd_tag" "localhost/etcd:$etcd_newer"
  local tag
  for tag in "$etcd_tag" "$etcd_newer"; do
    "${tool[@]}" push --quiet "localhost/etcd:$tag" "docker-archive:$dir/images/etcd-$tag.tar:localhost/etcd:$tag"
  done
  rm -rf "$dir/buildah"
}
