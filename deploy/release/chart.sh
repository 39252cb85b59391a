#!/usr/bin/env bash
# chart.sh IMAGE DIGEST OUT: the chart's package, whose image is IMAGE with the chart's appVersion as tag, and what is rendered
# from it with tag and digest: install.yaml for every namespace, and a base for kustomize. IMAGE has neither tag nor digest.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/release/lib.sh
[ $# -eq 3 ] || die "usage: chart.sh IMAGE DIGEST OUT"
image=$1 digest=$2 out=$3
helm=target/kubernetes/bin/helm
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

git archive HEAD:charts quorate | tar -C "$work" -x # what is committed, and nothing that lies beside it
# The registry is what comes before the first slash, if a registry can have that name.
repository=$image registry=""
first=${image%%/*}
if [ "$first" != "$image" ] && [[ $first == *[.:]* || $first = localhost ]]; then registry=$first repository=${image#*/}; fi
becomes() { # becomes FILE FROM TO: the one line of the file that is FROM
  [ "$(grep -cxF -- "$2" "$1")" = 1 ] || die "${1##*/} has not exactly one line \"$2\""
  LINE_FROM=$2 LINE_TO=$3 awk '$0 == ENVIRON["LINE_FROM"] {print ENVIRON["LINE_TO"]; next} {print}' "$1" >"$work/edited"
  cat "$work/edited" >"$1"
}
becomes "$work/quorate/values.yaml" '  registry: ""' "  registry: \"$registry\""
becomes "$work/quorate/values.yaml" '  repository: quorate' "  repository: $repository"
[ "$(sed -n 's/^version: //p' "$work/quorate/Chart.yaml")" = "$version" ] || die "Chart.yaml has another version than Cargo.toml"
[ "$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' "$work/quorate/Chart.yaml")" = "$version" ] || die "Chart.yaml has another appVersion than Cargo.toml"
cat >>"$work/quorate/Chart.yaml" <<END
  artifacthub.io/images: |
    - {name: quorate, image: "$image:$version@$digest", platforms: [linux/amd64, linux/arm64]}
END
tests/chart/readme.py "$work/quorate"
$helm lint --strict "$work/quorate" --set allNamespaces=true >/dev/null || $helm lint --strict "$work/quorate" --set allNamespaces=true
# Not by helm package, which writes the time and the user into the archive.
archive "$out/quorate-$version.tgz" "$work" quorate

mkdir "$work/kustomize"
deploy/release/rendered.sh "$out/quorate-$version.tgz" --set-string "image.tag=$version" --set-string "image.digest=$digest" >"$out/install.yaml"
grep -qF "image: $image:$version@$digest" "$out/install.yaml" || die "install.yaml does not have the image $image:$version@$digest"
cp "$out/install.yaml" deploy/kustomization.yaml "$work/kustomize/"
archive "$out/quorate-$version-kustomize.tar.gz" "$work/kustomize" install.yaml kustomization.yaml
