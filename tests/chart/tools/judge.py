#!/usr/bin/env python3
"""What kube-score or checkov objects to in the chart's renderings, against the exceptions that are written down.

    judge.py kube-score PROGRAM FOLDER
    judge.py checkov PROGRAM FOLDER

An objection without an exception fails, and so do an exception that nothing needs any more, and a rendering in which nothing was
judged. A line of TOOL/exceptions.txt is: the check, the case or *, and the reason. Changes nothing.
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The oldest Kubernetes that the chart takes.
OLDEST = "v1.33"


def answer(*command):
    """The tool's JSON. Its status says that there are objections, which the caller reads."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{command[0]} gives no JSON (status {done.returncode}): {done.stdout[-2000:]}{done.stderr[-2000:]}")


def kube_score(program, folder):
    """Every judgement: case, check, and what is wrong or None. Limits of processor time are left out: see checkov's."""
    for file in sorted(folder.glob("*.yaml")):
        options = ("--kubernetes-version", OLDEST, "--output-format", "json", "--ignore-container-cpu-limit")
        for found in answer(program, "score", *options, file):
            for one in found["checks"]:
                if one["skipped"]:
                    continue
                wrong = [comment["summary"] for comment in one["comments"] or []] if one["grade"] < 10 else []
                yield file.stem, one["check"]["id"], f"{found['object_name']}: {', '.join(wrong)}" if wrong else None


def checkov(program, folder):
    options = ("--framework", "kubernetes", "--compact", "--skip-download", "--output", "json")
    results = answer(program, "--directory", folder, *options)["results"]
    for one in results["failed_checks"] + results["passed_checks"]:
        failed = one["check_result"]["result"] == "FAILED"
        wrong = f"{one['resource']}: {one['check_name']}" if failed else None
        yield pathlib.Path(one["file_path"]).stem, one["check_id"], wrong


def exceptions(tool):
    lines = (HERE / tool / "exceptions.txt").read_text().splitlines()
    for line in lines:
        if line and not line.startswith("#"):
            check, case, reason = line.split(None, 2)
            yield check, case, reason


def main(tool, program, folder):
    folder = pathlib.Path(folder)
    judged = list({"kube-score": kube_score, "checkov": checkov}[tool](program, folder))
    known = list(exceptions(tool))
    objections = [one for one in judged if one[2]]
    wrong = [
        f"{case}: {check}: {what}"
        for case, check, what in objections
        if not any(check == one and on in ("*", case) for one, on, _ in known)
    ]
    for check, on, _ in known:
        if not any(check == one and on in ("*", case) for case, one, _ in objections):
            wrong.append(f"{tool}/exceptions.txt: nothing needs {check} {on} any more")
    for file in sorted(folder.glob("*.yaml")):
        if not any(case == file.stem for case, _, _ in judged):
            wrong.append(f"{file.name}: nothing was judged in it")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{tool}: {len(judged)} judgements, {len(objections)} objections, {len(wrong)} that no exception takes or needs")
    return 1 if wrong or not judged else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
