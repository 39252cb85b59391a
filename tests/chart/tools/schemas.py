#!/usr/bin/env python3
"""Makes kubeconform's JSON schemas from the OpenAPI document in a Kubernetes module.

    schemas.py SWAGGER.JSON FOLDER    a file for every kind that the chart renders: KIND-GROUP-VERSION.json

As kubectl's strict validation has it: a field that does not exist is refused, and null means that the field is not there.
"""

import json
import pathlib
import sys

KINDS = {
    ("apps", "Deployment"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
    ("", "ConfigMap"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
}
PREFIX = "#/definitions/"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def strict(schema):
    """The schema as JSON Schema, with unknown fields refused."""
    made = {}
    for key, inner in schema.items():
        if key == "properties":
            made[key] = {name: strict(one) for name, one in inner.items()}
        elif key in ("items", "additionalProperties") and isinstance(inner, dict):
            made[key] = strict(inner)
        elif not key.startswith("x-kubernetes-") and key not in ("format", "description", "default"):
            made[key] = inner
    if schema.get("format") == "int-or-string":
        made["type"] = ["string", "integer", "null"]
    elif "type" in made:
        made["type"] = [made["type"], "null"]
    if "properties" in schema and "additionalProperties" not in schema:
        made["additionalProperties"] = False
    return made


def used(schema, definitions, found):
    """Every definition that a schema leads to."""
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, (dict, list)):
            used(inner, definitions, found)
    name = schema.get("$ref", "") if isinstance(schema, dict) else ""
    name = name[len(PREFIX) :] if isinstance(name, str) and name.startswith(PREFIX) else None
    if name and name not in found:
        found.add(name)
        used(definitions[name], definitions, found)
    return found


def main(document, folder):
    definitions = json.loads(pathlib.Path(document).read_text())["definitions"]
    definitions[QUANTITY] = {}  # a string or a number
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name, definition in definitions.items():
        for named in definition.get("x-kubernetes-group-version-kind", []):
            if (named["group"], named["kind"]) not in KINDS:
                continue
            needed = used(definition, definitions, {name})
            whole = {"$ref": PREFIX + name, "definitions": {one: strict(definitions[one]) for one in sorted(needed)}}
            group = f"{named['group'].split('.')[0]}-" if named["group"] else ""
            (out / f"{named['kind'].lower()}-{group}{named['version']}.json").write_text(json.dumps(whole))


if __name__ == "__main__":
    main(*sys.argv[1:])
