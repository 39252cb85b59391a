#!/usr/bin/env bash
# certificates.sh DIRECTORY ADDRESS...: a store's certificates in kubeadm's layout: ca, server and peer (for these
# addresses and 127.0.0.1), client. Test keys: the CA's key is kept beside them.
set -euo pipefail
mkdir -p "$1"; cd "$1"; shift
names=$(printf ',IP:%s' "$@")
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=store-ca 2>/dev/null
for name in server peer client; do
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout $name.key -out $name.csr -subj "/CN=$name" 2>/dev/null
  openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out $name.crt -days 30 2>/dev/null \
    -extfile <(printf 'subjectAltName=IP:127.0.0.1,DNS:localhost%s\nextendedKeyUsage=serverAuth,clientAuth' "$names")
done
chmod 600 ./*.key
