"""A folder whose matrices have the values that their codes stand for, and what the program says of a folder."""

import json

import ring

safetensors, = ring.judges("safetensors.torch")


def folder_of_values(base, folder, values_of, taken=".layers."):
    """A copy of the folder `base`, with values_of(matrix) in place of every matrix of a block, or of those whose names have `taken` in them."""
    folder.mkdir()
    for file in base.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = safetensors.load_file(base / "model.safetensors")
    for name, matrix in weights.items():
        if taken in name and matrix.dim() == 2:
            weights[name] = values_of(matrix)
    safetensors.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def said(r, *words):
    result = r.run([r.program, *map(str, words)])
    ring.require(result.code == 0, " ".join(map(str, words)), str(result))
    return result.out


def evaluated(r, folder, *more):
    """The mean loss."""
    out = r.folder / "result.json"
    said(r, "evaluate", folder, "--text", r.text, "--limit", 4, "--max_seq_length", 64, "--json", out, "--devices", 1, *more)
    return json.loads(out.read_text())["perplexity"]["loss"]


def tune(r, base, out, **settings):
    values = {"devices": 1, "precision": "32-true", "out_dir": r.folder / out, "data": "TextFiles", "data.train_data_path": r.text, "data.packing": "wrapped",
              "data.reset_attention_mask": "false", "data.reset_position_ids": "false",
              "train.max_seq_length": 32, "train.global_batch_size": 4, "train.max_steps": 4, "lora.target_modules": "all-linear", "lora.dropout": 0.1,
              "optimizer.lr": 1e-2, "eval.final_validation": "false", "launch.threads_per_rank": 1, "comm.timeout": "60s"}
    values |= {key.replace("__", "."): value for key, value in settings.items()}
    return [r.program, "finetune_lora", str(base)] + [word for key, value in values.items() for word in (f"--{key}", str(value))]


def losses(r, base, out, **settings):
    result = r.run(tune(r, base, out, **settings))
    ring.require(result.code == 0, f"the run {out}", str(result))
    return [line["loss"] for line in ring.metrics(r.folder / out).values() if "loss" in line]


def refused(r, what, command, *words):
    result = r.run(list(map(str, command)))
    missing = [word for word in words if word not in result.err]
    ring.check(result.code == 2 and not missing and len(result.err.strip().splitlines()) <= 3, f"refused: {what}\n        {result.err.strip()}",
               f"lacks {missing}\n{result}")
