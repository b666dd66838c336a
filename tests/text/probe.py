"""What tokenizer_probe answers: ids and decoded bytes of texts."""

import struct
import subprocess
import sys
from pathlib import Path

PARSE, ADD, SKIP, BYTES, STREAM = 1, 2, 4, 8, 16


def ask(probe: str, path: Path, requests: list) -> list:
    """(ids, bytes) for each (flags, bytes)."""
    sent = b"".join(struct.pack("<II", flags, len(text)) + text for flags, text in requests)
    done = subprocess.run([probe, str(path)], input=sent, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr.decode()}")
    answers, at, out = [], 0, done.stdout
    for _ in requests:
        [count] = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{count}i", out, at + 4))
        at += 4 + 4 * count
        [size] = struct.unpack_from("<I", out, at)
        answers.append((ids, out[at + 4:at + 4 + size]))
        at += 4 + size
    return answers
