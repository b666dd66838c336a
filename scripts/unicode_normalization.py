#!/usr/bin/env python3
"""Writes trireme/data/normalization_newer.inc: characters that normal forms move or change and that are newer than
Unicode 9.0, which is what PyPI's tokenizers knows.

    .venv/bin/python scripts/unicode_normalization.py /usr/share/unicode/DerivedAge.txt trireme/data/normalization_newer.inc

The ages are Debian's (unicode-data, 15.0; what is not in it is newer), the properties unicodedata2's (16.0).
"""
import sys

import unicodedata2

ages = {}
for line in open(sys.argv[1], encoding="utf-8"):
    points, _, age = line.split("#")[0].partition(";")
    if age:
        first, _, last = points.strip().partition("..")
        for point in range(int(first, 16), int(last or first, 16) + 1):
            ages[point] = float(age)
runs = []
for point in range(0x110000):
    moves = unicodedata2.combining(chr(point)) or unicodedata2.decomposition(chr(point))
    if not moves or ages.get(point, 16.0) <= 9.0 or 0xD800 <= point < 0xE000:
        continue
    if runs and runs[-1][1] == point - 1:
        runs[-1][1] = point
    else:
        runs.append([point, point])
with open(sys.argv[2], "w", encoding="ascii") as out:
    out.write("// Characters of Unicode 10.0 to 16.0 with a combining class or a decomposition, first to last.\n")
    out.write("// Written by scripts/unicode_normalization.py; do not edit.\n")
    for i in range(0, len(runs), 6):
        out.write(" ".join(f"{{0x{a:X}, 0x{b:X}}}," for a, b in runs[i:i + 6]) + "\n")
