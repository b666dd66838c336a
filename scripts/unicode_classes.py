#!/usr/bin/env python3
"""Writes trireme/data/unicode_classes.inc: the general category of every code point, from PyPI's unicodedata2.

    .venv/bin/python -m pip install unicodedata2==16.0.0
    .venv/bin/python scripts/unicode_classes.py trireme/data/unicode_classes.inc

Unicode 16.0 is what the engines of PyPI's tokenizers and tiktoken know; Debian 12 has 15.0 (unicode-data) and
14.0 (PCRE2).
"""
import sys

import unicodedata2


def main() -> None:
    runs, last = [], None
    for point in range(0x110000):
        category = unicodedata2.category(chr(point))
        if category != last:
            runs.append((point, category))
            last = category
    lines, line = [], ""
    for start, category in runs:
        item = f"{{0x{start:X}, {category}}},"
        if len(line) + len(item) + 1 > 118:
            lines.append(line)
            line = ""
        line += (" " if line else "") + item
    lines.append(line)
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write(f"// The first code point of each run of one general category; Unicode {unicodedata2.unidata_version}.\n")
        out.write("// Written by scripts/unicode_classes.py; do not edit.\n")
        out.write("\n".join(lines) + "\n")


main()
