"""What the images have in common: colours of the light and the dark theme, fonts, text and lines. Knows no figure."""

from xml.sax.saxutils import escape

# Name, colour in the light theme, in the dark one.
COLOURS = [
    ("bg", "#ffffff", "#0d1117"),
    ("fg", "#1f2328", "#e6edf3"),
    ("dim", "#656d76", "#8b949e"),
    ("line", "#d0d7de", "#30363d"),
    ("one", "#0969da", "#58a6ff"),
    ("two", "#9a6700", "#d29922"),
    ("good", "#1a7f37", "#3fb950"),
    ("bad", "#bc4c00", "#f0883e"),
]


def theme(at):
    """CSS rules for the fill and the stroke of each colour."""
    return "".join(f".{colour[0]}{{fill:{colour[at]}}}.s{colour[0]}{{stroke:{colour[at]}}}" for colour in COLOURS)


THEME = f"{theme(1)}.bold{{font-weight:600}}@media(prefers-color-scheme:dark){{{theme(2)}}}"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
SANS = "-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif"


def svg(width, height, title, font, body, style=""):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}" font-family="{font}">\n'
        f"<title>{escape(title)}</title>\n<style>{THEME}{style}</style>\n{body}</svg>\n"
    )


def nice(top):
    """A step for a scale up to this value, of which three to six fit."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if top / (step * factor) <= 6:
                return step * factor
        step *= 10


def text(x, y, words, kind="", anchor="start", size=12):
    kind = kind if kind in ("dim", "bad", "good") else f"fg {kind}".strip()
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>\n'


def path(points, colour, width):
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{line}" fill="none" class="s{colour}" stroke-width="{width}" stroke-linejoin="round"/>\n'
