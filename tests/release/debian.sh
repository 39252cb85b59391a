#!/usr/bin/env bash
# debian.sh PACKAGE VERSION: installs the package in an overlay over this system's files, which goes with the mount namespace
# that whoever calls this has made for it; looks at what is there, removes it, and purges it.
set -euo pipefail
package=$(realpath "$1") version=$2
die() { echo "debian.sh: $*" >&2; exit 1; }
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cp "$package" /mnt/root/package.deb
for folder in proc dev; do mount --rbind /$folder /mnt/root/$folder; done
in_root() { chroot /mnt/root "$@"; }
if ! in_root sh -c 'command -v adduser' >/dev/null; then
  apt-get download adduser >/dev/null && mv adduser_*.deb /mnt/root/ && in_root sh -c 'dpkg --install /adduser_*.deb' >/dev/null
fi
in_root dpkg --install /package.deb >/dev/null
[ "$(in_root quorate --version)" = "quorate $version" ] || die "the installed binary says $(in_root quorate --version)"
[ "$(in_root stat -c '%a %U %G' /etc/quorate/host.env)" = "640 root quorate" ] || die "the settings may be read by others"
[ "$(in_root stat -c '%a %U %G' /etc/quorate/pki)" = "750 quorate quorate" ] || die "the keys' folder"
if command -v systemd-analyze >/dev/null; then in_root systemd-analyze verify /usr/lib/systemd/system/quorate.service; fi
in_root sh -c 'echo QUORATE_NAME=mine >/etc/quorate/host.env'
in_root dpkg --install /package.deb >/dev/null
[ "$(in_root cat /etc/quorate/host.env)" = QUORATE_NAME=mine ] || die "an upgrade has overwritten the settings"
in_root install -d -o quorate /var/lib/quorate/member
in_root sh -c 'echo key >/etc/quorate/pki/server.key'
in_root dpkg --remove quorate >/dev/null 2>&1
[ ! -e /mnt/root/usr/bin/quorate ] || die "the binary stays after a removal"
[ "$(in_root cat /etc/quorate/host.env)" = QUORATE_NAME=mine ] || die "a removal takes the settings"
in_root dpkg --purge quorate >/dev/null 2>&1
[ ! -e /mnt/root/etc/quorate/host.env ] || die "a purge leaves the settings"
[ -d /mnt/root/var/lib/quorate/member ] && [ -f /mnt/root/etc/quorate/pki/server.key ] || die "a purge takes data or keys"
echo "installed, upgraded, removed and purged"
