"""Two builds of the program take the same steps: for whoever changes the code and not the arithmetic.

same_bits.py OLD NEW [NAME ...]
Trains 40 configurations with both programs, in turn, and compares losses, gradient norms and held-out losses of
metrics.jsonl, and every tensor of the last checkpoint. Equal means equal to the bit. Each program needs the libraries
that were built with it in its folder. NAME picks configurations.
"""

import pathlib
import sys

import ring

[numpy] = ring.judges("numpy")
PIPELINE, CONTEXT, MODE = "pipeline__schedule", "mesh__context", "recompute__mode"
DEEP = ring.LLAMA | {"num_hidden_layers": 4}
TIED = ring.LLAMA | {"tie_word_embeddings": "true"}
GEMMA = ring.LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "tie_word_embeddings": "true"}
MIXED = {"precision": "bf16-mixed"}
DOCUMENTS = {"data__reset_attention_mask": "true", "data__reset_position_ids": "true"}
PP = {"devices": 2, "mesh__pp": 2}

# name: (model, settings)
CASES = {
    "one rank": (ring.LLAMA, {}),
    "ddp": (ring.LLAMA, {"devices": 2, "strategy": "no_shard"}),
    "zero1": (ring.LLAMA, {"devices": 2, "strategy": "zero1"}),
    "zero2": (ring.LLAMA, {"devices": 2, "strategy": "zero2"}),
    "zero3": (ring.LLAMA, {"devices": 2, "strategy": "zero3"}),
    "zero3 over gloo": (ring.LLAMA, {"devices": 2, "strategy": "zero3", "comm__backend": "gloo"}),
    "zero3 on 4": (ring.LLAMA, {"devices": 4, "strategy": "zero3"}),
    "hybrid": (ring.LLAMA, {"devices": 4, "strategy": "hybrid_shard", "mesh__replicate": 2, "mesh__shard": 2}),
    "hybrid zero2": (ring.LLAMA, {"devices": 4, "strategy": "hybrid_shard_zero2", "mesh__replicate": 2, "mesh__shard": 2}),
    "hybrid, fast sums": (ring.LLAMA, {"devices": 4, "strategy": "hybrid_shard", "mesh__replicate": 2, "mesh__shard": 2,
                                       "reduce": "fast"}),
    "accumulation local": (ring.LLAMA, {"devices": 2, "strategy": "zero2", "accumulation": "local", "reduce": "fast"}),
    "wrap by layer": (ring.LLAMA, {"devices": 2, "strategy": "zero3", "wrap__by": "layer"}),
    "wrap by parameter": (ring.LLAMA, {"devices": 2, "strategy": "zero3", "wrap__by": "parameter"}),
    "prefetch 2, lag 2": (DEEP, {"devices": 2, "strategy": "zero3", "schedule__prefetch": 2, "schedule__reduce_lag": 2}),
    "tp": (ring.LLAMA, {"devices": 2, "mesh__tp": 2}),
    "tp and sequence": (ring.LLAMA, {"devices": 2, "mesh__tp": 2, "mesh__sequence_parallel": "true"}),
    "tp x shard": (ring.LLAMA, {"devices": 4, "mesh__tp": 2, "mesh__shard": 2, "mesh__sequence_parallel": "true"}),
    "cp ring": (ring.LLAMA, {"devices": 2, "mesh__cp": 2, CONTEXT: "ring"}),
    "cp ulysses": (ring.LLAMA, {"devices": 2, "mesh__cp": 2, CONTEXT: "ulysses"}),
    "tp x cp": (ring.LLAMA, {"devices": 4, "mesh__tp": 2, "mesh__cp": 2}),
    "gpipe": (DEEP, PP | {PIPELINE: "gpipe"}),
    "1f1b": (DEEP, PP | {PIPELINE: "1f1b"}),
    "interleaved": (DEEP, PP | {PIPELINE: "interleaved_1f1b", "pipeline__chunks": 2}),
    "breadth first": (DEEP, PP | {PIPELINE: "breadth_first", "pipeline__chunks": 2}),
    "zb_h1": (DEEP, PP | {PIPELINE: "zb_h1"}),
    "zb_v": (DEEP, PP | {PIPELINE: "zb_v"}),
    "1f1b x shard": (DEEP, {"devices": 4, "mesh__pp": 2, "mesh__shard": 2}),
    "1f1b, tied": (TIED, PP),
    "recompute full": (ring.LLAMA, {MODE: "full"}),
    "recompute selective": (DEEP, {MODE: "selective", "recompute__values": "hidden", "recompute__every": 2}),
    "tied": (TIED, {"devices": 2, "strategy": "zero3"}),
    "gpt2": (ring.GPT2, {"devices": 2, "strategy": "zero2"}),
    "gpt2 tp": (ring.GPT2, {"devices": 2, "mesh__tp": 2}),
    "gemma3": (GEMMA, {"devices": 2, "strategy": "zero3"}),
    "bf16-mixed": (ring.LLAMA, MIXED | {"devices": 2, "strategy": "zero3"}),
    "bf16-mixed tp": (ring.LLAMA, MIXED | {"devices": 2, "mesh__tp": 2}),
    "64-true": (ring.LLAMA, {"precision": "64-true", "devices": 2, "strategy": "zero1"}),
    "documents apart": (ring.LLAMA, DOCUMENTS | {"devices": 2, "mesh__cp": 2, CONTEXT: "ulysses"}),
    "lion, save async": (ring.LLAMA, {"optimizer": "Lion", "optimizer__lr": 3e-4, "save__mode": "async", "train__save_interval": 2}),
    "sgd, two threads": (ring.LLAMA, {"optimizer": "SGD", "optimizer__momentum": 0.9, "launch__threads_per_rank": 2}),
}
STEPS = {"train__max_steps": 6, "eval__final_validation": "true", "eval__max_iters": 2}


def left_behind(folder, steps):
    """Numbers of metrics.jsonl by step, and the tensors of the last checkpoint."""
    rows = {step: [row.get(key) for key in ("loss", "grad_norm", "val_loss")] for step, row in ring.metrics(folder).items()}
    return rows, {name: tensor.tobytes() for name, tensor in ring.tensors(folder / f"step-{steps:08}").items()}


def compare(what, old, new, steps):
    (rows, tensors), (new_rows, new_tensors) = left_behind(old, steps), left_behind(new, steps)
    ring.require(len(rows) == steps and rows == new_rows, f"{what}: losses and gradient norms", f"{rows}\n{new_rows}")
    unequal = [name for name in tensors if new_tensors.get(name) != tensors[name]]
    ring.check(tensors.keys() == new_tensors.keys() and not unequal,
               f"{what}: {steps} steps and {len(tensors)} tensors, equal to the bit", str(unequal[:5]))


programs, wanted = sys.argv[1:3], sys.argv[3:]
with ring.Ring(programs[0]) as old, ring.Ring(programs[1]) as new:
    for name, (model, settings) in CASES.items():
        if wanted and name not in wanted:
            continue
        folder = name.replace(" ", "-").replace(",", "")
        compare(name, *(r.train(folder, model=model, **(STEPS | settings)) for r in (old, new)), 6)
    if not wanted:  # the old build's checkpoint, continued by both, on other ranks
        start = old.folder / "zero3" / "step-00000006"
        more = STEPS | {"train__max_steps": 9, "devices": 2, "strategy": "zero2", "resume": start}
        folders = [r.train("resumed", model=ring.LLAMA, **more) for r in (old, new)]
        kept = [{s: row for s, row in ring.metrics(f).items() if s > 6} for f in folders]
        ring.check(len(kept[0]) == 3 and [[r["loss"], r["grad_norm"]] for r in kept[0].values()] ==
                   [[r["loss"], r["grad_norm"]] for r in kept[1].values()], "resumed: equal to the bit", str(kept))
