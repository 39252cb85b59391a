#!/usr/bin/env python3
"""Writes the bundle for the Operator Lifecycle Manager: the ClusterServiceVersion, the definitions, and a Dockerfile for
the bundle's own image. The operator's pod is the one that the chart renders, its rights are the chart's files, and the
examples are deploy/samples: nothing about them is said here again.

    bundle.py VERSION INSTALL.YAML CREATED FOLDER

INSTALL.YAML is what chart.sh rendered, CREATED a time in RFC 3339.
"""

import base64
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/quorate"
# The annotation that the Operator Lifecycle Manager sets on the pods: namespaces separated by commas, empty for all.
TARGETS = "metadata.annotations['olm.targetNamespaces']"

DESCRIPTION = """Quorate runs replicated etcd-style clusters: one `EtcdCluster` resource, one cluster that etcdctl, every etcd v3
client and kube-apiserver can use. Every new member joins as a learner and is promoted once it has caught up; an unhealthy
member is removed before another is added. Versions, nodes, certificates and volumes are replaced one member at a time, live.

It runs its own server, which is compatible with etcd's API, and not etcd itself.

This package does not install the ValidatingAdmissionPolicy behind `spec.deletionProtection`: a cluster that has the field
says so in its status until the policy is installed, which the Helm chart brings.
"""


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def only(found, what):
    if len(found) != 1:
        sys.exit(f"bundle.py: {len(found)} objects are {what}, instead of one")
    return found[0]


def deployment(rendered):
    """The Deployment, which serves the namespaces that the Operator Lifecycle Manager names."""
    found = only([one for one in rendered if one["kind"] == "Deployment"], "a Deployment")
    operator = only(found["spec"]["template"]["spec"]["containers"], "containers of the operator")
    targets = {"name": "QUORATE_WATCH_NAMESPACES", "valueFrom": {"fieldRef": {"fieldPath": TARGETS}}}
    operator["env"].append(targets)
    # OpenShift chooses the user, and refuses any other; elsewhere the image's own is not root.
    for one in ("runAsUser", "runAsGroup"):
        found["spec"]["template"]["spec"]["securityContext"].pop(one, None)
    return found, operator["image"]


def owned(definition):
    """What a console shows of a kind: its name, its versions and the first sentence of its description."""
    names, version = definition["spec"]["names"], only(definition["spec"]["versions"], "versions of a definition")
    sentence = version["schema"]["openAPIV3Schema"]["description"].split(". ")[0].replace("\n", " ")
    return {
        "name": definition["metadata"]["name"],
        "kind": names["kind"],
        "version": version["name"],
        "displayName": names["kind"],
        "description": sentence.removesuffix(".") + ".",
    }


def examples():
    """One example of a kind, in the order of the files' names."""
    first = {}
    for path in sorted((ROOT / "deploy/samples").glob("*.yaml"), key=lambda path: (path.name != "cluster.yaml", path.name)):
        for document in documents(path):
            if document["apiVersion"].startswith("quorate.dev/"):
                first.setdefault(document["kind"], document)
    return list(first.values())


def previous(version, changelog):
    """The newest release before this version, of those whose commit the changelog names; None where there is none."""
    numbers = lambda text: tuple(int(part) for part in text.split("-")[0].split("."))
    released = re.findall(r"^## (\d+\.\d+\.\d+\S*)\n\nCommit `[0-9a-f]+`", changelog, re.M)
    earlier = [one for one in released if numbers(one) < numbers(version)]
    return max(earlier, key=numbers, default=None)


def service_version(version, rendered, definitions, created):
    pod, image = deployment(rendered)
    account = pod["spec"]["template"]["spec"]["serviceAccountName"]
    rules = lambda name: yaml.safe_load((CHART / f"files/rules-{name}.yaml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    before = previous(version, (ROOT / "CHANGELOG.md").read_text())
    architectures = {f"operatorframework.io/arch.{one}": "supported" for one in ("amd64", "arm64")}
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"quorate.v{version}",
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": json.dumps(examples(), indent=2),
                "capabilities": "Full Lifecycle",
                "categories": "Database",
                "containerImage": image,
                "createdAt": created,
                "description": chart["description"],
                "operatorframework.io/suggested-namespace": "quorate-system",
                "support": "Quorate",
            },
            "labels": {**architectures, "operatorframework.io/os.linux": "supported"},
        },
        "spec": {
            "displayName": "Quorate",
            "description": DESCRIPTION,
            "version": version,
            **({"replaces": f"quorate.v{before}"} if before else {}),
            "maturity": "alpha",
            "minKubeVersion": chart["kubeVersion"].removeprefix(">=").removesuffix("-0"),
            "keywords": chart["keywords"],
            "provider": {"name": "Quorate"},
            "icon": [{"base64data": base64.b64encode((ROOT / "deploy/release/olm/icon.svg").read_bytes()).decode(), "mediatype": "image/svg+xml"}],
            "installModes": [
                {"type": mode, "supported": True} for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": [owned(one) for one in definitions]},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [{"name": pod["metadata"]["name"], "label": pod["metadata"]["labels"], "spec": pod["spec"]}],
                    "permissions": [{"serviceAccountName": account, "rules": rules("namespaced") + rules("lease")}],
                    "clusterPermissions": [{"serviceAccountName": account, "rules": rules("cluster")}],
                },
            },
            "relatedImages": [{"name": "quorate", "image": image}],
        },
    }


ANNOTATIONS = {
    "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
    "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
    "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
    "operators.operatorframework.io.bundle.package.v1": "quorate",
    "operators.operatorframework.io.bundle.channels.v1": "alpha",
    "operators.operatorframework.io.bundle.channel.default.v1": "alpha",
}


def write(version, install, created, folder):
    rendered = documents(pathlib.Path(install))
    paths = sorted((ROOT / "crds").glob("*.yaml"))
    definitions = [only(documents(path), f"in {path.name}") for path in paths]
    if [one for one in rendered if one["kind"] == "CustomResourceDefinition" and one["metadata"]["name"] not in {d["metadata"]["name"] for d in definitions}]:
        sys.exit("bundle.py: the chart renders definitions that are not in crds/")
    manifests, metadata = folder / "manifests", folder / "metadata"
    manifests.mkdir(parents=True)
    metadata.mkdir()
    for path in paths:
        (manifests / path.name).write_text(path.read_text())
    csv = service_version(version, rendered, definitions, created)
    (manifests / "quorate.clusterserviceversion.yaml").write_text(yaml.safe_dump(csv, sort_keys=False, width=120))
    (metadata / "annotations.yaml").write_text(yaml.safe_dump({"annotations": ANNOTATIONS}, sort_keys=False))
    labels = "".join(f"LABEL {name}={value}\n" for name, value in ANNOTATIONS.items())
    (folder / "Dockerfile").write_text(f"FROM scratch\n{labels}COPY manifests /manifests/\nCOPY metadata /metadata/\n")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: bundle.py VERSION INSTALL.YAML CREATED FOLDER")
    write(sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]))
