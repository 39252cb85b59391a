#!/usr/bin/env python3
"""The chart's test: what it renders, what it refuses, and that its values, their schema and its README say the same.

    tests/chart/check.py [NAME...]    the checks whose names contain one of these words; all of them if none is given
    tests/chart/check.py --write      writes golden/*.yaml, which show in a review what a change does to the objects

Without helm (target/kubernetes/bin/helm) what needs no rendering is checked, and without Kubernetes' Go module objects are not
compared with its schemas. The last lines say so; with QUORATE_REQUIRE_HELM=1 that fails. `make chart` gets both. Needs Python's
yaml. Talks to no cluster.
"""

import concurrent.futures
import difflib
import os
import re
import sys

import facts
import openapi
import render
import static
from render import CHART, HERE, Refused
from static import put, schema, values

BASE = {"allNamespaces": True}


def text_of(path):
    given, versions = render.case(path)
    return "".join(f"{line}\n" for line in render.template(given, versions).splitlines() if not line.startswith("# Source: "))


def golden(path):
    """What a case has that the defaults have not: those are in deploy/install.yaml."""
    defaults = text_of(HERE / "cases/defaults.yaml").split("---\n")
    own = [one for one in text_of(path).split("---\n") if one not in defaults]
    return "---\n".join(["# Written by tests/chart/check.py --write: what the defaults do not have.\n", *own])


def case(path):
    """The rendering is the one in golden/, and has what every rendering has."""
    kept = HERE / "golden" / path.name
    before, now = kept.read_text() if kept.exists() else "", golden(path)
    if now != before:
        difference = difflib.unified_diff(before.splitlines(), now.splitlines(), f"golden/{path.name}", "now", lineterm="", n=1)
        yield from list(difference)[:60]
        yield "read the difference (60 lines of it are here); tests/chart/check.py --write keeps it"
    objects = render.read_all(text_of(path))
    for fact in facts.ALWAYS + ([openapi.fits] if openapi.document() else []):
        yield from (f"{fact.__name__}: {wrong}" for wrong in fact(objects))


def schemas_refuse():
    """Kubernetes' schemas, as openapi.py reads them, can refuse."""
    objects = render.read_all(text_of(HERE / "cases/standbys.yaml"))
    for kind, path, value, says in [
        ("Deployment", "spec.template.spec.hostnetwork", True, "hostnetwork is no field"),
        ("Deployment", "spec.template.spec.securityContext.runAsUser", 1.00068e09, "not of type integer"),
        ("Deployment", "spec.template.spec.terminationGracePeriodSeconds", "30", "not of type integer"),
        ("Deployment", "spec.selector", None, "spec.selector is missing"),
        ("PodDisruptionBudget", "spec.maxUnavailable", [], "not of type string"),
        ("NetworkPolicy", "metadata.labels", {"a": 1}, "not of type string"),
        ("ClusterRole", "apiVersion", "rbac.authorization.k8s.io/v2", "is not served"),
        ("ClusterRoleBinding", "roleRef", {"kind": "Role", "name": "a"}, "roleRef.apiGroup is missing"),
    ]:
        changed = put(facts.of(objects, kind)[0], path, value)
        found = list(openapi.fits([changed]))
        if len(found) != 1 or says not in "".join(found):
            yield f"{kind} {path}: {found}"


def namespaced():
    objects = render.read_all(text_of(HERE / "cases/namespaced.yaml"))
    yield from (f"{facts.name(one)} is cluster-scoped" for one in objects if one["kind"] in facts.CLUSTER_SCOPED)


def definitions():
    """With the values of everything.yaml: what the file has, kept at uninstall, with the common labels and annotations."""
    given, versions = render.case(HERE / "cases/everything.yaml")
    objects = render.read_all(render.template({**given, "crds": {"enabled": True}}, versions))
    source = render.read_all((CHART / "files/crds.yaml").read_text())
    rendered = {one["metadata"]["name"]: one for one in facts.of(objects, "CustomResourceDefinition")}
    for one in source:
        found = rendered.pop(one["metadata"]["name"], {"metadata": {}})
        if found.get("spec") != one["spec"]:
            yield f"{one['metadata']['name']} is not rendered as it is"
        if found["metadata"].get("annotations", {}) != {**given["commonAnnotations"], "helm.sh/resource-policy": "keep"}:
            yield f"{one['metadata']['name']} has the annotations {found['metadata'].get('annotations')}"
        if found["metadata"].get("labels") != given["commonLabels"]:
            yield f"{one['metadata']['name']} has the labels {found['metadata'].get('labels')}"
    yield from (f"{name} is in no file" for name in rendered)
    for one in objects:
        if not given["commonLabels"].items() <= one["metadata"]["labels"].items():
            yield f"{facts.name(one)} lacks a common label"
        if "example.org/owner" not in one["metadata"]["annotations"]:
            yield f"{facts.name(one)} lacks a common annotation"
    yield from facts.users_may_what_is_served(objects, source)
    yield from openapi.fits(objects) if openapi.document() else []


def change(path, row):
    with_ = row.get("with", BASE)
    before = render.template({**with_, **row.get("before", {})})
    after = render.template(put(with_, path, row["value"]))
    words, there, absent = (row["shows"], after, before) if "shows" in row else (row["hides"], before, after)
    if words not in there:
        yield f"{words!r} is not there"
    if words in absent:
        yield f"{words!r} is there without the change too"


def refused(row):
    try:
        render.template(row["values"], row.get("api-versions", "").split(), row.get("kube-version", render.OLDEST))
    except Refused as message:
        if row["says"] not in str(message):
            yield f"helm says something else: {message}"
    else:
        yield "helm takes it"


def misspelt():
    """A key that does not exist, in every map of values: helm names all of them at once."""
    nodes = {path.rpartition(".")[0] for path, _ in render.leaves(values(), schema())} | {"strategy", "resources"}
    given = BASE
    for node in nodes:
        given = put(given, f"{node}.misspelt".lstrip("."), 1)
    yield from unnamed(given, {node: "additional properties 'misspelt' not allowed" for node in nodes})


def wrong(part):
    """A value that this part of the schema refuses."""
    if "enum" in part:
        return "no-such"
    return 7 if any(one.get("type") in ("object", "array") for one in part.get("oneOf", [part])) else []


def mistyped():
    """Every value at once, each as something that it cannot be."""
    given, paths = BASE, [path for path, _ in render.leaves(values(), schema())]
    for path in paths:
        part = schema()
        for key in path.split("."):
            part = part["properties"][key]
        given = put(given, path, wrong(part))
    yield from unnamed(given, dict.fromkeys(paths, ""))


def unnamed(given, paths):
    try:
        render.template(given)
        yield "helm takes it"
    except Refused as message:
        for path, words in paths.items():
            place = f"/{path}".rstrip("/").replace(".", "/")
            if not any(f"at '{place}': {words}" in line for line in str(message).splitlines()):
                yield f"helm does not refuse {path}"


def absent(key):
    """A release whose values have no such key, as with --reuse-values after a version that did not know it."""
    others = {"watchNamespaces": ["shop"]} if key == "allNamespaces" else BASE
    render.template({**others, key: None})
    return []


def lint():
    try:
        render.helm("lint", "--strict", "--quiet", CHART, values=BASE)
    except Refused as message:
        yield str(message)


def note(row):
    text = render.notes(row["values"])
    for words in row.get("says", []):
        if words not in text:
            yield f"{words!r} is not in:\n{text}"
    for words in row.get("omits", []):
        if words in text:
            yield f"{words!r} is in:\n{text}"


def page_blocks():
    """The blocks of the chart's README: values that it shows are taken, and so are those that its commands set."""
    page = (CHART / "README.md").read_text()
    known = {path for path, _ in render.leaves(values(), schema())}
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, flags=re.S)
    for language, text in blocks:
        if language == "yaml":
            render.template({**BASE, **render.read(text)})
        yield from (f"the README sets {key}" for key in re.findall(r"--set \"?([\w.]+)=", text) if key not in known)
    if {language for language, _ in blocks} != {"sh", "yaml"}:
        yield "the README has other blocks than this check knows"


def rendered():
    for path in render.cases():
        yield f"case {path.stem}", lambda path=path: case(path)
    if openapi.document():
        yield "Kubernetes' schemas refuse", schemas_refuse
    yield "namespaced: nothing is cluster-scoped", namespaced
    yield "definitions, and rights to them", definitions
    yield "lint", lint
    yield "blocks of the page", page_blocks
    for path, row in render.file(HERE / "changes.yaml").items():
        for one in row if isinstance(row, list) else [row]:
            yield f"change {path}", lambda path=path, row=one: change(path, row)
    for title, row in render.file(HERE / "refused.yaml").items():
        yield f"refused {title}", lambda row=row: refused(row)
    yield "refused, as misspelt", misspelt
    yield "refused, as something else", mistyped
    for key in values():
        if key != "image":
            yield f"absent {key}", lambda key=key: absent(key)
    for title, row in render.file(HERE / "notes.yaml").items():
        yield f"notes {title}", lambda row=row: note(row)


def checks():
    for one in static.CHECKS:
        yield one.__name__.replace("_", " "), one
    if render.HELM.exists():
        yield from rendered()


def problems(check):
    try:
        return list(check[1]())
    except Refused as message:
        return [str(message)]


def main(words):
    if words == ["--write"]:
        for path in render.cases():
            (HERE / "golden" / path.name).write_text(golden(path))
        return 0
    asked = [(name, check) for name, check in checks() if not words or any(word in name for word in words)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # they wait for helm
        found = list(pool.map(problems, asked))
    for (name, _), wrong in zip(asked, found):
        for problem in wrong:
            print(f"{name}: {problem}")
    ran, failed = len(asked), sum(bool(wrong) for wrong in found)
    print(f"tests/chart: {ran} checks, {failed} failed" if ran else "tests/chart: no check has such a name")
    if not render.HELM.exists():
        print("tests/chart: nothing was rendered, since target/kubernetes/bin/helm is missing: make chart builds it")
    if not openapi.document():
        print("tests/chart: nothing was compared with Kubernetes' schemas, since its Go module is missing: make chart gets it")
    lacking = not render.HELM.exists() or not openapi.document()
    return 1 if failed or not ran or (lacking and os.environ.get("QUORATE_REQUIRE_HELM")) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
