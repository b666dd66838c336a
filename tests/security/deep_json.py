"""A folder of somebody else's whose JSON or YAML nests without end is refused by every command that reads it: no command dies.

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


def refused(r, what, name, *commands):
    """Each command refuses the file in a sentence that names it."""
    for words in commands:
        result = r.run([r.program, *map(str, words)])
        ring.require(result.code == 2 and name in result.text, f"{words[0]}: {what} that nests is refused by name", str(result)[:2000])
    print(f"ok      {what} that nests is refused by {', '.join(str(words[0]) for words in commands)}")


def an_adapter(r, good):
    folder = r.folder / "adapter"
    folder.mkdir()
    shutil.copy(good / "model.safetensors", folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(f'{{"peft_type": "LORA", "r": 4, "target_modules": {DEEP}}}')
    refused(r, "adapter_config.json", "adapter_config.json", ["generate", good, "--adapter", folder], ["convert", folder, r.folder / "made"],
            ["evaluate", good, "--adapter", folder, "--text", r.text], ["merge_lora", folder])


def litgpt_files(r, good):
    """YAML, whose parser counts levels itself: in brackets, in braces and in dashes, as long as the file may be and shorter."""
    folder = r.folder / "lit"
    ring.require(r.run([r.program, "convert", str(good), str(folder), "--to", "litgpt"]).code == 0, "a folder of LitGPT's is written")
    for name, weights in (("model_config.yaml", "lit_model.pth"), ("hyperparameters.yaml", "lit_model.pth.lora")):
        for way in ("[", "{a: ", "- "):
            for levels in (1000, 30_000):
                foreign = r.folder / "foreign"
                shutil.copytree(folder, foreign)
                (foreign / "lit_model.pth").rename(foreign / weights)
                (foreign / name).write_text("lora_r: " * (way != "- ") + way * levels + "x" + {"[": "]", "{a: ": "}", "- ": ""}[way] * levels + "\n")
                result = r.run([r.program, "convert", str(foreign), str(r.folder / "made")])
                ring.require(result.code == 2 and name in result.text, f"{name} that nests '{way}' {levels} times is refused by name", str(result)[:2000])
                shutil.rmtree(foreign)
        print(f"ok      {name} that nests is refused by name")


def conversations(r, good):
    for key in ("messages", "instruction", "text"):
        path = r.folder / f"{key}.jsonl"
        path.write_text(f'{{"{key}": {DEEP}}}\n')
        refused(r, f"a record's {key}", path.name, ["finetune_full", good, "--data", "JSON", "--data.train_data_path", path, "--train.max_steps", "1",
                                                    "--data.chat_template", "alpaca", "--out_dir", r.folder / "new"])


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
    an_adapter(r, good)
    litgpt_files(r, good)
    conversations(r, good)
