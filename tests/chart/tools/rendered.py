#!/usr/bin/env python3
"""rendered.py FOLDER: writes what the chart renders for every case of tests/chart/cases, a file each."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import render  # noqa: E402

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for path in render.cases():
    given, versions = render.case(path)
    (folder / path.name).write_text(render.template(given, versions))
