"""Models in 4 bits on the command line: what evaluates, writes and learns from codes is what the codes' values give.

quantized.py TRIREME
A second folder has, in the matrices of all blocks, the values that blocks of 4 bits stand for, made here by the formula alone. The program on
the first folder with --quantize must do what it does on the second without: evaluate, generate, train adapters, on one rank and on several.
"""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import ring
import tiny_models
from folders_of_values import evaluated, folder_of_values, losses, refused, said, tune
from four_bits import FP4, NF4, dequantized

torch, = ring.judges("torch")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    base = r.folder / "base"
    tiny_models.make("llama 2", base)
    (base / "tokenizer.json").write_text(tiny_models.tokenizer_json(tiny_models.MODELS["llama 2"][1]["vocab_size"], ()))
    text = lambda folder, *more: said(r, "generate", folder, "--prompt", "the sea", "--max_new_tokens", 12, "--temperature", 0, *more)
    for name, code in (("nf4", NF4), ("fp4", FP4)):
        values = folder_of_values(base, r.folder / f"values-{name}", lambda matrix: dequantized(matrix, code))
        quantize = ("--quantize", f"bnb.{name}")
        ring.check(evaluated(r, base, *quantize) == evaluated(r, values), f"{name}: evaluate has the bits of the values")
        ring.check(evaluated(r, base) != evaluated(r, values), f"{name}: which are not the bits of the model")
        ring.check(text(base, *quantize) == text(values), f"{name}: generate writes what the values write")
        one = losses(r, base, f"one-{name}", quantize=f"bnb.{name}")
        ring.check(one == losses(r, values, f"values-run-{name}"), f"{name}: the losses of four steps have the bits of the values'", str(one))
    for name in ("nf4", "nf4-dq"):
        one = losses(r, base, f"alone-{name}", quantize=f"bnb.{name}")
        for what, settings in {"full_shard on 2": {"devices": 2, "strategy": "full_shard"}, "full_shard on 4": {"devices": 4, "strategy": "full_shard"},
                               "hybrid": {"devices": 4, "strategy": "hybrid_shard", "mesh__replicate": 2}, "recompute": {"recompute": "full"},
                               "gloo": {"devices": 2, "strategy": "full_shard", "comm__backend": "gloo"}}.items():
            ring.check(losses(r, base, f"{name} {what}", quantize=f"bnb.{name}", **settings) == one, f"{name}: {what} has the bits of one rank")
        for what, settings in {"tp 2": {"devices": 2, "mesh__tp": 2}, "pp 2": {"devices": 2, "mesh__pp": 2}}.items():
            other = losses(r, base, f"{name} {what}", quantize=f"bnb.{name}", **settings)
            worst = max(abs(a - b) for a, b in zip(one, other))
            ring.check(worst < 2e-6, f"{name}: {what} within {worst:.1e} of one rank")
    reply = {"eval__max_new_tokens": 8, "eval__evaluate_example": "the sea was", "eval__interval": 4, "train__max_steps": 4}
    replies = lambda result: [line for line in result.out.splitlines() if line.startswith("sample")]
    wanted = r.run(tune(r, r.folder / "values-nf4", "replies-of-values", **reply))
    ring.require(wanted.code == 0 and replies(wanted), "a run on the values writes sample replies", str(wanted))
    for what, settings in {"one rank": {}, "full_shard on 4": {"devices": 4, "strategy": "full_shard"}, "tp 2": {"devices": 2, "mesh__tp": 2}, "pp 2": {"devices": 2, "mesh__pp": 2}}.items():
        result = r.run(tune(r, base, f"replies {what}", quantize="bnb.nf4", **reply, **settings))
        ring.check(result.code == 0 and replies(result) == replies(wanted), f"sample replies during training on {what} are those of the values", f"{result}\n{wanted}")
    pairs = r.folder / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"prompt": f"the sea {word}", "chosen": f"{word} was calm", "rejected": word}) + "\n" for word in "abcdefgh"))
    prefers = lambda folder, *more: [r.program, "finetune_dpo", str(folder), "--data", "JSON", "--data.json_path", str(pairs), "--precision", "32-true", "--devices", "1",
                                     "--train.max_seq_length", "64", "--train.global_batch_size", "4", "--train.max_steps", "3", "--eval.final_validation", "false",
                                     "--lora.r", "8", "--optimizer.lr", "1e-3", *more]
    learned = []
    for folder, out, more in ((base, "dpo", ()), (base, "dpo", ("--quantize", "bnb.nf4", "--overwrite", "true")), (r.folder / "values-nf4", "dpo-values", ())):
        result = r.run(prefers(folder, "--out_dir", str(r.folder / out), *more))
        ring.require(result.code == 0, "preferences are learned", str(result))
        learned.append([row["loss"] for row in ring.metrics(r.folder / out).values()][-3:])
    ring.check(abs(learned[1][0] - 0.693147) < 1e-5 and learned[1] == learned[2] and learned[1] != learned[0],
               "preferences on 4 bits are learned with the bits of the values; their reference is not that of all bits in the same out_dir", str(learned))
    half = r.run(tune(r, base, "resumed", quantize="bnb.nf4-dq", train__max_steps=2))
    ring.require(half.code == 0, "half a run", str(half))
    again = r.run(tune(r, base, "resumed", resume="true"))
    resumed = [line["loss"] for line in ring.metrics(r.folder / "resumed").values() if "loss" in line]
    ring.check(again.code == 0 and resumed[2:] == one[2:], "a resumed run keeps its 4 bits and goes on with the same bits", str(again))
    hint = "--quantize bnb.nf4 merges it into"
    done = r.run([r.program, "merge_lora", str(r.folder / "alone-nf4"), "--out", str(r.folder / "merged")])
    judged = r.run([r.program, "evaluate", str(r.folder / "alone-nf4"), "--text", str(r.text), "--limit", "1"])
    ring.check(done.code == 0 and judged.code == 0 and hint in done.text and hint in judged.text, "whoever merges into all bits is told what the adapter was trained on",
               f"{done}\n{judged}")
    ring.check(evaluated(r, r.folder / "merged") < evaluated(r, base), "what was learned on 4 bits helps the model in all its bits, merged")
    merged = said(r, "merge_lora", r.folder / "alone-nf4", "--quantize", "bnb.nf4", "--out", r.folder / "merged-values")
    ring.check("standard deviations from those of the adapter on bnb.nf4" in merged and
               abs(evaluated(r, r.folder / "merged-values") / evaluated(r, r.folder / "alone-nf4", "--quantize", "bnb.nf4") - 1) < 1e-6,
               "merged into what the codes stand for, it is what was trained: " + merged.strip().splitlines()[-1], merged)
    refused(r, "values of codes without an adapter", [r.program, "convert", base, r.folder / "x", "--convert.quantize", "bnb.nf4"], "is no adapter", "--dtype bnb.nf4")
    said(r, "convert", base, r.folder / "codes", "--dtype", "bnb.nf4")
    refused(r, "another dtype for what lies beside codes", [r.program, "checkpoint", "consolidate", r.folder / "codes", r.folder / "x", "--dtype", "bf16"],
            "are codes", "leave --dtype out")
    rows = said(r, "explain", "memory", base, "--quantize", "bnb.nf4-dq", "--lora.r", 8, "--train.max_seq_length", 32)
    ring.check("weights: bnb.nf4-dq" in rows and "weights: frozen" in rows and "weights: adapters" in rows, "explain memory has rows for 4 bits, the rest and adapters", rows)
    refused(r, "training all weights", [r.program, "finetune_full", base, "--data", "TextFiles", "--data.train_data_path", r.text, "--data.packing", "wrapped",
                                        "--train.max_seq_length", 32, "--train.max_steps", 1, "--quantize", "bnb.nf4"], "cannot be trained", "finetune_lora")
    refused(r, "a format that does not exist", tune(r, base, "x", quantize="bnb.nf5"), "quantize", "bnb.nf4")
    dora = losses(r, base, "dora", quantize="bnb.nf4", lora__dora="true", lora__dropout=0)
    ring.check(dora == losses(r, r.folder / "values-nf4", "dora-values", lora__dora="true", lora__dropout=0), "DoRA learns with the bits of the values", str(dora))
    ring.check(evaluated(r, r.folder / "dora", "--quantize", "bnb.nf4") == evaluated(r, r.folder / "dora-values"), "and is merged into them")
    ring.check(text(base, "--quantize", "bnb.nf4", "--devices", 2, "--mesh.tp", 2) == text(base, "--quantize", "bnb.nf4"), "generate on tp 2 writes what one rank writes")
    ring.check("beside the 4 bits of" in r.run([r.program, "evaluate", str(r.folder / "alone-nf4"), "--text", str(r.text), "--limit", "1", "--quantize", "bnb.nf4"]).text,
               "an adapter is not merged into 4 bits")
    beside, whole = text(r.folder / "alone-nf4", "--quantize", "bnb.nf4"), text(r.folder / "merged-values")
    ring.check(beside == whole, "generate writes with the adapter beside the codes what it writes with it merged", f"{beside}\n{whole}")
    ring.check(text(r.folder / "alone-nf4", "--quantize", "bnb.nf4", "--devices", 2, "--mesh.tp", 2) == beside, "and on tp 2")
    planned = lambda *words: said(r, "explain", "generate", *words, "--generate.cache_tokens", 1000)
    merged, apart = planned(base, "--generate.adapter", r.folder / "alone-nf4"), planned(base, "--generate.adapter", r.folder / "alone-nf4", "--quantize", "bnb.nf4")
    ring.check(merged == planned(base) and "weights: bnb.nf4" in apart and apart != planned(base, "--quantize", "bnb.nf4") and apart == planned(r.folder / "alone-nf4", "--quantize", "bnb.nf4"),
               "explain generate plans an adapter beside 4 bits; merged, it takes no room", f"{merged}\n{apart}")
    ring.check(evaluated(r, r.folder / "alone-nf4", "--quantize", "bnb.nf4") < evaluated(r, base, "--quantize", "bnb.nf4"), "an adapter is merged into what the codes stand for")
