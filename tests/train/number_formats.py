"""Runs in 16-mixed skip the same steps on any number of ranks and after a resume; bf16-true keeps its bits too.

number_formats.py TRIREME
"""

import json
import math
import sys

import ring

# So high that the first steps overflow, and a window so short that later ones do again.
HALF = {"precision": "16-mixed", "precision.initial_loss_scale": 2.0**36, "precision.loss_scale_window": 4,
        "train__max_steps": 48, "train__save_interval": 30}
# The same in a precision that scales no loss.
WIDE = {"precision": "32-true", "precision.initial_loss_scale": None, "precision.loss_scale_window": None}


def files(folder, step):
    return {path.name: path.read_bytes() for path in sorted((folder / f"step-{step:08}").glob("*.safetensors"))}


def history(folder):
    """What a run says of its steps; the loss of a skipped step may not be a number."""
    rows = ring.metrics(folder)
    return {step: (row["loss_scale"], row["skipped"], row["lr"], str(row["loss"])) for step, row in rows.items()}


def skips_alike(r):
    one = r.train("half-one", **HALF)
    rows = history(one)
    skipped = [step for step in rows if rows[step][1] > (rows[step - 1][1] if step > 1 else 0)]
    ring.check(skipped[:3] == [1, 2, 3] and 3 < len(skipped) < 40 and skipped[-1] > 30,
               f"{len(skipped)} of {len(rows)} steps are skipped, the last one is {skipped[-1]}")
    ring.check(all(math.frexp(row[0])[0] == 0.5 for row in rows.values()), "every scale is a power of two")
    for name, settings in {"four": {"devices": 4}, "ddp": {"devices": 2, "strategy": "no_shard"},
                           "gloo": {"devices": 2, "comm__backend": "gloo"}}.items():
        other = r.train(f"half-{name}", **HALF, **settings)
        ring.check(history(other) == rows, f"{name}: the same steps are skipped, at the same scales")
        ring.check(files(other, 48) == files(one, 48), f"{name}: the bits of one rank")
    resumed = r.train("half-resumed", **HALF | {"devices": 2, "resume": one / "step-00000030"})
    ring.check(history(resumed) == {step: row for step, row in rows.items() if step > 30}, "a resumed run goes on at the same scale")
    ring.check(files(resumed, 48) == files(one, 48), "and ends in the same bits")
    other = {"precision.initial_loss_scale": 2.0**30, "resume": one / "step-00000030"}
    result = r.run(r.command("half-other", **HALF | other))
    ring.check(result.code == 2 and "precision.initial_loss_scale was" in result.err and "goes on at the loss scale" in result.err,
               "a resume refuses another first scale, which it would not read", str(result))
    stages = r.train("half-stages", **HALF | {"devices": 2, "mesh.pp": 2})
    ring.check([row[:3] for row in history(stages).values()] == [row[:3] for row in rows.values()], "two stages skip alike")
    return one


def waits_as_deepspeed(r):
    plain = {step: row["lr"] for step, row in ring.metrics(r.train("rates", **HALF | WIDE)).items()}
    for rule, waits in (("torch", False), ("deepspeed", True)):
        rows = ring.metrics(r.train(f"rates-{rule}", **HALF | {"precision.scale_rule": rule}))
        before = 0
        for step, row in rows.items():
            if row["lr"] != plain[step - before * waits]:
                ring.check(False, f"{rule}: the rate of step {step}", str(row))
            before = row["skipped"]
        ring.check(before > 3, f"{rule}: with {before} skipped steps the learning rate {'waits' if waits else 'does not wait'}")


def counted_steps(before, after, name, lr, most):
    """Which step AdamW's bias correction took, of the first `most`: the one whose update is nearest to that of `name`."""
    moved = before[f"{name}.master"].astype("f8") - after[f"{name}.master"]
    first, second = (after[f"{name}.{kept}"].astype("f8") for kept in ("exp_avg", "exp_avg_sq"))
    off = {t: abs(lr * first / (1 - 0.9**t) / ((second / (1 - 0.999**t)) ** 0.5 + 1e-8) - moved).max() for t in range(1, most + 1)}
    return min(off, key=off.get)


def goes_on_in_another_precision(r):
    settings = HALF | {"precision.scale_rule": "deepspeed", "optimizer.weight_decay": 0, "train.max_norm": "null"}
    half = r.train("rates-half", **settings)
    saved, skipped = half / "step-00000030", ring.metrics(half)[30]["skipped"]
    plain = ring.metrics(r.train("rates-plain", **settings | WIDE | {"precision.scale_rule": None}))
    rows = ring.metrics(r.train("rates-on", **settings | WIDE | {"resume": saved, "train__save_interval": 1, "save.keep_last": 0}))
    ring.check(skipped > 0 and all(row["lr"] == plain[step - skipped]["lr"] for step, row in rows.items()),
               f"in 32-true the learning rate still waits for the {skipped} steps that 16-mixed has skipped")
    on = r.folder / "rates-on" / "step-00000031"
    step = counted_steps(ring.tensors(saved), ring.tensors(on), "model.layers.0.mlp.up_proj.weight", rows[31]["lr"], 40)
    ring.check(step == 31 - skipped, f"AdamW's next step is its {step}th, not the run's 31st")
    ring.check(json.loads((on / "trireme_state.json").read_text())["loss_scale"]["skipped"] == skipped, "and checkpoints keep the count")


def ends_at_the_lowest_scale(r):
    result = r.run(r.command("lowest", **HALF | {"precision.min_loss_scale": 2.0**34}))
    ring.check(result.code == 1 and "a gradient overflows even at the lowest loss scale" in result.err and "step 3" in result.err,
               "a run ends when gradients overflow at the lowest scale", str(result))
    ring.check(f"a precision.min_loss_scale below {2**34}" in result.err, "and is told to lower it", str(result))
    result = r.run(r.command("fixed", precision="16-mixed", precision__loss_scale=2.0**40, train__max_steps=40))
    ring.check(result.code == 1 and f"20 steps in a row were skipped, because a gradient overflows with precision.loss_scale {2**40}" in result.err and
               f"stays at {2**40}" in result.text, "a fixed scale that skips every step ends the run", str(result))


def keeps_its_bits_in_bf16(r):
    for rounding in ("nearest", "stochastic", "kahan"):
        settings = {"precision": "bf16-true", "precision.rounding": rounding, "train__max_steps": 12, "train__save_interval": 6}
        one = r.train(f"bf16-{rounding}", **settings)
        four = r.train(f"bf16-{rounding}-four", **settings, devices=4)
        ring.check(files(four, 12) == files(one, 12), f"bf16-true, {rounding}: four ranks give the bits of one")
        again = r.train(f"bf16-{rounding}-again", **settings | {"resume": one / "step-00000006", "devices": 2})
        ring.check(files(again, 12) == files(one, 12), f"bf16-true, {rounding}: a resumed run ends in the same bits")


def trains_in_8_bits(r):
    settings = {"train__max_steps": 24, "train__save_interval": 12}
    wide = ring.metrics(r.train("eight-beside", precision="bf16-mixed", **settings))
    one = r.train("eight", precision="fp8-mixed", **settings)
    rows = ring.metrics(one)
    worst = max(abs(rows[step]["loss"] / wide[step]["loss"] - 1) for step in wide)
    ring.check(0 < worst < 5e-3, f"fp8-mixed: losses of {len(rows)} steps within {worst:.1e} of bf16-mixed's, and not the same")
    for name, mesh in {"four": {"devices": 4}, "ddp": {"devices": 2, "strategy": "no_shard"},
                       "full": {"devices": 2, "recompute": "full"}}.items():
        other = r.train(f"eight-{name}", precision="fp8-mixed", **settings, **mesh)
        ring.check(files(other, 24) == files(one, 24), f"fp8-mixed, {name}: the bits of one rank")
    again = r.train("eight-again", precision="fp8-mixed", **settings, devices=2, resume=one / "step-00000012")
    ring.check(files(again, 24) == files(one, 24), "fp8-mixed: a resumed run ends in the same bits")
    for name, mesh in {"tp": {"mesh.tp": 2}, "sequence": {"mesh.tp": 2, "mesh.sequence_parallel": "true"},
                       "pp": {"mesh.pp": 2}, "cp": {"mesh.cp": 2}}.items():
        other = ring.metrics(r.train(f"eight-{name}", precision="fp8-mixed", devices=2, **settings, **mesh))
        worst = max(abs(other[step]["loss"] / rows[step]["loss"] - 1) for step in rows)
        ring.check(worst < 2e-3, f"fp8-mixed, {name}: losses within {worst:.1e} of one rank's")


def refuses(r):
    for settings, words in [
        ({"precision": "16-mixed", "precision.loss_scale": 3}, "not a power of two"),
        ({"precision": "bf16-mixed", "precision.rounding": "kahan"}, "weights of two bytes"),
        ({"precision": "16-true", "precision.rounding": "stochastic"}, "nearest or kahan"),
        ({"precision": "16-true"}, "optimizer.eps"),
        ({"precision": "16-true", "optimizer.eps": 1e-4}, "optimizer.eps to at least 0.0055"),
        ({"precision": "16-true", "optimizer": "Adagrad", "optimizer.eps": 1e-2}, "Adagrad's sums of squares"),
        ({"precision": "16-mixed", "precision.loss_scale_hysteresis": 2}, "precision.scale_rule deepspeed"),
        ({"precision": "16-mixed", "accelerator": "cuda"}, "not built for GPUs"),
        ({"precision": "bf16-mixed", "precision.gradients": "bf16", "accumulation": "local", "reduce": "fast"}, "precision.gradients fp32"),
        ({"precision": "bf16-true", "precision.reduce": "fp32"}, "precision.gradients fp32"),
        ({"precision": "bf16-true", "optimizer": "LAMB"}, "reads whole tensors"),
        ({"precision": "fp8-mixed", "free.latent_bits": 4}, "Free Transformer"),
        ({"precision": "fp8-mixed", "precision.rounding": "kahan"}, "weights of two bytes"),
    ]:
        result = r.run(r.command("refused", **settings))
        ring.check(result.code == 2 and words in result.err, f"refused: {settings}", str(result))


def reproduces_the_textbook(r):
    result = r.run([r.program, "explain", "memory", "llama-32m", "--devices", "4", "--precision", "bf16-mixed", "--precision.gradients", "compute"])
    table = result.out[result.out.index("model states"):]
    for words in ("16P", "4P + 12P/N", "2P + 14P/N", "16P/N"):
        ring.check(table.count(words) >= 2, f"explain memory: {words}, here and in the textbook", table)


with ring.Ring(sys.argv[1]) as r:
    refuses(r)
    reproduces_the_textbook(r)
    skips_alike(r)
    waits_as_deepspeed(r)
    goes_on_in_another_precision(r)
    ends_at_the_lowest_scale(r)
    keeps_its_bits_in_bf16(r)
    trains_in_8_bits(r)
