#!/usr/bin/env python3
"""Draws the images of the pages from committed data: the transcripts of `make demo` and of `kubectl quorate top`, and the data in
docs/data.

    tests/docs/images.py            writes docs/images/*.svg
    tests/docs/images.py --check    fails if an image or a table differs from its data

It measures nothing and contains no figures. Each image is readable in the light and the dark theme, uses the
system's fonts, and shows its last frame where animations are disabled.
"""

import csv
import pathlib
import re
import sys
from xml.sax.saxutils import escape

import growth
from drawing import MONO, SANS, nice, path, svg, text

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "docs/data"
IMAGES = ROOT / "docs/images"

# --- the demo, as a terminal displays it

ROWS, LINE, WIDE, SIZE = 22, 17, 112, 11.5
HOLD = 6.0  # seconds for which the end is displayed


def shown(line):
    """A line of the transcript for the image: its kind, and its text cut to the width."""
    text = line if len(line) <= WIDE else line[: WIDE - 1] + "\u2026"
    kinds = [("== ", "bold"), ("ok: ", "good"), ("  ok ", "good"), ("! ", "bad"), ("  waits:", "dim")]
    rest = re.sub(r"^\s*[0-9.]+s  ", "", line)
    return next((kind for mark, kind in kinds if rest.startswith(mark)), ""), text


def demo(lines):
    """Every line at its own time; the only animation is the scrolling of the screen."""
    times, now = [], 0.0
    for line in lines:
        found = re.match(r"^\s*([0-9.]+)s  ", line)
        now = float(found.group(1)) if found else now + 0.1
        times.append(now)
    whole = times[-1] + HOLD
    steps, texts = [], []
    for index, (line, at) in enumerate(zip(lines, times)):
        kind, text = shown(line)
        of = f' class="{kind}"' if kind else ""
        texts.append(f'<text y="{index * LINE}"{of} xml:space="preserve">{escape(text)}</text>')
        if index + 1 == len(lines) or times[index + 1] > at:
            up = (ROWS - index - 1) * LINE
            steps.append(f"{100 * at / whole:.2f}%{{transform:translateY({up}px)}}")
    end = (ROWS - len(lines)) * LINE
    width, height = 820, ROWS * LINE + 54
    style = (
        f"#t{{transform:translateY({end}px);animation:t {whole:.1f}s step-end infinite}}"
        f"@keyframes t{{0%{{transform:translateY({ROWS * LINE}px)}}{''.join(steps)}100%{{transform:translateY({end}px)}}}}"
        "@media (prefers-reduced-motion:reduce){#t{animation:none}}"
    )
    body = (
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" class="bg sline"/>\n'
        f'<text x="16" y="21" font-size="12" class="dim">$ make demo</text>\n'
        f'<path d="M0 32.5H{width}" class="sline"/>\n'
        f'<clipPath id="c"><rect x="0" y="36" width="{width}" height="{20 + (ROWS - 1) * LINE}"/></clipPath>\n'
        f'<g clip-path="url(#c)"><g transform="translate(16 50)"><g id="t" class="fg" font-size="{SIZE}">\n'
        + "\n".join(texts)
        + "\n</g></g></g>\n"
    )
    title = "make demo: a cluster of three grows, loses its leader with its disk, heals, and has every member replaced while a client writes"
    return svg(width, height, title, MONO, body, style)


# --- one screen of a terminal

# What a program asks for with an SGR sequence: classes of the image.
SGR = {"1": "bold", "2": "dim", "31": "bad", "32": "good", "33": "two", "34": "one", "36": "one", "90": "dim", "91": "bad", "92": "good", "93": "two"}


def rows_of(lines):
    """Each line as its parts of one look: their column, their classes, whether they are inverted, and their text. A look holds until another
    sequence changes it, also in the next line."""
    looks, rows = [], []
    for line in lines:
        column, row = 0, []
        for found in re.finditer(r"\x1b\[([0-9;]*)m|\x1b[^m]*m?|([^\x1b]+)", line):
            codes, words = found.groups()
            if words:
                row.append((column, [SGR[look] for look in looks if look in SGR], "7" in looks, words))
                column += len(words)
            elif codes is None:
                sys.exit(f"docs/transcripts/top.txt: an escape sequence that is not known here: {found[0]!r}")
            else:
                looks = changed(looks, codes.split(";"))
        rows.append(row)
    return rows


def changed(looks, codes):
    """What is asked for after these codes."""
    gone = {"22": ("1", "2"), "27": ("7",), "39": tuple(code for code in SGR if len(code) > 1)}
    for code in codes:
        if code in ("38", "48"):
            sys.exit("docs/transcripts/top.txt: a colour that is not known here")
        if code in ("", "0"):
            looks = []
        elif code in gone:
            looks = [look for look in looks if look not in gone[code]]
        else:
            looks = [*looks, code]
    return looks


def screen(lines):
    """A captured screen: its first line is the command, the others are as `tmux capture-pane -e` writes them."""
    command, *captured = lines
    rows = rows_of(captured)
    wide = max(sum(len(words) for *_, words in row) for row in rows)
    advance = SIZE * 0.602  # of a monospaced font
    width, height = round(32 + wide * advance), len(rows) * LINE + 54
    body = (
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" class="bg sline"/>\n'
        f'<text x="16" y="21" font-size="12" class="dim">{escape(command)}</text>\n'
        f'<path d="M0 32.5H{width}" class="sline"/>\n'
    )
    for at, row in enumerate(rows):
        y = 50 + at * LINE
        for column, looks, inverted, words in row:
            if not words.strip() and not inverted:
                continue
            x, long = 16 + column * advance, len(words) * advance
            colours = [look for look in looks if look != "bold"] or ["fg"]
            kind = "bg" if inverted else colours[-1]
            if inverted:
                body += f'<rect x="{x:.1f}" y="{y - 13}" width="{long:.1f}" height="{LINE}" class="{colours[-1]}"/>\n'
            kind += " bold" if "bold" in looks else ""
            body += f'<text x="{x:.1f}" y="{y}" font-size="{SIZE}" textLength="{long:.1f}" xml:space="preserve" class="{kind}">{escape(words)}</text>\n'
    title = f"A terminal with {command.removeprefix('$ ')}: the members of a cluster, the steps in hand and its conditions"
    return svg(width, height, title, MONO, body)


# --- plots


def table(name):
    """The header of a data file, and its rows as dictionaries."""
    lines = (DATA / name).read_text().splitlines()
    about = [line[2:] for line in lines if line.startswith("# ")]
    return about, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def latency(title, data, events_of):
    """Median and longest of each interval, and the events of the members meanwhile."""
    about, rows = table(data)
    _, events = table(events_of)
    width, height, left, right, top, bottom = 820, 330, 52, 14, 74, 282
    end = float(rows[-1]["second"]) + 0.25
    most = max(float(row["longest_ms"]) for row in rows)
    step = nice(most)
    most = step * (int(most / step) + 1)
    at_x = lambda second: left + (width - left - right) * second / end
    at_y = lambda ms: bottom - (bottom - top) * ms / most
    body = f'<rect width="{width}" height="{height}" rx="8" class="bg"/>\n' + text(left, 22, title, "bold", size=14)
    body += text(left, 41, about[2], "dim")
    for x, colour, words, dashes in ((486, "one", "median", ""), (572, "two", "longest", ""), (660, "bad", "member replaced", "3 3")):
        body += f'<path d="M{x} 18h18" class="s{colour}" stroke-width="2" stroke-dasharray="{dashes or "none"}"/>\n' + text(x + 24, 22, words)
    for ms in range(0, most + 1, step):
        y = at_y(ms)
        body += f'<path d="M{left} {y:.1f}H{width - right}" class="sline"/>\n' + text(left - 6, y + 4, str(ms), "dim", "end")
    body += text(left - 6, top - 10, "ms", "dim", "end")
    for second in range(0, int(end) + 1, 5):
        body += text(at_x(second), bottom + 17, f"{second} s", "dim", "middle")
    for event in events:
        word, _, member = event["event"].partition(" ")
        x = at_x(float(event["second"]))
        if word == "removed":
            body += f'<path d="M{x:.1f} {top}V{bottom}" class="sbad" stroke-dasharray="3 3"/>\n'
            body += text(x, top - 5, member, "bad", "middle", 11)
    for column, colour, thick in (("longest_ms", "two", 1.6), ("median_ms", "one", 2)):
        points = [(at_x(float(row["second"]) + 0.125), at_y(float(row[column]))) for row in rows if row["writes"] != "0"]
        body += path(points, colour, thick)
    body += text(left, height - 12, about[0] + "; " + about[1].removeprefix("command: "), "dim", size=11)
    return svg(width, height, title, SANS, body)


COMPARED = ["put, 1 client", "put, 1000 clients", "get, 1 client", "get, 1000 clients"]


def beside_etcd():
    """Requests a second of both, with the ratio of each pair."""
    about, rows = table("beside-etcd.csv")
    rows = {row["figure"]: row for row in rows}
    title = "Requests a second, three members each"
    width, left, right, top, each = 820, 140, 170, 62, 52
    most = max(float(rows[name][who]) for name in COMPARED for who in ("quorate", "etcd"))
    height = top + each * len(COMPARED) + 34
    body = f'<rect width="{width}" height="{height}" rx="8" class="bg"/>\n' + text(16, 24, title, "bold", size=14)
    for index, (name, colour) in enumerate((("Quorate", "one"), ("etcd 3.7.3", "two"))):
        body += f'<rect x="{16 + index * 90}" y="37" width="12" height="12" class="{colour}"/>\n' + text(33 + index * 90, 47, name)
    for index, name in enumerate(COMPARED):
        row, y = rows[name], top + index * each
        body += text(left - 10, y + 24, name, "", "end")
        for at, (who, colour) in enumerate((("quorate", "one"), ("etcd", "two"))):
            long = (width - left - right) * float(row[who]) / most
            body += f'<rect x="{left}" y="{y + at * 19}" width="{long:.1f}" height="16" class="{colour}"/>\n'
            body += text(left + long + 6, y + at * 19 + 12.5, f"{int(row[who]):,}")
        body += text(width - 16, y + 24, f"{row['better']} x  \u00b1 {row['spread_percent']} %", "dim", "end")
    body += text(16, height - 12, about[0] + "; " + about[1].removeprefix("command: "), "dim", size=11)
    return svg(width, height, title, SANS, body)


def images():
    transcript = (ROOT / "docs/transcripts/demo.txt").read_text().splitlines()
    drains = "A hosted control plane while every node under its members is drained and replaced"
    return {
        "demo.svg": demo(transcript),
        "top.svg": screen((ROOT / "docs/transcripts/top.txt").read_text().splitlines()),
        "drains.svg": latency(drains, "drains.csv", "drains-events.csv"),
        "replacement.svg": latency("One writer while every member is replaced", "replacement.csv", "replacement-events.csv"),
        "beside-etcd.svg": beside_etcd(),
    } | {f"{file.stem}.svg": growth.plot(file.stem, *table(file.name)) for file in DATA.glob("growth-*.csv")}


def differing_table():
    """Whether the figures in docs/figures.md differ from docs/data/beside-etcd.csv."""
    _, rows = table("beside-etcd.csv")
    page = (ROOT / "docs/figures.md").read_text().replace(",", "")
    for row in rows:
        name = row["figure"].replace(",", "")
        cells = f"| {name} | {row['unit']} | {row['quorate']} | {row['etcd']} | {row['better']} x | \u00b1 {row['spread_percent']} % |"
        if cells not in page:
            return f"docs/figures.md has no row as docs/data/beside-etcd.csv has it: {cells}"
    return None


def main():
    check = sys.argv[1:] == ["--check"]
    wrong = []
    for name, made in images().items():
        file = IMAGES / name
        if check and (not file.exists() or file.read_text() != made):
            wrong.append(f"docs/images/{name} is not what its data make: run tests/docs/images.py")
        elif not check:
            IMAGES.mkdir(exist_ok=True)
            file.write_text(made)
    wrong += [words for words in [differing_table()] if words]
    if wrong:
        sys.exit("\n".join(wrong))


main()
