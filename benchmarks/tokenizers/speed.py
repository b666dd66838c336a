"""Encoding speed on one core beside PyPI's tokenizers (and tiktoken, sentencepiece), in turn in one run.

speed.py PROBE [NAME...]
PROBE is build/<preset>/tests/text/tokenizer_probe; the text is the first 1.5 MB of data/austen.txt in pieces of 100 lines.
Each side encodes it three times on one thread and the fastest counts, in processor time; ids are compared first. The target
is 1.5 times the judge's speed. About 90 s for all vocabularies.
"""

import importlib
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/data"))
import vocabularies  # noqa: E402

BYTES = 1_500_000


def judge_of(judge: str, name: str, path: Path):
    if judge == "tokenizers":
        tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
        tokenizer.no_truncation(), tokenizer.no_padding()
        return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    if judge == "tiktoken":
        return vocabularies.tiktoken_judge(name).encode_ordinary
    return importlib.import_module("sentencepiece").SentencePieceProcessor(model_file=str(path)).encode


def main() -> None:
    probe, names = sys.argv[1], sys.argv[2:]
    lines = (ROOT / "data/austen.txt").read_text(encoding="utf-8")[:BYTES].splitlines(keepends=True)
    texts = ["".join(lines[i:i + 100]) for i in range(0, len(lines), 100)]
    size = sum(len(t.encode()) for t in texts)
    requests = b"".join(struct.pack("<II", 1, len(t.encode())) + t.encode() for t in texts)
    with tempfile.TemporaryDirectory() as folder:
        for name, judge, make in vocabularies.all_of_them():
            if names and name not in names:
                continue
            try:
                path = make(Path(folder) / name)
                encode = judge_of(judge, name, path)
            except (vocabularies.Missing, ModuleNotFoundError) as missing:
                print(f"skip {name}: {missing}")
                continue
            expected = sum(len(encode(t)) for t in texts)
            done = subprocess.run([probe, str(path), "--time"], input=requests, capture_output=True, check=True)
            ours, ids = float(done.stdout), int(done.stderr.split()[0])
            if ids != expected:
                sys.exit(f"{name}: {ids} ids, {judge} has {expected}")
            theirs = float("inf")
            for _ in range(3):
                begin = time.process_time()
                for text in texts:
                    encode(text)
                theirs = min(theirs, time.process_time() - begin)
            print(f"{name:12} {size / ours / 1e6:7.1f} MB/s   {judge:13} {size / theirs / 1e6:7.1f} MB/s   "
                  f"ratio {theirs / ours:5.1f}", flush=True)


main()
