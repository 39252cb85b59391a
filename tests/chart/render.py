"""Renders the chart with helm, and reads what it renders. Changes nothing in the repository."""

import functools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    sys.exit("tests/chart: Python's yaml is missing: apt-get install python3-yaml, or pip install pyyaml")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/quorate"
HELM = ROOT / "target/kubernetes/bin/helm"
HERE = ROOT / "tests/chart"
RELEASE, NAMESPACE, OLDEST = "q", "quorate-system", "1.33.0"


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a key that is there twice: the API server takes one of the two and says nothing."""


def mapping(loader, node):
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    twice = sorted({str(key) for key in keys if keys.count(key) > 1})
    if twice:
        raise yaml.YAMLError(f"{node.start_mark}: {', '.join(twice)} is there twice")
    return {key: loader.construct_object(value, deep=True) for key, (_, value) in zip(keys, node.value)}


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def read(text):
    return yaml.load(text, Loader=Loader)


def read_all(text):
    return [document for document in yaml.load_all(text, Loader=Loader) if document]


def file(path):
    return read(path.read_text())


class Refused(Exception):
    """helm's message."""


def helm(*arguments, values=None):
    """What helm prints; values are given as a file, as a user does it."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as given:
        yaml.safe_dump(values or {}, given)
        given.flush()
        done = subprocess.run([HELM, *arguments, "-f", given.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr.strip())
    return done.stdout


def template(values, versions=(), kube=OLDEST, chart=CHART):
    """The rendering. The definitions are left out, unless the values ask for them: they are long, and have a check of
    their own."""
    return rendered(json.dumps({"crds": {"enabled": False}, **values}), tuple(versions), kube, chart)


@functools.lru_cache(None)
def rendered(values, versions, kube, chart):
    more = [f"--api-versions={version}" for version in versions]
    return helm("template", RELEASE, chart, "--namespace", NAMESPACE, "--kube-version", kube, *more, values=json.loads(values))


def notes(values):
    """NOTES.txt as helm install prints it. helm renders it only where a cluster answers, so a copy of the chart has it as an
    object."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "quorate"
        shutil.copytree(CHART, copy)
        text = (copy / "templates/NOTES.txt").read_text()
        (copy / "templates/notes.yaml").write_text(
            '{{- define "notes" }}' + text + '{{ end }}\nkind: Notes\ntext: {{ include "notes" . | quote }}\n'
        )
        documents = read_all(template(values, chart=copy))
    return next(one["text"] for one in documents if one["kind"] == "Notes")


def case(path):
    """The values of a file in cases/, and the API versions that its head names."""
    text = path.read_text()
    head = [line for line in text.splitlines() if line.startswith("# api-versions: ")]
    return read(text), head[0].split()[2:] if head else []


def cases():
    return sorted((HERE / "cases").glob("*.yaml"))


def leaves(value, schema, path=()):
    """The values that a user sets one by one, with their defaults: down to where the schema lets any key in."""
    if isinstance(value, dict) and "properties" in schema and not free_form(schema):
        for key, inner in value.items():
            yield from leaves(inner, schema["properties"][key], (*path, key))
    else:
        yield ".".join(path), value


# Values that are one thing for a user although the schema knows their keys.
WHOLE = {("type", "rollingUpdate"), ("requests", "limits", "claims")}


def free_form(schema):
    return schema.get("additionalProperties") is not False or tuple(schema["properties"]) in WHOLE
