"""Records what a real kube-apiserver answers to server-side applies, for src/opsim/api/recorded_test.rs.

Start an etcd and a kube-apiserver (tests/kubernetes/build.sh makes one) with --token-auth-file and a
namespace `prod`, then: python3 tests/opsim/record.py https://127.0.0.1:6443 TOKEN > tests/opsim/applied.json
Needs PyYAML. Bodies and answers are numbered values, for most of them come more than once.
"""
import copy
import json
import pathlib
import ssl
import sys
import urllib.error
import urllib.request

import yaml

SERVER, TOKEN = sys.argv[1:3]
BUILD = pathlib.Path(__file__).parent.parent / "build"
PATHS = {
    "Secret": "/api/v1/namespaces/prod/secrets/",
    "Service": "/api/v1/namespaces/prod/services/",
    "PersistentVolumeClaim": "/api/v1/namespaces/prod/persistentvolumeclaims/",
    "StatefulSet": "/apis/apps/v1/namespaces/prod/statefulsets/",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/prod/poddisruptionbudgets/",
}
values, steps = [], []


def apply(body, manager, force):
    path = PATHS[body["kind"]] + body["metadata"]["name"]
    url = f"{SERVER}{path}?fieldManager={manager}&force={str(force).lower()}"
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/apply-patch+yaml"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PATCH")
    try:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def plain(answer):
    """Without what differs from run to run."""
    if answer["kind"] == "Status":
        return {"code": answer.get("code"), "reason": answer.get("reason")}
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        answer["metadata"].pop(field, None)
    spec = answer.get("spec", {})
    if answer["kind"] == "StatefulSet":
        meta = spec["template"].get("metadata", {})
        if meta.get("creationTimestamp", "") is None:
            del meta["creationTimestamp"]
    if answer["kind"] == "Service":
        if spec.get("clusterIP") != "None":
            spec["clusterIP"], spec["clusterIPs"] = "10.96.0.1", ["10.96.0.1"]
        for port in spec["ports"]:
            if "nodePort" in port:
                port["nodePort"] = 30000
    return answer


def number(value):
    if value not in values:
        values.append(copy.deepcopy(value))
    return values.index(value)


def do(step, body, manager="quorate", force=True):
    code, answer = apply(body, manager, force)
    steps.append({"step": step, "manager": manager, "force": force, "body": number(body),
                  "code": code, "answer": number(plain(answer))})


def changed(body, change):
    body = copy.deepcopy(body)
    change(body)
    return body


def load(name):
    return [one for one in yaml.safe_load_all((BUILD / name).read_text()) if one]


def one(objects, kind, name):
    return next(o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)


def main():
    basic, full = load("plain.yaml"), load("everything.yaml")
    for word, objects in (("plain", basic), ("again", basic), ("everything", full)):
        for body in objects:
            do(f"{word} {body['kind']} {body['metadata']['name']}", body)
    demo = one(basic, "StatefulSet", "demo-1")
    service = one(basic, "Service", "demo-client")

    def as_demo(body):
        body["metadata"]["name"] = "demo-1"
        body["spec"]["selector"] = demo["spec"]["selector"]
        for labels in (body["metadata"]["labels"], body["spec"]["template"]["metadata"]["labels"]):
            labels["quorate.dev/member"] = "demo-1"

    do("plain set gets everything", changed(one(full, "StatefulSet", "demo-4"), as_demo))
    do("and goes back", demo)
    do("client service goes back", service)
    do("node port", changed(service, lambda o: o["spec"].update(type="NodePort")))
    do("cluster ip again", service)
    do("another port", changed(service, lambda o: o["spec"]["ports"][0].update(port=2399)))
    do("port again", service)
    third = {"apiVersion": "apps/v1", "kind": "StatefulSet",
             "metadata": {"name": "demo-1", "namespace": "prod", "annotations": {"n": "1"}},
             "spec": {"template": {"spec": {"containers": [
                 {"name": "member", "image": "b:1", "env": [{"name": "B", "value": "2"}]}]}}}}
    do("third party conflicts", third, "other", False)
    do("third party by force", third, "other", True)
    do("taken back", demo)

    def let_go(body):
        body["spec"] = {"template": {"spec": {"containers": [{"name": "member"}]}}}

    do("third party lets go", changed(third, let_go), "other", False)

    def pod(change):
        return changed(demo, lambda o: change(o["spec"]["template"]["spec"]))

    def meta(change):
        return changed(demo, lambda o: change(o["spec"]["template"]["metadata"]))

    def spread(spec):
        return spec["topologySpreadConstraints"]

    do("a spread twice", pod(lambda s: spread(s).append(copy.deepcopy(spread(s)[1]))))
    do("another service name", changed(demo, lambda o: o["spec"].update(serviceName="x")))
    do("requests above limits", pod(lambda s: s["containers"][0].update(
        resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}})))
    do("a bad label in a node selector", pod(lambda s: s.update(nodeSelector={"a b": "c"})))
    do("a bad value in a node selector", pod(lambda s: s.update(nodeSelector={"a": "b c"})))
    do("a bad toleration",
       pod(lambda s: s.update(tolerations=[{"operator": "Equal", "value": "x"}])))
    do("no image", pod(lambda s: s["containers"][0].update(image=" ")))
    do("labels that the selector misses", meta(lambda m: m.update(labels={})))
    do("a bad label of pods", meta(lambda m: m["labels"].update(bad="x y")))
    do("a bad annotation of pods", meta(lambda m: m["annotations"].update({"bad key!": "x y"})))
    do("a priority class that is not there", pod(lambda s: s.update(priorityClassName="none")))
    do("a skew of 0", pod(lambda s: spread(s)[0].update(maxSkew=0)))
    latch = one(basic, "Secret", "demo-identity")
    do("an immutable secret", changed(latch, lambda o: o["data"].update(seed="eA==")))
    do("a service name that begins with a digit",
       changed(service, lambda o: o["metadata"].update(name="1x")))
    do("clusterIP changes", changed(service, lambda o: o["spec"].update(clusterIP="None")))
    do("a bad label", changed(service, lambda o: o["metadata"]["labels"].update(a="x y")))
    claim = one(basic, "PersistentVolumeClaim", "data-demo-1-6f1c2")
    do("a claim that is not bound grows", changed(
        claim, lambda o: o["spec"]["resources"]["requests"].update(storage="9Gi")))
    do("a claim gets a class", changed(claim, lambda o: o["spec"].update(storageClassName="x")))
    do("and again as it was", demo)
    line = lambda value: json.dumps(value, separators=(",", ":"), sort_keys=True)
    print('{"values":[\n' + ",\n".join(map(line, values)), '\n],"steps":[\n'
          + ",\n".join(map(line, steps)) + "\n]}")


main()
