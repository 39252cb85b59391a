#!/usr/bin/env bash
# Certificates for a cluster of hosts, by `quorate certs`:
#
#   certificates.sh DIRECTORY NAME=ADDRESS[,HOST...]...
#
# creates in DIRECTORY one CA for clients (clients/ca) and one for traffic between members (members/ca),
# a client certificate (client), and for each host a folder NAME with the files for its
# /etc/quorate/pki. Two CAs, because a certificate of the members' CA allows acting as a member.
# Keep clients/ca.key and members/ca.key off the hosts. Run again with another host to add it:
# existing CAs and hosts are not changed.
# QUORATE is the binary (quorate), DAYS the validity of certificates in days (825).
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,11p' "$0"; exit 2; }
quorate=$(command -v "${QUORATE:-quorate}") || { echo "certificates.sh: ${QUORATE:-quorate} not found: install it, or set QUORATE=path" >&2; exit 1; }
quorate=$(realpath "$quorate")
umask 077
mkdir -p "$1"; cd "$1"; shift

hosts=() names=()
for host in "$@"; do
  name=${host%%=*}
  case $name in
    "$host" | '') echo "certificates.sh: $host must have the form NAME=ADDRESS[,HOST...]" >&2; exit 2 ;;
    clients | members) echo "certificates.sh: no host may be called $name here" >&2; exit 2 ;;
  esac
  [ ! -f "$name/peer-ca.crt" ] || continue
  # Left over from an interrupted run.
  rm -rf "clients/$name" "members/$name" "$name"
  names+=("$name") hosts+=("--member=$host,$name")
done
for authority in clients members; do
  more=("${hosts[@]}")
  if [ $authority = clients ] && [ ! -f clients/client.key ]; then more+=(--client=client); fi
  [ ${#more[@]} = 0 ] || "$quorate" certs --out=$authority --days="${DAYS:-825}" "${more[@]}" >/dev/null
done
cp clients/ca.crt clients/client.crt clients/client.key .
cp members/ca.crt peer-ca.crt
# Each host gets the files that the right CA signed; the others are by-products.
for name in "${names[@]}"; do
  mkdir "$name"
  mv "clients/$name"/server.* "members/$name"/peer.* "$name/"
  rm -r "clients/$name" "members/$name"
  cp clients/ca.crt "$name/ca.crt"
  cp members/ca.crt "$name/peer-ca.crt"
done
