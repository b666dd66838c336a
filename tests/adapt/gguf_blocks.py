"""Models in GGUF's blocks of 8 and 4 bits (--quantize q8_0, q4_0): what evaluates, writes and learns from them is what their values give.

gguf_blocks.py TRIREME
A second folder has, in the matrices of all blocks, the values that the blocks stand for, made here by the formula alone. The program on the
first folder with --quantize, and on a folder that convert made of it, must do what it does on the second: on one rank and on several.
"""

import json
import math
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import ring
import tiny_models
from folders_of_values import evaluated, folder_of_values, losses, refused, said, tune

torch, safetensors = ring.judges("torch", "safetensors.torch")

tiny_models.MODELS["whole blocks"] = ("llama", tiny_models.WIDE_HEADS | {"hidden_size": 64, "intermediate_size": 192})
tiny_models.MODELS["tied"] = ("llama", tiny_models.MODELS["whole blocks"][1] | {"tie_word_embeddings": True})
BITS = {"q8_0": 8, "q4_0": 4}


def values_of(matrix, name):
    """A scale in float16 for 32 values: of the largest magnitude over 127, or of that element over -8."""
    blocks = matrix.float().reshape(-1, 32)
    largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    scale = largest.abs() / 127 if name == "q8_0" else largest / -8
    inverse = torch.where(scale == 0, 0.0, 1 / scale)
    scaled = blocks * inverse
    codes = scaled.sign() * (scaled.abs() + 0.5).floor() if name == "q8_0" else (scaled + 8.5).trunc().clamp(max=15) - 8
    return (codes * scale.half().float()).view(matrix.shape)


def many(r, folder, *more):
    out = r.folder / "texts.jsonl"
    said(r, "generate", folder, "--prompts", r.folder / "prompts.jsonl", "--output", out, "--max_new_tokens", 12, "--temperature", 0, *more)
    texts = [json.loads(line)["text"] for line in out.read_bytes().splitlines()]
    for file in r.folder.glob("texts.jsonl*"):
        file.unlink()
    return texts


def row_of(report, name):
    """The MiB of a row of explain memory."""
    [line] = [line for line in report.splitlines() if line.startswith(name)]
    return float(line[len(name):].split()[0])


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    base = r.folder / "base"
    tiny_models.make("whole blocks", base)
    (base / "tokenizer.json").write_text(tiny_models.tokenizer_json(263, ()))
    tied = r.folder / "tied"
    tiny_models.make("tied", tied)
    (tied / "tokenizer.json").write_text(tiny_models.tokenizer_json(263, ()))
    (r.folder / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in ("the sea", "a", "It is a truth", "the wind and the rain")))
    # Panels have 64 rows of a matrix, so those of fewer are filled up; 256 bytes follow.
    shapes = [m.shape for key, m in safetensors.load_file(base / "model.safetensors").items() if ".layers." in key and m.dim() == 2]
    for name, bits in BITS.items():
        values, stored, quantize = folder_of_values(base, r.folder / f"values-{name}", lambda matrix: values_of(matrix, name)), r.folder / f"stored-{name}", ("--quantize", name)
        notes = r.run([r.program, "convert", str(base), str(stored), "--dtype", name])
        ring.check(notes.code == 0 and f"28 matrices are quantized to {name}" in notes.text, f"{name}: convert writes a folder", str(notes))
        kept = {key: tensor for key, tensor in safetensors.load_file(stored / "model.safetensors").items() if tensor.dtype == torch.uint8}
        ring.check(len(kept) == 28 and sum(tensor.numel() for tensor in kept.values()) * 8 == sum(map(math.prod, shapes)) * (bits + 0.5), f"{name}: whose matrices take {bits + 0.5} bits an element")
        wanted = evaluated(r, values)
        ring.check(evaluated(r, base, *quantize) == wanted and evaluated(r, stored) == wanted != evaluated(r, base), f"{name}: evaluate has the bits of the values")
        texts = many(r, values)
        for what, words in {"one rank": (), "one text at a time": ("--batch_size", 1), "shard_grad_op on 2": ("--devices", 2), "full_shard on 2": ("--devices", 2, "--strategy", "full_shard"),
                            "pp 2": ("--devices", 2, "--mesh.pp", 2), "tp 2": ("--devices", 2, "--mesh.tp", 2)}.items():
            ring.check(many(r, base, *quantize, *words) == texts == many(r, stored, *words), f"{name}: generate on {what} writes what the values write")
        for what, model, matrix in (("a head", base, "lm_head"), ("a tied head", tied, "embed_tokens")):
            head = folder_of_values(model, r.folder / f"{what} {name}", lambda m: values_of(m, name), taken=matrix)
            in_blocks, wide = ("--quantize_head", name), many(r, head)
            ring.check(all(many(r, model, *in_blocks, *words) == wide for words in ((), ("--devices", 2, "--strategy", "full_shard"), ("--devices", 2, "--mesh.tp", 2))) and
                       evaluated(r, model, *in_blocks) == evaluated(r, head) != evaluated(r, model), f"{name}: {what} in blocks writes and judges what its values do")
        ring.check(evaluated(r, stored, "--quantize_head", name) == evaluated(r, folder_of_values(values, r.folder / f"all-{name}", lambda m: values_of(m, name), taken="lm_head")),
                   f"{name}: beside a folder's blocks, too")
        refused(r, f"training with a head in {name}", tune(r, base, "x", quantize_head=name), f"quantize_head {name}", "leave quantize_head out")
        one = losses(r, base, f"one-{name}", quantize=name)
        ring.check(one == losses(r, values, f"of-values-{name}"), f"{name}: adapters beside it learn with the bits of the values", str(one))
        ring.check(one == losses(r, stored, f"two-{name}", devices=2, strategy="full_shard"), f"{name}: and on two ranks, from the folder in blocks")
        ring.check(f"beside the {bits} bits of" in r.run([r.program, "evaluate", str(r.folder / f"one-{name}"), "--text", str(r.text), "--limit", "1", *quantize]).text,
                   f"{name}: an adapter is computed beside it")
        report = said(r, "explain", "generate", base, *quantize)
        planned, wide = row_of(report, f"weights: {name}"), row_of(said(r, "explain", "generate", base), "weights: frozen")
        panels = sum(-(-rows // 64) * 64 * columns * (bits + 0.5) / 8 + 256 for rows, columns in shapes) / 2**20
        ring.check(panels - 0.005 <= planned <= panels + 0.02 < wide, f"{name}: explain generate plans {planned} MiB for its matrices, whose panels take {panels:.3f}", report)
        refused(r, f"training {name} itself", [r.program, "finetune_full", base, "--data", "TextFiles", "--data.train_data_path", r.text, "--data.packing", "wrapped",
                                              "--train.max_seq_length", 32, "--train.max_steps", 1, *quantize], f"weights in {bits} bits cannot be trained", "finetune_lora")
        refused(r, "a division that cuts blocks", [r.program, "generate", base, "--prompt", "a", "--devices", 4, "--mesh.tp", 4, *quantize], "inside a block", "mesh.tp")
        refused(r, "another format than the folder's", [r.program, "generate", stored, "--prompt", "a", "--quantize", "bnb.nf4"], "leave quantize out")
        refused(r, "blocks of blocks", [r.program, "convert", stored, r.folder / "again", "--dtype", name], "is in blocks already")
        merged = r.folder / f"merged-{name}"
        said(r, "merge_lora", r.folder / f"two-{name}", "--dtype", name, "--out", merged)
        packed = {key for key, tensor in safetensors.load_file(merged / "model.safetensors").items() if tensor.dtype == torch.uint8}
        ring.check(packed == set(kept), f"{name}: an adapter of a folder in blocks is merged into blocks again")
        wide_again = said(r, "convert", stored, r.folder / f"wide-{name}")
        back, want = (safetensors.load_file(folder / "model.safetensors") for folder in (r.folder / f"wide-{name}", values))
        ring.check(all(torch.equal(back[key], want[key]) for key in want), f"{name}: convert writes the values of a folder in blocks", wide_again)
        ring.check("quantization_config" not in (r.folder / f"wide-{name}" / "config.json").read_text(), f"{name}: without quantization_config")
    tiny_models.make("llama 2", r.folder / "odd")
    refused(r, "a head whose rows are no whole blocks", [r.program, "generate", r.folder / "odd", "--prompt", "a", "--quantize_head", "q8_0"], "rows of 48 elements", "leave quantize_head out")
    refused(r, "rows that are no whole blocks", [r.program, "generate", r.folder / "odd", "--prompt", "a", "--quantize", "q8_0"], "rows of 48 elements", "bnb.nf4")
    refused(r, "a format that others do not hold", [r.program, "convert", base, r.folder / "x.pth", "--dtype", "q4_0"], "safetensors or gguf")
    refused(r, "blocks of rows that are no whole blocks", [r.program, "convert", r.folder / "odd", r.folder / "x", "--dtype", "q8_0"], "--dtype q8_0: ", "leave --dtype out")
    config = json.loads((r.folder / "stored-q8_0" / "config.json").read_text())
    (r.folder / "stored-q8_0" / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gguf", "quant_type": "q2_k"}}))
    refused(r, "a folder in blocks that are not read", [r.program, "generate", r.folder / "stored-q8_0", "--prompt", "a"], "quantization_config", "gguf")
