#!/usr/bin/env python3
"""How figures grow along an axis, from what `make bench-growth AXIS=name` measured: a table, and a plot of each figure.

    tests/docs/growth.py FILE.json                  prints the table in Markdown, writes FILE.svg
    tests/docs/growth.py FILE.json --record WORDS   writes docs/data as well, with the words on where it was recorded;
                                                    tests/docs/images.py then draws docs/images from that

It measures nothing and contains no figures. Both scales of a plot are logarithmic, so that what grows in proportion is a
straight line.
"""

import csv
import json
import math
import pathlib
import sys

from drawing import SANS, path, svg, text

DATA = pathlib.Path(__file__).resolve().parents[2] / "docs/data"
COLUMNS = ["at", "figure", "unit", "quorate", "etcd", "better", "spread_percent"]
# What says more of the measurement than of the servers is in the table alone.
UNPLOTTED = (", slowest", ", client CPU", ", client's share of the CPU")
WIDTH, PANEL, LEFT, TOP, HIGH = 820, 410, 62, 66, 190


def rows_of(points):
    """The measured points as rows, as they are in docs/data."""
    digits = lambda value: "" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"
    for point in points:
        spread = point["spread"]
        yield {
            "at": str(point["at"]),
            "figure": point["name"],
            "unit": point["unit"],
            "quorate": digits(point["ours"]),
            "etcd": digits(point["etcd"]),
            "better": "" if point["ratio"] is None else f"{point['ratio']:.2f}",
            "spread_percent": "" if spread is None else f"{100 * spread:.0f}",
        }


def markdown(axis, rows):
    """A table of the rows, a line a figure and point."""
    lines = [f"| figure | {axis} | unit | Quorate | etcd | better | spread |", "|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: (row["figure"], int(row["at"]))):
        better = f"{row['better']} x" if row["better"] else "-"
        spread = f"\u00b1 {row['spread_percent']} %" if row["spread_percent"] else ""
        cells = [row["figure"], f"{int(row['at']):,}", row["unit"], row["quorate"] or "-", row["etcd"] or "-", better, spread]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def short(number):
    """10000 as 10k."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def panel(name, rows, axis, left, top):
    """One figure of both sides, in a rectangle of its own."""
    values = [float(row[who]) for row in rows for who in ("quorate", "etcd") if row[who] and float(row[who]) > 0]
    if not values:
        return ""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    first, last = (math.log10(int(row["at"])) for row in (rows[0], rows[-1]))
    x0, x1, y0, y1 = left + LEFT, left + PANEL - 18, top + HIGH - 42, top + 28
    at_x = lambda at: x0 + (x1 - x0) * (math.log10(at) - first) / ((last - first) or 1)
    at_y = lambda value: y0 - (y0 - y1) * (math.log10(value) - low) / (high - low)
    body = text(left + 16, top + 14, f"{name}, {rows[0]['unit']}", "bold")
    for power in range(low, high + 1):
        y = at_y(10**power)
        body += f'<path d="M{x0} {y:.1f}H{x1}" class="sline"/>\n' + text(x0 - 6, y + 4, short(10.0**power), "dim", "end", 11)
    for row in rows:
        body += text(at_x(int(row["at"])), y0 + 16, short(int(row["at"])), "dim", "middle", 11)
    body += text(x1, y0 + 31, axis, "dim", "end", 11)
    for who, colour in (("etcd", "two"), ("quorate", "one")):
        points = [(at_x(int(row["at"])), at_y(float(row[who]))) for row in rows if row[who] and float(row[who]) > 0]
        if points:
            body += path(points, colour, 2)
        body += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="{colour}"/>\n' for x, y in points)
    return body


def plot(name, about, rows):
    """All figures of an axis as panels, two beside each other."""
    axis = name.removeprefix("growth-")
    names = list(dict.fromkeys(row["figure"] for row in rows if not row["figure"].endswith(UNPLOTTED)))
    height = TOP + HIGH * math.ceil(len(names) / 2) + 30
    title = f"How figures grow with {axis}"
    body = f'<rect width="{WIDTH}" height="{height}" rx="8" class="bg"/>\n' + text(16, 24, title, "bold", size=14)
    for index, (who, colour) in enumerate((("Quorate", "one"), ("etcd", "two"))):
        body += f'<rect x="{16 + index * 90}" y="37" width="12" height="12" class="{colour}"/>\n' + text(33 + index * 90, 47, who)
    for index, figure in enumerate(names):
        own = sorted((row for row in rows if row["figure"] == figure), key=lambda row: int(row["at"]))
        body += panel(figure, own, axis, PANEL * (index % 2), TOP + HIGH * (index // 2))
    body += text(16, height - 12, "; ".join(line.removeprefix("command: ") for line in about[:2]), "dim", size=11)
    return svg(WIDTH, height, title, SANS, body)


def record(name, words, rows):
    """Writes the rows into docs/data."""
    axis = name.removeprefix("growth-")
    with (DATA / f"{name}.csv").open("w", newline="") as file:
        file.write(f"# recorded: {words}\n# command: make bench-growth AXIS={axis}\n")
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main():
    if len(sys.argv) not in (2, 4) or (len(sys.argv) == 4 and sys.argv[2] != "--record"):
        sys.exit(__doc__)
    file = pathlib.Path(sys.argv[1])
    rows = list(rows_of(json.loads(file.read_text())))
    about = [f"make bench-growth AXIS={file.stem.removeprefix('growth-')}"]
    file.with_suffix(".svg").write_text(plot(file.stem, about, rows))
    print(markdown(file.stem.removeprefix("growth-"), rows), end="")
    if len(sys.argv) == 4:
        record(file.stem, sys.argv[3], rows)


if __name__ == "__main__":
    main()
