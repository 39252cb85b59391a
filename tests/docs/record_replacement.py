#!/usr/bin/env python3
"""Records the latencies of a writer while every member of a cluster is replaced, one at a time.

It starts `quorate local` with three members, writes without pause by the JSON gateway, and lists all members in
`spec.replaceMembers` after a few quiet seconds. A write counts from its first attempt until it is acknowledged, at
whichever member. Writes docs/data/replacement.csv (a row for each quarter of a second) and
docs/data/replacement-events.csv (what the cluster's own lines show meanwhile); tests/docs/images.py draws them.
Never changes a figure by hand: another run makes other files.

    cargo build --locked --bin quorate && tests/docs/record_replacement.py
"""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUORATE = os.environ.get("QUORATE", str(ROOT / "target/debug/quorate"))
BUCKET = 0.25
QUIET = 5.0  # seconds before the first replacement and after the last
ATTEMPT = 1.0  # seconds until the request goes to another member
GIVE_UP = 10.0  # seconds until a write counts as failed
BOUND = 120.0

RESOURCE = """apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata: {{name: demo}}
spec:
  replicas: 3
  storage: {{size: 1Gi}}
  healing: {{unhealthySeconds: 20, learnerDeadlineSeconds: 60}}
  replaceMembers: {replaced}
"""
EVENT = re.compile(r"^\s*[0-9.]+s  (promote|remove|move leadership from) (demo-\d+)(?: to (demo-\d+))?")


class Cluster:
    """A `quorate local`, and its output."""

    def __init__(self, folder):
        self.file = folder / "demo.yaml"
        self.edit([])
        self.folder = folder / "cluster"
        self.lines = []
        command = [QUORATE, "local", str(self.file), "--dir", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    def edit(self, replaced):
        new = self.file.with_suffix(".new")
        new.write_text(RESOURCE.format(replaced=json.dumps(replaced)))
        new.replace(self.file)

    def ports(self):
        """The client ports of the running members, by name."""
        try:
            state = json.loads((self.folder / "state.json").read_text())
        except (OSError, ValueError):
            return {}
        return {name: state["ports"][name]["client"] for name in state["sets"] if name in state["ports"]}

    def voters(self):
        """Names of the voters, as a member lists them; None if no member answers."""
        for port in self.ports().values():
            try:
                members = post(port, "/v3/cluster/member/list", {}, {}, ATTEMPT)["members"]
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                continue
            return sorted(member["name"] for member in members if not member.get("isLearner"))
        return None

    def until(self, what, holds):
        end = time.monotonic() + BOUND
        while not holds():
            if time.monotonic() > end or self.process.poll() is not None:
                sys.exit(f"waited in vain for {what}:\n" + "\n".join(line for _, line in self.lines[-20:]))
            time.sleep(0.1)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


def post(port, path, body, connections, timeout):
    """One request; the connection is kept for the next one."""
    connection = connections.pop(port, None) or http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        connection.close()
        raise OSError(f"{answer.status}: {text[:100]!r}")
    connections[port] = connection
    return json.loads(text)


class Writer(threading.Thread):
    """Writes one key after the other, and records the start and the duration of each."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.done, self.writes, self.repeated = cluster, threading.Event(), [], 0

    def run(self):
        connections, at = {}, 0
        for number in range(10**9):
            if self.done.is_set():
                return
            began = time.monotonic()
            failed = True
            while failed and time.monotonic() - began < GIVE_UP:
                ports = sorted(self.cluster.ports().values())
                if not ports:
                    time.sleep(0.02)
                    continue
                port = ports[at % len(ports)]
                try:
                    post(port, "/v3/kv/put", {"key": "a2V5", "value": "dmFsdWU="}, connections, ATTEMPT)
                    failed = False
                except (OSError, ValueError, http.client.HTTPException):
                    connections.pop(port, None)
                    at += 1
                    self.repeated += 1
                    time.sleep(0.01)
            self.writes.append((began, (time.monotonic() - began) * 1000, failed))
            time.sleep(0.002)


def rows(writes, start, end):
    count = int((end - start) / BUCKET)
    for index in range(count):
        low = start + index * BUCKET
        taken = sorted(ms for began, ms, _ in writes if low <= began < low + BUCKET)
        failed = sum(failed for began, _, failed in writes if low <= began < low + BUCKET)
        median, longest = (taken[len(taken) // 2], taken[-1]) if taken else (0, 0)
        yield f"{index * BUCKET:.2f},{len(taken)},{median:.1f},{longest:.1f},{failed}"


def events(lines, start, end):
    for at, line in lines:
        found = EVENT.match(line)
        if found and start <= at < end:
            verb, member, other = found.groups()
            what = f"{other} leads" if verb.startswith("move") else f"{verb}d {member}"
            yield f"{at - start:.2f},{what}"


def head(writer, written, failed, longest):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return (
        f"# recorded: {time.strftime('%Y-%m-%d', time.gmtime())}, commit {commit}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}, debug build\n"
        "# command: tests/docs/record_replacement.py\n"
        f"# {written} writes acknowledged, {failed} failed, {writer.repeated} attempts repeated, the longest {longest:.0f} ms\n"
    )


def main():
    with tempfile.TemporaryDirectory() as temporary:
        cluster = Cluster(pathlib.Path(temporary))
        try:
            cluster.until("three voters", lambda: len(cluster.voters() or []) == 3)
            writer = Writer(cluster)
            writer.start()
            time.sleep(2)  # connections and caches
            start = time.monotonic()
            time.sleep(QUIET)
            old = cluster.voters() or sys.exit("no member answers")
            cluster.edit(old)
            new = lambda: (voters := cluster.voters()) and len(voters) == 3 and not set(voters) & set(old)
            cluster.until("every member to be replaced", new)
            time.sleep(QUIET)
            end = time.monotonic()
            writer.done.set()
            writer.join(GIVE_UP + ATTEMPT)
        finally:
            cluster.stop()
    taken = [write for write in writer.writes if start <= write[0] < end]
    failed = sum(failed for _, _, failed in taken)
    about = head(writer, len(taken) - failed, failed, max(ms for _, ms, _ in taken))
    data = ROOT / "docs/data"
    data.mkdir(exist_ok=True)
    lines = [f"{about}second,writes,median_ms,longest_ms,failed", *rows(writer.writes, start, end)]
    (data / "replacement.csv").write_text("\n".join(lines) + "\n")
    lines = ["second,event", *events(cluster.lines, start, end)]
    (data / "replacement-events.csv").write_text("\n".join(lines) + "\n")
    print(about, end="")


main()
