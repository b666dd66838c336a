"""What the judges of dialects share: where other systems' readers lie, what ours reads, and whether two values are the same.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/train"))
sys.path.append(str(ROOT / ".cache/config-judges"))  # scripts/setup --judges
import ring

COUNT = 200 if ring.SLOW else 15


def what_we_read(r, *words):
    """Settings by name, as `trireme explain config` prints them; or what it says instead."""
    result = r.run([r.program, "explain", "config", *words])
    if result.code != 0:
        ring.require(result.code == 2, f"{words} is read, or refused", str(result))
        return result.err
    found = {}
    for line in result.out.splitlines():  # lines before the settings begin with a place in a file
        row = line.split()
        if len(row) > 1:
            found.setdefault(row[0], row[1])
    return found


def same(ours, theirs):
    if isinstance(theirs, bool):
        return ours == str(theirs).lower()
    if isinstance(theirs, (int, float)):
        return re.fullmatch(r"[-+.,e\d]+", ours) and float(ours.replace(",", "")) == theirs
    return ours == theirs


def compare(ours, theirs, path, on=""):
    """The number of values that are compared."""
    for key, value in theirs.items():
        ring.require(key in ours and same(ours[key], value), f"{key} of {path.name}{on} is {value} there, {ours.get(key)} here", path.read_text())
    return len(theirs)


def known_keys(dialect):
    """Keys of the dialect's table in docs/dialects.md; of a row `map.*`, "map."."""
    section = (ROOT / "docs/dialects.md").read_text().split(f": `{dialect}`\n")[1].split("\n## ")[0]
    return {key.removesuffix("*") for key in re.findall(r"^\| `([^`]+)` \|", section, re.M)}


def require_all_known(dialect, keys, more=()):
    known = known_keys(dialect) | set(more)
    maps = tuple(key for key in known if key.endswith("."))
    missing = [key for key in keys if key not in known and not key.startswith(maps) and not any(one.startswith(key + ".") for one in known)]
    ring.check(not missing, f"docs/dialects.md has all {len(keys)} keys of {dialect}'s own reader", str(missing))
