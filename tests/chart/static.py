"""What is checked of the chart's files as they are, without helm: that values.yaml, its schema, the README, changes.yaml and the
operator's flags speak of the same. Each check yields what is wrong.
"""

import json

import facts
import readme
import render
from render import CHART, HERE, ROOT

# Flags of the operator that are not the chart's to set, and why.
NOT_OFFERED = {
    "lease-name": "the Role and `kubectl quorate` know the Lease by its name",
    "lease-namespace": "the Role is in the release's namespace",
}


def values():
    return render.file(CHART / "values.yaml")


def schema():
    """With its references resolved."""
    whole = json.loads((CHART / "values.schema.json").read_text())

    def resolved(part):
        if isinstance(part, list):
            return [resolved(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return resolved(whole["definitions"][part["$ref"].rsplit("/", 1)[-1]])
        return {key: resolved(inner) for key, inner in part.items()}

    return resolved(whole)


def put(into, path, value):
    """The values with one more, given by its dotted path."""
    first, _, rest = path.partition(".")
    inner = put(into.get(first, {}), rest, value) if rest else value
    return {**into, first: inner}


def schema_has_every_value():
    def compare(given, part, path):
        known = set(part["properties"]) - ({"global"} if not path else set())
        for key in sorted(known ^ set(given)):
            yield f"{path}{key} is in the schema or in values.yaml alone"
        for key in sorted(known & set(given)):
            inner = part["properties"][key]
            if isinstance(given[key], dict) and "properties" in inner and not render.free_form(inner):
                yield from compare(given[key], inner, f"{path}{key}.")

    yield from compare(values(), schema(), "")


# Where the schema lets any key in: Kubernetes' own objects, which the API server checks, and maps of strings.
FREE = {
    "global",
    "grafanaDashboards.annotations",
    "grafanaDashboards.labels",
    "affinity",
    "commonAnnotations",
    "commonLabels",
    "console.from[].ipBlock",
    "console.from[].namespaceSelector",
    "console.from[].podSelector",
    "extraEnv[].valueFrom",
    "metricsService.annotations",
    "metricsService.labels",
    "networkPolicy.egress[].ports[]",
    "networkPolicy.egress[].to[]",
    "networkPolicy.from[].ipBlock",
    "networkPolicy.from[].namespaceSelector",
    "networkPolicy.from[].podSelector",
    "nodeSelector",
    "podAnnotations",
    "podLabels",
    "podMonitor.annotations",
    "podMonitor.authorization",
    "podMonitor.labels",
    "podMonitor.metricRelabelings[]",
    "podMonitor.relabelings[]",
    "podSecurityContext",
    "prometheusRule.annotations",
    "prometheusRule.labels",
    "resources.claims[]",
    "resources.limits",
    "resources.requests",
    "securityContext",
    "serviceAccount.annotations",
    "serviceMonitor.annotations",
    "serviceMonitor.authorization",
    "serviceMonitor.labels",
    "serviceMonitor.metricRelabelings[]",
    "serviceMonitor.relabelings[]",
    "strategy.rollingUpdate",
    "tolerations[]",
    "topologySpreadConstraints[]",
}


def schema_is_strict():
    found = set()

    def walk(part, path):
        for one in part.get("oneOf", [part]):
            if one.get("type") == "object":
                if one.get("additionalProperties") is not False:
                    found.add(path)
                for key, inner in one.get("properties", {}).items():
                    walk(inner, f"{path}.{key}".lstrip("."))
            elif one.get("type") == "array":
                walk(one["items"], f"{path}[]")

    walk(schema(), "")
    yield from (f"{path} lets any key in, or does not any more" for path in sorted(found ^ FREE))


def readme_is_as_written():
    if readme.whole() != (CHART / "README.md").read_text():
        yield "charts/quorate/README.md is not what the comments of values.yaml say: run tests/chart/readme.py"
    yield from readme.without_meaning()


def every_value_has_a_change():
    known = {path for path, _ in render.leaves(values(), schema())}
    listed = set(render.file(HERE / "changes.yaml"))
    yield from (f"{path} is in changes.yaml or in values.yaml alone" for path in sorted(known ^ listed))


def every_flag_is_offered():
    known = facts.flags_of_the_operator((ROOT / "src/cli/operator.rs").read_text())
    text = (CHART / "templates/deployment.yaml").read_text()
    offered = {flag for flag in known if f"--{flag}=" in text}
    yield from (f"--{flag} is no value, and NOT_OFFERED has no reason" for flag in sorted(known - offered - set(NOT_OFFERED)))
    yield from (f"--{flag} is no flag of the operator, or it is offered" for flag in sorted(set(NOT_OFFERED) - (known - offered)))
    taken = (CHART / "templates/_checks.tpl").read_text()
    yield from (f"extraArgs does not refuse --{flag}" for flag in sorted(known) if f'"{flag}"' not in taken)


def metadata():
    chart = render.file(CHART / "Chart.yaml")
    version = (ROOT / "Cargo.toml").read_text().split('\nversion = "', 1)[1].split('"', 1)[0]
    if {chart["version"], chart["appVersion"]} != {version}:
        yield f"Chart.yaml is of {chart['version']} and {chart['appVersion']}, the programs are of {version}"
    if chart["kubeVersion"] != f">={render.OLDEST}-0":
        yield f"kubeVersion is {chart['kubeVersion']}"
    listed = {(one["name"], one["kind"], one["version"]) for one in render.read(chart["annotations"]["artifacthub.io/crds"])}
    served = set()
    for one in render.read_all((CHART / "files/crds.yaml").read_text()):
        served |= {(one["metadata"]["name"], one["spec"]["names"]["kind"], version["name"]) for version in one["spec"]["versions"]}
    yield from (f"{name} is in Chart.yaml or in files/crds.yaml alone" for name, _, _ in sorted(listed ^ served))


CHECKS = [
    schema_has_every_value,
    schema_is_strict,
    readme_is_as_written,
    every_value_has_a_change,
    every_flag_is_offered,
    metadata,
]
