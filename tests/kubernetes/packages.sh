#!/usr/bin/env bash
# Installs the Debian packages of the test cluster if they are missing. Needs root, and Debian or a derivative;
# elsewhere it names what to install.
set -euo pipefail
need=()
while read -r command package; do
  command -v "$command" >/dev/null || [ -x "/usr/lib/cni/$command" ] || need+=("$package")
done <<'EOF'
containerd containerd
runc runc
bridge containernetworking-plugins
ip iproute2
iptables iptables
conntrack conntrack
openssl openssl
buildah buildah
musl-gcc musl-tools
jq jq
python3 python3
node nodejs
npm npm
curl curl
valgrind valgrind
promtool prometheus
EOF
# Debian's python3 comes without the module that creates virtual environments.
python3 -c 'import ensurepip' 2>/dev/null || need+=(python3-venv)
python3 -c 'import yaml' 2>/dev/null || need+=(python3-yaml)
[ ${#need[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "packages.sh: these are missing, and only root with apt-get can install them from here: ${need[*]}" >&2
  exit 1
fi
echo "installing ${need[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
