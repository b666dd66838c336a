#!/usr/bin/env python3
"""Writes trireme/text/unicode_newer.inc and lower_case_newer.inc: what PyPI's tokenizers knows of other Unicode versions
than unicode_classes.inc's.

    .venv/bin/python -m pip install unicodedata2==17.0.0
    .venv/bin/python scripts/unicode_history.py /usr/share/unicode/DerivedAge.txt trireme/text

The ages are Debian's (unicode-data, 15.0; what is not in it is newer), the cases and properties unicodedata2's (17.0).
"""

import pathlib
import sys

import unicodedata2

def ages(path: str) -> dict:
    found = {}
    for line in open(path, encoding="utf-8"):
        points, _, age = line.split("#")[0].partition(";")
        if age:
            first, _, last = points.strip().partition("..")
            for point in range(int(first, 16), int(last or first, 16) + 1):
                found[point] = float(age)
    return found


def runs(value_of) -> list:
    """[first, last, value] of neighbours with the same value that is not None; unassigned points between do not count."""
    out, last = [], None
    for point in range(0x110000):
        if unicodedata2.category(chr(point)) == "Cn":
            continue
        value = value_of(point)
        if value is not None and value == last:
            out[-1][1] = point
        elif value is not None:
            out.append([point, point, value])
        last = value
    return out


def lower(point: int):
    """The small letter of the same name."""
    name = unicodedata2.name(chr(point), "")
    return ord(unicodedata2.lookup(name.replace("CAPITAL", "SMALL"))) if unicodedata2.category(chr(point)) == "Lu" else None


def write(path: pathlib.Path, heading: str, items: list, a_line: int) -> None:
    lines = [" ".join(items[i:i + a_line]) for i in range(0, len(items), a_line)]
    path.write_text("".join(f"// {line}\n" for line in heading.splitlines()) + "\n".join(lines) + "\n", encoding="ascii")


def main() -> None:
    age_of, folder = ages(sys.argv[1]), pathlib.Path(sys.argv[2])
    by = "Written by scripts/unicode_history.py; do not edit."

    def newer(point: int):
        if unicodedata2.category(chr(point)) == "Cs":
            return None
        age = age_of.get(point, 99)
        return None if age <= 8.0 else "kIn9" if age <= 9.0 else "kLater"

    write(folder / "unicode_newer.inc", f"Code points that Unicode 9.0 added, and those that came later, first to last; "
          f"unassigned ones may lie between.\n{by}",
          [f"{{0x{a:X}, 0x{b:X}, {value}}}," for a, b, value in runs(newer)], 5)
    pairs = [(p, lower(p)) for p in range(0x110000) if p not in age_of and not 0xD800 <= p < 0xE000]
    write(folder / "lower_case_newer.inc",
          f"Lower case of the characters that came after Unicode 15.0; Unicode {unicodedata2.unidata_version}.\n{by}",
          [f"{{0x{p:X}, 0x{low:X}}}," for p, low in pairs if low is not None], 6)


main()
