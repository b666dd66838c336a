"""The program refuses broken files of other systems with exit code 2 and file:line, in less than a second of work.

broken.py TRIREME
Each file is one of the corpus, broken in one drawn place: a wrong value, a misspelt key, a lost colon, a lost end. Files
that are still right do not count. TRIREME_SLOW=1 draws until 300 are refused; broken_test.cpp tries every place.
"""

import pathlib
import random
import re
import sys

import judging
import ring

CORPUS = pathlib.Path(__file__).with_name("corpus")
REFUSED = 300 if ring.SLOW else 20
WRONG = ["maybe", "-1", "1e400", "[1, 2]", '{"x": 1}', "0.5", "99999999999999999999"]
SECONDS = 1.0


def break_one(draw, text):
    at = draw.choice([place.start() for place in re.finditer(":", text)])
    end = min(found for mark in ",}\n" if (found := text.find(mark, at)) >= 0 or (found := len(text)))
    letter = max((place for place in range(at) if text[place].isalpha()), default=0)
    return draw.choice([text[:at + 1] + " " + draw.choice(WRONG) + text[end:], text[:letter] + text[letter] + text[letter:],
                        text[:at] + text[at + 1:], text[:at]])


with ring.Ring(sys.argv[1]) as r:
    files = sorted(path for path in CORPUS.glob("*/*") if path.suffix in (".json", ".yaml") and not path.with_name(path.name + ".refused").exists())
    draw, refused, tried, placed, longest = random.Random(300), 0, 0, 0, 0.0
    while refused < REFUSED:
        tried += 1
        source = draw.choice(files)
        path = r.folder / f"broken{tried}{source.suffix}"
        path.write_text(break_one(draw, source.read_text()))
        result = r.run([r.program, "explain", "config", "--config", str(path), "--devices", "2"])
        ring.require(result.code in (0, 2) and tried < 10 * REFUSED, f"{path.name} is right or refused", f"{path.read_text()}{result}")
        if result.code == 0:
            continue
        refused += 1
        longest = max(longest, result.cpu_seconds)
        ring.require(result.err.startswith("error: ") and len(result.err) < 16384, "by a sentence", f"{path.read_text()}{result}")
        placed += bool(re.search(re.escape(str(path)) + r":\d+", result.err))
    # What several lines ask for together, such as a mesh that does not fit, has no line.
    ring.check(placed >= 0.9 * refused, f"{refused} broken files of {tried} are refused with exit code 2, {placed} of them with file:line")
    ring.check(longest < SECONDS or r.sanitized, f"each with at most {longest:.2f} s of work")
