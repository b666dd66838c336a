#!/usr/bin/env python3
"""Writes trireme/text/unicode_classes.inc: the general category of every code point, from PyPI's unicodedata2.

    .venv/bin/python -m pip install unicodedata2==16.0.0
    .venv/bin/python scripts/unicode_classes.py trireme/text/unicode_classes.inc

Unicode 16.0 is what the engines of PyPI's tokenizers and tiktoken know; Debian 12 has 15.0 (unicode-data) and
14.0 (PCRE2).
"""
import sys

import unicodedata2


def runs_of(categories: list) -> list:
    """[category, length] of neighbours in one category; LuLl where capital and small letters alternate, from a capital on."""
    runs, at = [], 0
    while at < len(categories):
        end = at + 1
        while categories[end:end + 1] == categories[at:at + 1]:
            end += 1
        pairs = at
        while categories[pairs:pairs + 2] == ["Lu", "Ll"]:
            pairs += 2
        runs.append([categories[at], end - at] if pairs <= end + 1 else ["LuLl", pairs - at])
        at += runs[-1][1]
    return runs


def main() -> None:
    lines = [""]
    for category, length in runs_of([unicodedata2.category(chr(point)) for point in range(0x110000)]):
        item = f"{{{category}, {length}}},"
        if len(lines[-1]) + len(item) + 1 > 118:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + item
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write(f"// Runs of code points of one general category, from U+0000 on, and their lengths; Unicode {unicodedata2.unidata_version}.\n")
        out.write("// Written by scripts/unicode_classes.py; do not edit.\n")
        out.write("\n".join(lines) + "\n")


main()
