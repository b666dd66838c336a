"""A folder of somebody else's whose JSON nests without end is refused by every command that reads it: no command dies.

deep_json.py TRIREME
"""

import json
import pathlib
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))

import ring

LEVELS = 300_000
DEEP = "[" * LEVELS + "]" * LEVELS
SIDE_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors.index.json", "manifest.json")


def make_foreign(folder):
    """As others' programs leave it: without checksums, which would tell first."""
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()


def spoil(folder, name):
    """The file with one more key, whose value nests."""
    path = folder / name
    content = (json.loads(path.read_text()) if path.exists() else {}) | {"hidden_act": "DEEP"}
    path.write_text(json.dumps(content).replace('"DEEP"', DEEP))


def spoil_header(folder):
    """The header of the tensors likewise."""
    file = next(folder.glob("*.safetensors"))
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8:8 + size].rstrip()[:-1] + b',"__metadata__": ' + DEEP.encode() + b"}"
    file.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + size:])


def commands(r, folder):
    text = ["--data", "TextFiles", "--data.train_data_path", str(r.text), "--train.max_steps", "1"]
    return {"generate": [folder, "--max_new_tokens", "2"], "evaluate": [folder, "--text", r.text, "--limit", "1"],
            "convert": [folder, r.folder / "made"], "checkpoint verify": [folder],
            "pretrain": [folder, *text, "--out_dir", r.folder / "new"]}


def try_all(r, folder, what):
    for name, words in commands(r, folder).items():
        for made in ("made", "new"):
            shutil.rmtree(r.folder / made, ignore_errors=True)
        result = r.run([r.program, *name.split(), *map(str, words)])
        # A file that a command does not read may hold anything; none ends the process by a signal.
        ring.require(result.code in (0, 1, 2), f"{name}: {what} that nests {LEVELS:,} levels ends no process", str(result)[:2000])
        if what in ("config.json", "the tensors' header") and (name != "checkpoint verify" or what != "config.json"):  # it has no checksums here
            ring.require(result.code != 0, f"{name}: {what} that nests is refused", str(result)[:2000])
    print(f"ok      {what} that nests is survived by {', '.join(commands(r, folder))}")


with ring.Ring(sys.argv[1]) as r:
    out = r.train("good", train__max_steps=1)
    good = out / ring.step_folders(out)[-1]
    for name in SIDE_FILES:
        folder = r.folder / "spoilt"
        shutil.copytree(good, folder)
        if name != "manifest.json":
            make_foreign(folder)
        spoil(folder, name)
        try_all(r, folder, name)
        shutil.rmtree(folder)
    folder = r.folder / "spoilt"
    shutil.copytree(good, folder)
    make_foreign(folder)
    spoil_header(folder)
    try_all(r, folder, "the tensors' header")
    tokens = r.folder / "tokens"
    tokens.mkdir()
    (tokens / "index.json").write_text(f'{{"chunks": {DEEP}, "config": {DEEP}}}')
    result = r.run([r.program, "data", "stats", str(tokens)])
    ring.check(result.code == 2 and "index.json" in result.text, "litdata's index.json that nests is refused by name", str(result)[:2000])
