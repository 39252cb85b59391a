#!/usr/bin/env python3
"""Has promtool read every query of the dashboards, as rules that record it. Grafana's variables are written as it would."""

import json
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "monitoring" / "dashboards"
VARIABLES = {"$namespace": ".+", "$name": ".+", "$__rate_interval": "5m"}


def queries():
    for path in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                text = target["expr"]
                for variable, value in VARIABLES.items():
                    text = text.replace(variable, value)
                yield text


def main():
    rules = [{"record": f"query_{number}", "expr": text} for number, text in enumerate(queries())]
    if len(rules) < 20:
        sys.exit(f"only {len(rules)} queries in {FOLDER}")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"groups": [{"name": "dashboards", "rules": rules}]}, file)
        file.flush()
        subprocess.run(["promtool", "check", "rules", file.name], check=True)


main()
