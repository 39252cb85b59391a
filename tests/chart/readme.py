#!/usr/bin/env python3
"""Writes the tables of charts/quorate/README.md from values.yaml: each value, its default, and the comment above it.

    tests/chart/readme.py           writes them; check.py fails where they differ
    tests/chart/readme.py FOLDER    writes those of a copy of the chart, whose defaults may be others
"""

import json
import pathlib
import re
import sys

import render
from render import CHART

BEGIN, END = "<!-- values.yaml, by tests/chart/readme.py -->\n", "<!-- end -->\n"


def commented(text):
    """The lines of values.yaml as (heading, path, meaning): a heading is of all values that follow."""
    heading, comment, path = "", [], []
    for line in text.splitlines():
        if found := re.match(r"## (.+)", line):
            heading, comment = found[1], []
        elif found := re.match(r" *# ?(.*)", line):
            comment.append(found[1])
        elif found := re.match(r"( *)([A-Za-z]+):", line):
            path = [*path[: len(found[1]) // 2], found[2]]
            yield heading, ".".join(path), " ".join(comment)
            comment = []
        else:
            comment = []


def shown(value):
    if isinstance(value, str) and value:
        return value
    return json.dumps(value)


def rows(chart=CHART):
    """The values that a user sets, in the order of the file: (heading, path, default, meaning)."""
    schema = json.loads((chart / "values.schema.json").read_text())
    text = (chart / "values.yaml").read_text()
    defaults = dict(render.leaves(render.read(text), schema))
    for heading, path, meaning in commented(text):
        if path in defaults:
            yield heading, path, shown(defaults[path]), meaning


def without_meaning():
    yield from (f"values.yaml says nothing of {path}" for heading, path, _, meaning in rows() if not meaning or not heading)


def tables(chart):
    lines, last = [], None
    for heading, path, default, meaning in rows(chart):
        if heading != last:
            lines += ["", f"### {heading}", "", "| value | default | meaning |", "|---|---|---|"]
            last = heading
        lines.append(f"| `{path}` | `{default}` | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n\n"


def whole(chart=CHART):
    """The page with the tables of now."""
    page = (chart / "README.md").read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + tables(chart) + END + after


if __name__ == "__main__":
    of = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else CHART
    (of / "README.md").write_text(whole(of))
