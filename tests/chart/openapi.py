"""Whether an object is one that Kubernetes takes, by the OpenAPI document of the version that the tests build: kinds, fields,
types, and what is required. It compares no values with one another, as the API server does beyond that.

The document is in Kubernetes' Go module (tests/kubernetes/kube/go.mod), from where nothing is downloaded here.
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess

from render import ROOT

MODULE = "k8s.io/kubernetes"
# Kinds of the Prometheus operator, whose definitions are not Kubernetes'.
FOREIGN = {("monitoring.coreos.com/v1", kind) for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule")}


@functools.lru_cache(None)
def document():
    """The path of the document; None where Go or the module is not on this machine."""
    if not shutil.which("go"):
        return None
    environment = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=mod"}
    command = ["go", "list", "-m", "-f", "{{.Dir}}", MODULE]
    listed = subprocess.run(command, cwd=ROOT / "tests/kubernetes/kube", env=environment, capture_output=True, text=True, check=False)
    path = pathlib.Path(listed.stdout.strip() or "/nowhere") / "api/openapi-spec/swagger.json"
    return path if path.exists() else None


@functools.lru_cache(None)
def definitions():
    return json.loads(document().read_text())["definitions"]


@functools.lru_cache(None)
def kinds():
    """The definition of each (apiVersion, kind)."""
    found = {}
    for definition in definitions().values():
        for named in definition.get("x-kubernetes-group-version-kind", []):
            version = f"{named['group']}/{named['version']}".lstrip("/")
            found[version, named["kind"]] = definition
    return found


TYPES = {"boolean": bool, "object": dict, "array": list, "integer": int, "number": (int, float)}


def mismatches(value, schema, path):
    """What of the value the schema does not allow."""
    schema = definitions()[schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema
    kind = schema.get("type")
    if value is None or (kind is None and "properties" not in schema):
        return
    # A quantity and an IntOrString are strings that may be written as numbers.
    texts = (str, int, float) if schema.get("format") == "int-or-string" or path.endswith(("requests.*", "limits.*")) else str
    wanted = TYPES.get(kind, dict) if kind != "string" else texts
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{path} is {value!r}, and not of type {kind}"
    elif isinstance(value, list):
        for one in value:
            yield from mismatches(one, schema["items"], f"{path}[]")
    elif isinstance(value, dict):
        yield from (f"{path}.{key} is missing" for key in schema.get("required", []) if value.get(key) is None)
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, inner in value.items():
            if key in fields:
                yield from mismatches(inner, fields[key], f"{path}.{key}")
            elif others:
                yield from mismatches(inner, others, f"{path}.*")
            elif fields:
                yield f"{path}.{key} is no field"


def fits(objects):
    """What Kubernetes would not take of these objects."""
    for one in objects:
        known = kinds().get((one["apiVersion"], one["kind"]))
        if known:
            yield from mismatches(one, known, f"{one['kind']} {one['metadata']['name']}")
        elif (one["apiVersion"], one["kind"]) not in FOREIGN:
            yield f"{one['apiVersion']} {one['kind']} is not served"
