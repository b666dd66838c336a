"""A folder whose matrices have the values that their codes stand for, and what the program says of a folder."""

import json

import ring

safetensors, = ring.judges("safetensors.torch")


def folder_of_values(base, folder, values_of):
    """A copy of the folder `base`, with values_of(matrix) in place of every matrix of a block."""
    folder.mkdir()
    for file in base.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = safetensors.load_file(base / "model.safetensors")
    for name, matrix in weights.items():
        if ".layers." in name and matrix.dim() == 2:
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
