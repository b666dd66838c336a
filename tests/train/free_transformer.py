"""Runs of a Free Transformer: the same on two ranks, after a resume and from its folder; generation and its latent.

free_transformer.py TRIREME
"""

import json
import math
import pathlib
import sys

import ring

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/train_free"
FREE = {"free.latent_bits": 6, "train__max_steps": 8, "train__save_interval": 5, "eval.final_validation": "true", "eval.max_iters": 4}


def parts(folder):
    """Of the training loss and of the held-out loss."""
    return {step: {name: row[name] for name in ("loss", "val_loss") if name in row} | row["measures"] for step, row in ring.metrics(folder).items()}


def trains_alike(r):
    one = r.train("one", **FREE)
    rows = parts(one)
    last = rows[8]
    ring.check(set(last) == {"loss", "val_loss"} | {p + n for p in ("", "val_") for n in ("cross_entropy", "kl_bits", "hinge", "above", "bound")},
               "metrics.jsonl has the parts of the loss and of the held-out loss", str(last))
    off = max(abs(row["bound"] - row["cross_entropy"] - row["kl_bits"] * math.log(2)) + abs(row["loss"] - row["cross_entropy"] - row["hinge"])
              for row in rows.values())
    ring.check(off < 1e-12, "the bound is cross-entropy plus divergence, the loss cross-entropy plus hinge", str(last))
    ring.check(last["loss"] < rows[1]["loss"] - 0.2, "it learns", str(rows))
    for name, settings in {"sharded": {"devices": 2}, "ddp": {"devices": 2, "strategy": "no_shard"}}.items():
        other = r.train(name, **FREE, **settings)
        other = parts(other)
        ring.check(other == rows, f"{name} on two ranks: the parts of one rank, to the bit, also of what is held out", f"{other} {rows}")
    resumed = r.train("resumed", **FREE | {"devices": 2, "resume": one / "step-00000005"})
    ring.check(parts(resumed) == {step: row for step, row in rows.items() if step > 5}, "a resumed run draws the same bits")
    for mesh in ({"mesh.tp": 2}, {"mesh.pp": 2}):
        other = parts(r.train(f"mesh-{next(iter(mesh))}", **FREE | {"devices": 2} | mesh))
        off = max(abs(row[name] - rows[step][name]) for step, row in other.items() for name in ("cross_entropy", "kl_bits", "bound"))
        ring.check(off < 1e-4, f"{mesh}: the parts of one rank within {off:.0e}")
    config = json.loads((one / "step-00000008" / "config.json").read_text())
    ring.check((config["model_type"], config["latent_dim"], config["split_layer"]) == ("free_transformer", 6, 1), "its folder says what it is", str(config))
    more = r.run([word if word != "llama-5m" else str(one / "step-00000008") for word in r.command("more", model={}, train__max_steps=2)])
    ring.check(more.code == 0 and "latent   6 bits" in more.out, "training goes on from the folder", str(more))
    changed = {"train__max_steps": 2, "train__save_interval": 2, "free.free_bits": 0.25, "free.kl_weight": 2}
    other = r.run([word if word != "llama-5m" else str(one / "step-00000008") for word in r.command("changed", model={}, **changed)])
    said = json.loads((r.folder / "changed/step-00000002/config.json").read_text()) if other.code == 0 else {}
    ring.check(said | {"kappa_free_bits": 0.25 * math.log(2), "beta_kl": 2} == said, "and says what it then learned by", f"{said}\n{other}")
    return one


def generate(r, run, *words):
    return r.run([r.program, "generate", run, "--prompt", "the sea", "--max_new_tokens", "30", *map(str, words)])


def writes(r, run):
    free = generate(r, run)
    ring.check(free.code == 0 and free.out == generate(r, run).out, "the same seed writes the same text", str(free))
    ring.check(free.out == generate(r, run, "--mesh.tp", 2, "--devices", 2).out == generate(r, run, "--mesh.pp", 2, "--devices", 2).out,
               "so do tensor-parallel and pipeline ranks")
    wild = r.train("wild", **FREE | {"model.initializer_range": 0.5, "train__max_steps": 1})  # in it, every part says much
    texts = {generate(r, wild, "--free.latent", code, "--temperature", 0).out for code in range(0, 64, 9)}
    ring.check(len(texts) > 1, "the latent changes what is written", str(texts))
    drawn = {seed: generate(r, wild, "--temperature", 3, "--seed", 1, "--free.latent_seed", seed).out for seed in (1, 2, 3)}
    ring.check(drawn[1] == generate(r, wild, "--temperature", 3, "--seed", 1).out and len(set(drawn.values())) > 1,
               "codes are drawn from free.latent_seed, which is generate.seed unless it is given", str(drawn))
    both = generate(r, run, "--free.latent_seed", 1, "--free.latent", 1)
    ring.check(both.code == 2 and "give one of the two" in both.err, "a code for all tokens and a seed for each are refused", str(both))
    wrong = generate(r, run, "--free.latent", 64)
    ring.check(wrong.code == 2 and "a code of 6 bits is from 0 to 2^6 - 1" in wrong.err, "a code that the model lacks is refused", str(wrong))
    for command in (["generate", run, "--prompt", "a"], ["evaluate", run, "--text", r.text]):
        shape = r.run([r.program, *command, "--free.latent_bits", "9"])
        ring.check(shape.code == 2 and "free.latent_bits belongs to training" in shape.err, f"{command[0]} refuses another shape", str(shape))
    result = r.run([r.program, "evaluate", run, "--text", r.text, "--free.latent", "3"])
    ring.check(result.code == 2 and "evaluate draws all codes at random" in result.err, "evaluate refuses a code, which it does not read", str(result))


def refuses(r):
    for settings, words in (({"mesh.cp": 2, "devices": 2}, "encoder sees whole ones"), ({"free.split_layer": 9}, "free.split_layer is 9"),
                            ({"free.latent_bits": 30, "free.injection": "table"}, "above 20 bits take free.injection bits"),
                            ({"precision": "bf16-true"}, "32-true, bf16-mixed or 64-true"), ({"optimizer": "Muon"}, "Muon is not built"),
                            ({"model.model_type": "qwen3"}, "is no Llama")):
        result = r.run(r.command("refused", **FREE | settings))
        ring.check(result.code == 2 and words in result.err and "Traceback" not in result.text, f"refused: {settings}", str(result))
    weights = {False: r.train("plain", train__max_steps=1, train__save_interval=1) / "step-00000001", True: r.train("few", **FREE | {"train__max_steps": 1}) / "step-00000001"}
    for is_free, words in {False: "weights of a plain llama: give --model.from_scratch true", True: "or a setting under model. or free., belongs to other weights"}.items():
        other = r.run([word if word != "llama-5m" else str(weights[is_free]) for word in r.command("refused", model={}, **FREE | {"free.latent_bits": 7})])
        ring.check(other.code == 2 and words in other.err, "other latent bits than those of the weights are refused with a way out", str(other))
    plain = r.run(r.command("refused", **{"free.free_bits": 1}))
    ring.check(plain.code == 2 and "free.free_bits is for a Free Transformer" in plain.err, "a plain decoder has no free bits", str(plain))


def compares(r):
    """What make train-baseline-fsdp and train-free-fsdp call."""
    script = EXAMPLE / "austen"
    environment = ring.environment(TRIREME=str(r.program), TRIREME_OUT=str(r.folder / "both"))
    few = ["--train.max_steps", "2", "--train.lr_warmup_steps", "1", "--train.save_interval", "2", "--eval.interval", "2", "--eval.max_iters", "1"]
    for kind in ("baseline", "free"):
        result = r.run([script, kind, *few], env=environment, timeout=300)
        ring.require(result.code == 0, f"examples/train_free/austen {kind}", str(result))
    ring.check("the encoder's latent against the baseline: " in result.out and "divergence of " in result.out, "it compares both runs", str(result))


with ring.Ring(sys.argv[1]) as r:
    writes(r, trains_alike(r))
    compares(r)
    refuses(r)
