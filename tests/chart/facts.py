"""What is true of whatever the chart renders. Each function takes the objects of a rendering, and yields what is wrong."""

import re

NAMESPACED_BY_RELEASE = {"Deployment", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget", "Service", "PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap"}
CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "CustomResourceDefinition",
}


def of(objects, kind):
    return [one for one in objects if one["kind"] == kind]


def pod(objects):
    return of(objects, "Deployment")[0]["spec"]["template"]


def name(one):
    return f"{one['kind']} {one['metadata']['name']}"


def matches(selector, labels):
    wanted = selector.get("matchLabels", selector)
    return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def selectors_match(objects):
    template = pod(objects)
    labels = template["metadata"]["labels"]
    selecting = {
        "Deployment": lambda spec: spec["selector"],
        "NetworkPolicy": lambda spec: spec["podSelector"],
        "PodDisruptionBudget": lambda spec: spec["selector"],
        "Service": lambda spec: spec["selector"],
        "PodMonitor": lambda spec: spec["selector"],
    }
    for kind, selector in selecting.items():
        for one in of(objects, kind):
            if not matches(selector(one["spec"]), labels):
                yield f"{name(one)} does not select the operator's pods"
    for spread in template["spec"].get("topologySpreadConstraints", []):
        if not matches(spread.get("labelSelector", {}), labels):
            yield f"the spread over {spread['topologyKey']} does not count the operator's pods"
    for monitor in of(objects, "ServiceMonitor"):
        services = of(objects, "Service")
        if not any(matches(monitor["spec"]["selector"], service["metadata"]["labels"]) for service in services):
            yield "the ServiceMonitor selects no Service"


def members_admit_the_operator(objects):
    """The members' NetworkPolicies select it by these labels: src/planner/build/network.rs."""
    wanted = {"app.kubernetes.io/name": "quorate", "app.kubernetes.io/component": "operator"}
    if not matches(wanted, pod(objects)["metadata"]["labels"]):
        yield "members would not admit the operator's pods"


def ports_exist(objects):
    container = pod(objects)["spec"]["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    used = [container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")]
    for service in of(objects, "Service"):
        used += [port["targetPort"] for port in service["spec"]["ports"]]
    for monitor in of(objects, "PodMonitor"):
        used += [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    for policy in of(objects, "NetworkPolicy"):
        used += [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    yield from (f"the pods have no port {port}" for port in used if port not in ports)
    services = {port["name"] for service in of(objects, "Service") for port in service["spec"]["ports"]}
    for monitor in of(objects, "ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            if endpoint["port"] not in services:
                yield f"the Service has no port {endpoint['port']}"


def restricted(objects):
    """The Pod Security Standard restricted. No rendering of a case leaves it."""
    spec = pod(objects)["spec"]
    container = spec["containers"][0]
    context = container.get("securityContext", {})
    if not spec["securityContext"].get("runAsNonRoot"):
        yield "the pod may run as root"
    if spec["securityContext"].get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "the pod has no seccomp profile"
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "the container may gain privileges"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield "the container has capabilities"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "the container may write into its image"
    for user in (spec["securityContext"].get("runAsUser"), context.get("runAsUser")):
        if user is not None and (not isinstance(user, int) or user == 0):
            yield f"the user is {user!r}"
    for key in ("hostNetwork", "hostPID", "hostIPC", "volumes"):
        if spec.get(key):
            yield f"the pod has {key}"


def not_best_effort(objects):
    resources = pod(objects)["spec"]["containers"][0].get("resources") or {}
    for kind in ("cpu", "memory"):
        if not (resources.get("requests") or {}).get(kind):
            yield f"the operator requests no {kind}"


def names_and_places(objects):
    seen = set()
    for one in objects:
        meta, kind = one["metadata"], one["kind"]
        key = (kind, meta.get("namespace"), meta["name"])
        if key in seen:
            yield f"{name(one)} is there twice"
        seen.add(key)
        if len(meta["name"]) > 63:
            yield f"{name(one)} has a long name"
        if kind in CLUSTER_SCOPED and "namespace" in meta:
            yield f"{name(one)} has a namespace"
        if kind in NAMESPACED_BY_RELEASE and meta.get("namespace") != "quorate-system":
            yield f"{name(one)} is in namespace {meta.get('namespace')}"
        if kind in ("Role", "RoleBinding") and not meta.get("namespace"):
            yield f"{name(one)} is in no namespace"
        if kind not in CLUSTER_SCOPED | NAMESPACED_BY_RELEASE | {"Role", "RoleBinding"}:
            yield f"{kind} is no kind that this test knows"
        for label in ("name", "instance", "version", "managed-by"):
            if kind != "CustomResourceDefinition" and f"app.kubernetes.io/{label}" not in meta["labels"]:
                yield f"{name(one)} lacks the label app.kubernetes.io/{label}"


def bindings_are_whole(objects):
    account = (of(objects, "ServiceAccount")[0]["metadata"]["name"], "quorate-system")
    if pod(objects)["spec"]["serviceAccountName"] != account[0]:
        yield "the pods run as another service account"
    roles = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects}
    for one in of(objects, "RoleBinding") + of(objects, "ClusterRoleBinding"):
        role = (one["roleRef"]["kind"], one["metadata"].get("namespace"), one["roleRef"]["name"])
        if role not in roles:
            yield f"{name(one)} names a role that is not there"
        subjects = [(subject["name"], subject.get("namespace")) for subject in one["subjects"]]
        if not one["metadata"]["name"].endswith("-metrics") and subjects != [account]:
            yield f"{name(one)} is for {subjects}"


def rights_are_named(objects):
    for role in of(objects, "Role") + of(objects, "ClusterRole"):
        for rule in role["rules"]:
            given = [word for key in ("apiGroups", "resources", "verbs") for word in rule.get(key, [])]
            if "*" in given or {"escalate", "bind", "impersonate"} & set(given):
                yield f"{name(role)} gives {rule}"


def served_resources(definitions):
    """Every resource and subresource of the definitions."""
    for one in definitions:
        plural = one["spec"]["names"]["plural"]
        below = {sub for version in one["spec"]["versions"] for sub in version.get("subresources", {})}
        yield plural, below


def users_may_what_is_served(objects, definitions):
    """Who may view or edit in a namespace may view or edit every kind, and nobody but the operator writes status."""
    roles = {role["metadata"]["name"].rsplit("-", 1)[-1]: role for role in of(objects, "ClusterRole")}
    granted = {
        which: {(resource, verb) for rule in roles[which]["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
        for which in ("view", "edit")
    }
    view, edit = set(), set()
    for plural, below in served_resources(definitions):
        view |= {(plural, verb) for verb in ("get", "list", "watch")}
        view |= {(f"{plural}/{sub}", "get") for sub in below}
        edit |= {(plural, verb) for verb in ("create", "update", "patch", "delete", "deletecollection")}
        edit |= {(f"{plural}/{sub}", verb) for sub in below - {"status"} for verb in ("update", "patch")}
    for which, wanted in (("view", view), ("edit", edit)):
        yield from (f"{which}: {right} is missing or too much" for right in sorted(granted[which] ^ wanted))
        to = {key.rsplit("-", 1)[-1] for key in roles[which]["metadata"]["labels"] if "aggregate-to" in key}
        if to != {"edit", "admin"} | ({"view"} if which == "view" else set()):
            yield f"{which} is aggregated to {to}"


def flags_of_the_operator(source):
    """The flags of `quorate operator`, as clap derives them from the names of fields."""
    fields = re.findall(r"#\[arg\(long.*?\]\n    (\w+):", source, flags=re.S)
    return {field.replace("_", "-") for field in fields}


ALWAYS = [
    selectors_match,
    members_admit_the_operator,
    ports_exist,
    restricted,
    not_best_effort,
    names_and_places,
    bindings_are_whole,
    rights_are_named,
]
