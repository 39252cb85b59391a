#!/usr/bin/env bash
# Installs what the test cluster takes from Debian, when it is missing. Needs root.
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
EOF
# Debian's python3 comes without what makes a virtual environment.
python3 -c 'import ensurepip' 2>/dev/null || need+=(python3-venv)
[ ${#need[@]} -eq 0 ] && exit 0
echo "installing ${need[*]}"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
