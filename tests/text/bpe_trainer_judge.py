"""The trainer learns the merges of PyPI's tokenizers on the Austen corpus, ties included, and its file loads there.

bpe_trainer_judge.py PROBE TRIREME
Vocabularies of 2,000 and 8,000 tokens (30,000 too with TRIREME_SLOW=1), cut as GPT-2 and as Llama 3 do; then the whole
tokenizer.json is compared, and the ids that both sides encode with it. Prints both sides' seconds. Last comes the command,
with JSONL and what it refuses.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import vocabularies
from probe import PARSE, ask

AUSTEN = vocabularies.ROOT / "data/austen.txt"
PATTERNS = {"gpt2": None, "llama3": vocabularies.R_LLAMA3, "qwen2": vocabularies.R_QWEN}


def judge_of(pattern: str):
    tokenizers = importlib.import_module("tokenizers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    judge = tokenizers.Tokenizer(tokenizers.models.BPE())
    judge.decoder = tokenizers.decoders.ByteLevel()
    judge.pre_tokenizer = byte_level(add_prefix_space=False)
    if PATTERNS[pattern]:
        judge.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[pattern]), "isolated"),
            byte_level(add_prefix_space=False, use_regex=False)])
    return judge, tokenizers.trainers.BpeTrainer, byte_level.alphabet()


def compare(probe: str, text: str, size: int, pattern: str, folder: Path) -> None:
    judge, trainer, alphabet = judge_of(pattern)
    begin = time.perf_counter()
    judge.train_from_iterator([text], trainer(
        vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet,
        show_progress=False))
    theirs = time.perf_counter() - begin
    done = subprocess.run([probe, str(AUSTEN), "--train", str(size), pattern, str(folder)], capture_output=True, check=True)
    expected, found = json.loads(judge.to_str()), json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    merges = list(zip(found["model"]["merges"], expected["model"]["merges"]))
    for rank, (ours, wanted) in enumerate(merges):
        if ours != wanted:
            sys.exit(f"{pattern} {size}: merge {rank} is {ours}, tokenizers has {wanted}")
    for key in expected.keys() | found.keys():
        if expected.get(key) != found.get(key):
            sys.exit(f"{pattern} {size}: {key} is {str(found.get(key))[:300]}, tokenizers has {str(expected.get(key))[:300]}")
    loaded = importlib.import_module("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    sample = text[:200000] + "<|endoftext|>"
    if loaded.encode(sample).ids != ask(probe, folder, [(PARSE, sample.encode())])[0][0]:
        sys.exit(f"{pattern} {size}: the two sides encode otherwise with the trained tokenizer")
    print(f"ok   {pattern} {size}: {len(merges)} merges equal, {float(done.stdout):.2f} s beside {theirs:.2f} s", flush=True)


def command(trireme: str, text: str, folder: Path) -> None:
    """trireme data train_tokenizer on a folder of plain text and JSONL, against the judge on the same documents."""
    paragraphs, out = text[:300000].split("\n\n"), folder / "out"
    (folder / "texts").mkdir()
    (folder / "texts/a.txt").write_text(paragraphs[0], encoding="utf-8")
    lines = [json.dumps({"text": p, "id": i}) + "\n" for i, p in enumerate(paragraphs[1:])]
    (folder / "texts/b.jsonl").write_text("".join(lines), encoding="utf-8")
    judge, trainer, alphabet = judge_of("gpt2")
    judge.train_from_iterator(paragraphs, trainer(vocab_size=1000, min_frequency=3, special_tokens=["<s>", "</s>"],
                                                  initial_alphabet=alphabet, show_progress=False))
    run = [trireme, "data", "train_tokenizer", str(folder / "texts"), "--output", str(out), "--vocab_size", "1000"]
    full = [*run, "--min_frequency", "3", "--special_tokens", "[<s>, </s>]"]
    subprocess.run(full, capture_output=True, check=True)
    if json.loads((out / "tokenizer.json").read_text(encoding="utf-8")) != json.loads(judge.to_str()):
        sys.exit("the command's tokenizer.json is not that of tokenizers")
    for arguments, expected in ((full, "already exists"), ([*full, "--overwrite", "--special_tokens", "[<s>, <s>]"],
                                                             "named twice"), (run[:4], "needs --output"),
                                ([*run, "--vocab_size", "9"], "at least 256"), ([*run[:3], *run[4:]], "needs files")):
        refused = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if refused.returncode != 2 or expected not in refused.stderr:
            sys.exit(f"{arguments}: {refused.returncode}, {refused.stderr}, not '{expected}'")
    print("ok   trireme data train_tokenizer")


def main() -> None:
    try:
        importlib.import_module("tokenizers")
    except ModuleNotFoundError as missing:
        print(f"skip: {missing}; scripts/setup --judges installs it")
        sys.exit(77)
    text = AUSTEN.read_bytes().decode()
    slow = os.environ.get("TRIREME_SLOW") == "1"
    with tempfile.TemporaryDirectory() as folder:
        for pattern, size in [("gpt2", 2000), ("llama3", 8000)] + [
                (p, s) for p in PATTERNS for s in (2000, 8000, 30000) if slow]:
            compare(sys.argv[1], text, size, pattern, Path(folder))
        command(sys.argv[2], text, Path(folder))


main()
