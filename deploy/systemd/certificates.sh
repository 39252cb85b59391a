#!/usr/bin/env bash
# Certificates for a cluster of hosts, by openssl:
#
#   certificates.sh DIRECTORY NAME=ADDRESS...
#
# makes in DIRECTORY one authority for clients (ca) and one for the members among themselves (peer-ca),
# a client certificate (client), and for each host a folder NAME with what belongs into its
# /etc/quorate/pki. Two authorities, because whoever the peer authority signs for may act as a member.
# Keep ca.key and peer-ca.key away from the hosts. Run again with another host to add it: authorities
# and hosts that are there already are left as they are.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,11p' "$0"; exit 2; }
umask 077
mkdir -p "$1"; cd "$1"; shift
days=${DAYS:-825}

authority() { # authority NAME SUBJECT
  [ -f "$1.key" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.crt" \
    -days 3650 -subj "/CN=$2" -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
}
signed() { # signed FILE AUTHORITY SUBJECT USAGE [NAMES]
  [ ! -f "$1.key" ] || return 0
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$3" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -out "$1.crt" -days "$days" 2>/dev/null \
    -extfile <(printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n%s' "$4" "${5:+subjectAltName=$5}")
  rm "$1.csr"
}
authority ca quorate-client-ca
authority peer-ca quorate-peer-ca
signed client ca quorate-client clientAuth
for host in "$@"; do
  name=${host%%=*} address=${host#*=}
  mkdir -p "$name"
  signed "$name/server" ca "$name" serverAuth,clientAuth "DNS:$name,DNS:localhost,IP:$address,IP:127.0.0.1"
  signed "$name/peer" peer-ca "$name" serverAuth,clientAuth "DNS:$name,IP:$address"
  cp ca.crt peer-ca.crt "$name/"
done
