#!/usr/bin/env bash
# deb.sh BINARIES OUT: Debian packages of the server, one an architecture: the binary, the unit of deploy/systemd and its
# settings, and the pages for hosts. Installing one starts nothing: a member needs its address and its certificates first.
# MAINTAINER, a name and an address, is who answers for them. Needs dpkg-deb.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ $# -eq 2 ] || die "usage: deb.sh BINARIES OUT"
binaries=$1 out=$2
: "${MAINTAINER:?}"
for architecture in $architectures; do
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  root=$work/root
  put() { install -D -m "$1" "$2" "$root/$3"; }
  put 0755 "$binaries/$architecture/quorate" usr/bin/quorate
  put 0644 deploy/systemd/quorate.service usr/lib/systemd/system/quorate.service
  sed -i 's|^ExecStart=/usr/local/bin/quorate |ExecStart=/usr/bin/quorate |' "$root/usr/lib/systemd/system/quorate.service"
  grep -q '^ExecStart=/usr/bin/quorate ' "$root/usr/lib/systemd/system/quorate.service" || die "the unit does not run /usr/bin/quorate"
  put 0640 deploy/systemd/host.env etc/quorate/host.env
  put 0755 deploy/systemd/certificates.sh usr/share/quorate/certificates.sh
  put 0644 deploy/release/deb/README.Debian usr/share/doc/quorate/README.Debian
  put 0644 deploy/release/deb/copyright usr/share/doc/quorate/copyright
  install -d -m 0755 "$root/usr/share/doc/quorate"
  {
    printf 'quorate (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n' "$version"
    printf ' -- %s  %s\n' "$MAINTAINER" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
  } | gzip --no-name --best >"$root/usr/share/doc/quorate/changelog.gz"
  chmod 0644 "$root/usr/share/doc/quorate/changelog.gz"
  install -d "$root/DEBIAN"
  sed -e "s/@VERSION@/$version/" -e "s|@MAINTAINER@|$MAINTAINER|" -e "s/@ARCHITECTURE@/$(customary "$architecture")/" \
    -e "s/@SIZE@/$(find "$root" -type f -printf '%s\n' | awk '{sum += int(($1 + 1023) / 1024)} END {print sum}')/" deploy/release/deb/control >"$root/DEBIAN/control"
  echo /etc/quorate/host.env >"$root/DEBIAN/conffiles"
  for script in postinst prerm postrm; do install -m 0755 deploy/release/deb/$script "$root/DEBIAN/$script"; done
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Zxz --build "$root" "$out/quorate_${version}_$(customary "$architecture").deb" >/dev/null
  rm -rf "$work"
done
