#!/usr/bin/env python3
"""Prints the commands of a block of a page, for whoever runs them.

    block.py PAGE FIRST [OLD NEW]...   the block of shell commands whose first line begins with FIRST
    block.py PAGE '*' [OLD NEW]...     all of them, one after the other

Each OLD is replaced by its NEW, as for names and addresses that only the reader knows. What is not there is an error: a page
that has changed is looked at again.
"""
import pathlib
import re
import sys

FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.S | re.M)


def blocks(page):
    """The blocks of shell commands of a page."""
    text = pathlib.Path(page).read_text(encoding="utf-8")
    found = [(block, indent) for indent, info, block in FENCE.findall(text) if info == "sh"]
    # A block in a list is indented as its fence is.
    return ["".join(line.removeprefix(indent) for line in block.splitlines(True)) for block, indent in found]


def main():
    if len(sys.argv) < 3 or len(sys.argv) % 2 == 0:
        sys.exit(__doc__)
    page, first, *pairs = sys.argv[1:]
    found = [block for block in blocks(page) if first == "*" or block.startswith(first)]
    if not found or (first != "*" and len(found) > 1):
        sys.exit(f"block.py: {page} has {len(found)} blocks that begin with {first!r}")
    text = "".join(found)
    for old, new in zip(pairs[::2], pairs[1::2]):
        if old not in text:
            sys.exit(f"block.py: no {old!r} in that block of {page}:\n{text}")
        text = text.replace(old, new)
    print(text, end="")


main()
