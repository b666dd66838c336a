"""Which checkpoint a run goes on from: a ruined one is marked and displaces none, a damaged one is passed over.

good.py TRIREME
"""

import json
import re
import shutil
import sys

import ring

# A learning rate that sends weights to 1e5 and beyond in a step; from step 5 on.
RUIN = {"optimizer__lr": 1e6, "train__min_lr": 1, "train__lr_warmup_steps": 0}
QUIET = {"train__save_interval": 1, "eval__interval": 100000}


def listed(r, out):
    return r.run([r.program, "checkpoint", "list", str(out)]).out


def goes_on(r, out, steps, **more):
    return r.run(r.command(out, train__max_steps=steps, **(QUIET | {"resume": "auto"} | more)))


def ruined_run(r, name, mode, devices):
    """Four good steps, then a learning rate of 1e6 until the loss is not finite."""
    r.train(name, devices=devices, train__max_steps=4, save__keep_last=1, save__mode=mode, **QUIET)
    out = r.folder / name
    result = goes_on(r, name, 60, devices=devices, save__keep_last=1, save__mode=mode, **RUIN)
    what = f"{devices} ranks, {mode}"
    folders = ring.step_folders(out)
    ring.check(result.code == 1 and folders[0] == "step-00000004", f"{what}: the good step 4 is not displaced", str(result) + str(folders))
    ring.require(len(folders) <= 2, f"{what}: of the ruined ones the newest stays", str(folders))
    for folder in folders[1:]:
        ring.check("ruined" in json.loads((out / folder / "manifest.json").read_text()), f"{what}: {folder} is marked as ruined")
        ring.require("is marked as ruined" in result.text, f"{what}: the run says so", str(result))
    said = [line for line in result.err.splitlines() if "the loss is" in line]
    ring.require(said, f"{what}: the loss is not finite in the end", str(result))
    ring.check(f"The newest good checkpoint is {out}/step-00000004" in result.err and "an optimizer.lr below 1e+06" in result.err,
               f"{what}: the last sentence names it, and a lower learning rate", str(result))
    ring.check(f"Go on from it (trireme pretrain --resume {out}) with" in result.err, f"{what}: and the command that goes on", str(result))
    step, more = (int(re.search(pattern, said[-1])[1]) for pattern in (r"step (\d+): the loss is", r"more train.lr_warmup_steps than (\d+)"))
    ring.check(more >= step, f"{what}: fewer warm-up steps than {step} would change nothing", said[-1])
    ring.check("untouched" not in result.err and "--precision 32-true" not in result.err,
               f"{what}: it does not recommend the precision in use", str(result))
    return out


def follows(r, out):
    """All commands that are given the run's folder take step 4."""
    newest = ring.step_folders(out)[-1]
    rows = listed(r, out).splitlines()[1:]
    ring.check("RUINED" in rows[0] and "complete" in rows[-1], "checkpoint list says which one is ruined", "\n".join(rows))
    verify = r.run([r.program, "checkpoint", "verify", str(out)])
    ring.check(verify.code == 1 and f"ruined   {out}/{newest}" in verify.out and f"{out}/step-00000004: " in verify.out,
               "checkpoint verify RUN_FOLDER looks at every checkpoint of the run, and tells the ruined one", str(verify))
    ring.check(r.run([r.program, "checkpoint", "verify", str(out / "step-00000004")]).code == 0, "checkpoint verify: the good one is well")
    for name, words in (("generate", ["--prompt", "the sea", "--generate.max_new_tokens", "2"]), ("evaluate", ["--text", str(r.text), "--evaluate.limit", "2"])):
        for command in ([name, str(out), *words, "--devices", "2"], ["launch", "--nproc_per_node", "2", name, str(out), *words]):
            result = r.run([r.program, *command])
            ring.check(result.code == 0 and result.text.count(f"passed over {out}/{newest}") == 1,
                       f"{command[0]} of two ranks says once what it passes over: the launcher, or rank 0", str(result))
        one, other = (r.run([r.program, name, str(folder), *words]) for folder in (out, out / "step-00000004"))
        text = lambda result: re.sub(r"[0-9.]+ (s|tok/s|ms|MiB).*", "", result.out.replace(str(out / "step-00000004"), str(out)))
        ring.check(one.code == 0 and text(one) == text(other), f"{name} RUN_FOLDER takes the good one", str(one) + str(other))
    result = r.run([r.program, "convert", str(out), str(r.folder / "converted")])
    ring.require(result.code == 0 and result.err.count(f"passed over {out}/{newest}") == 1, "convert RUN_FOLDER says once what it passes over", str(result))
    ring.check((r.folder / "converted/model.safetensors").stat().st_size > 0 and all(
        (ring.tensors(r.folder / "converted")[name] == value).all() for name, value in ring.tensors(out / "step-00000004").items()
        if name in ring.tensors(r.folder / "converted")), "convert RUN_FOLDER takes the good one")
    for resume in ("auto", "true"):
        copy = r.folder / f"goes-on-{resume}"
        shutil.copytree(out, copy)
        result = goes_on(r, copy.name, 8, resume=resume, save__keep_last=1)
        ring.check(result.code == 0 and f"resumed  {copy}/step-00000004 at step 4" in result.out and f"passed over {copy}/{newest}" in result.out,
                   f"--resume {resume} with another learning rate goes on from the good one, and says what it passed over", str(result))
        ring.check(ring.step_folders(copy)[:1] == ["step-00000008"], "and its checkpoints take the ruined one's place in time", str(ring.step_folders(copy)))
    named = goes_on(r, out.name, 5, resume=out / newest, train__min_lr=1e-4) if newest != "step-00000004" else None
    ring.check(named and named.text.count(f"{out / newest} is not good: it is marked as ruined") == 1,
               "one that is named all the same is taken, with one warning", str(named))
    to, text = r.folder / "named-converted", ["--text", str(r.text), "--evaluate.limit", "2"]
    for words in (["generate", "--prompt", "the sea", "--generate.max_new_tokens", "2"], ["evaluate", *text], ["evaluate", *text, "--devices", "2"], ["convert", str(to)],
                  ["checkpoint", "consolidate", str(r.folder / "named-consolidated")]):
        at = 2 if words[0] == "checkpoint" else 1
        result = r.run([r.program, *words[:at], str(out / newest), *words[at:]])
        ring.check(result.text.count(f"{out / newest} is not good: it is marked as ruined") == 1, f"{words[0]} of it warns once, too", str(result))


def weights_that_are_not_finite(r):
    """Evaluations say that their loss is none, and an error behind a text begins a line of its own."""
    out = r.train("not-finite", devices=1, train__max_steps=1, **QUIET) / "step-00000001"
    folder = r.folder / "nan"
    ring.require(r.run([r.program, "convert", str(out), str(folder), "--dtype", "float32"]).code == 0, "a plain folder")
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin:] = b"\0\0\xc0\x7f" * ((len(data) - begin) // 4)
    file.write_bytes(data)
    result = r.run([r.program, "evaluate", str(folder), "--text", str(r.text), "--evaluate.limit", "2"])
    ring.check("perplexity: the loss is not finite" in result.err and "take another checkpoint" in result.err, "evaluate says that the loss is not finite", str(result))
    result = r.run([r.program, "generate", str(folder), "--prompt", "abc"])
    ring.check(result.code != 0 and result.out == "abc\n" and "a logit is NaN" in result.err, "the error of a text begins a line of its own", str(result))


def the_best_one_stays(r):
    out = r.train("best", devices=2, train__max_steps=14, train__save_interval=2, eval__interval=2, save__keep_last=1, save__keep_best="true",
                  optimizer__lr=0.5, train__lr_warmup_steps=14)
    losses = {step: row["val_loss"] for step, row in ring.metrics(out).items() if "val_loss" in row}
    best = min(losses, key=losses.get)
    ring.check(len(losses) == 6 and best < 12 and sorted(ring.step_folders(out)) == [f"step-{best:08}", "step-00000014"],
               f"save.keep_best keeps step {best} of 14 beside the newest", str(losses) + str(ring.step_folders(out)))


def the_best_one_is_of_like_evaluations(r):
    settings = dict(train__save_interval=2, eval__interval=2, eval__max_iters=8, save__keep_best="true")
    out = r.train("like", train__max_steps=4, **settings)
    told = "best     evaluations before this start are of other data, of more or fewer samples"
    same = r.run(r.command("like", train__max_steps=6, resume="true", **settings))
    ring.check(same.code == 0 and told not in same.out, "as many samples at a resume: evaluations are compared", str(same))
    less = r.run(r.command("like", train__max_steps=8, resume="true", **(settings | {"eval__max_iters": 1})))
    marked = [step for step, row in ring.metrics(out).items() if row.get("measured_anew")]
    ring.check(less.code == 0 and told in less.out and marked == [7 if 7 in ring.metrics(out) else 8], "fewer samples: the best one is sought anew", str(less) + str(marked))


def an_end_of_skipped_steps_is_marked(r):
    """16-mixed skips a step whose loss is no number: no step that counts follows the weights of step 5."""
    half = {"precision": "16-mixed", "precision.initial_loss_scale": 1024.0}
    r.train("skips", train__max_steps=4, **QUIET, **half)
    for mode in ("sync", "async"):
        out = r.folder / f"skips-{mode}"
        shutil.copytree(r.folder / "skips", out)
        result = goes_on(r, out.name, 7, save__keep_last=1, save__mode=mode, **RUIN | {"optimizer__lr": 1e30}, **half)
        marked = [folder for folder in ring.step_folders(out) if "ruined" in json.loads((out / folder / "manifest.json").read_text())]
        ring.check(result.code == 0 and result.text.count("is skipped") == 2 and ring.step_folders(out) == ["step-00000004", *marked] and marked,
                   f"{mode}: a run that ends with skipped steps marks what it saved since step 4", str(result) + str(ring.step_folders(out)) + str(marked))


def another_precision_judges_no_checkpoint(r):
    """Weights whose products float16 cannot hold are no ruin: in 32-true the run goes on."""
    [safetensors] = ring.judges("safetensors.numpy")
    whole, wide = r.folder / "whole", r.folder / "wide-range"
    result = r.run([r.program, "checkpoint", "consolidate", str(r.train("seed", train__max_steps=1) / "step-00000001"), str(whole)])
    ring.require(result.code == 0, "weights alone", str(result))
    shutil.copytree(whole, wide)
    (wide / "manifest.json").unlink()
    weights = safetensors.load_file(whole / "model.safetensors")
    weights["model.embed_tokens.weight"][:, 0] = 100
    weights["model.layers.0.self_attn.v_proj.weight"][:, 0] = 6e4  # values are 8 times that
    safetensors.save_file(weights, wide / "model.safetensors", metadata={"format": "pt"})
    out = r.folder / "range"
    words = r.command("range", model={}, train__max_steps=2, **QUIET)
    result = r.run([str(wide) if word == "llama-5m" else word for word in words])
    ring.require(result.code == 0 and "ruined" not in result.text, "32-true trains them", str(result))
    half = r.run([r.program, "pretrain", "--resume", str(out), "--precision", "16-mixed", "--precision.initial_loss_scale", "4", "--train.max_steps", "9"])
    ring.check("is skipped" in half.text and "ruined" not in json.loads((out / "step-00000002" / "manifest.json").read_text()),
               "16-mixed cannot, and the checkpoint stays a good one", str(half))


def a_normal_run_is_never_marked(r):
    out = r.train("normal", devices=2, train__max_steps=30, save__keep_last=0, **QUIET)
    marked = [folder for folder in ring.step_folders(out) if "ruined" in json.loads((out / folder / "manifest.json").read_text())]
    ring.check(len(ring.step_folders(out)) == 30 and not marked, "30 saves of a normal run: none is marked", str(marked))
    high = r.run(r.command("high", devices=1, train__max_steps=12, save__keep_last=0, optimizer__lr=0.1, **QUIET))
    marked = [folder for folder in ring.step_folders(r.folder / "high") if "ruined" in json.loads((r.folder / "high" / folder / "manifest.json").read_text())]
    ring.check(high.code == 0 and not marked, "nor of one whose learning rate is 30 times too high", str(high) + str(marked))


def damaged_tensors_show_while_they_are_read(r):
    """Of a model of several blocks the damage lies behind what is looked at first."""
    out = r.train("large", model=ring.WIDE, devices=2, train__max_steps=4, train__save_interval=2, save__keep_last=0, eval__interval=100000)
    newest, older = out / "step-00000004", out / "step-00000002"
    ring.damage(newest / "model.safetensors")
    for name, words in (("generate", ["--prompt", "the sea", "--generate.max_new_tokens", "2"]), ("evaluate", ["--text", str(r.text), "--evaluate.limit", "2"])):
        for ranks in (1, 2):
            more = [*words, "--devices", str(ranks), "--mesh.tp", str(ranks)]
            found, good, named = (r.run([r.program, name, str(folder), *more]) for folder in (out, older, newest))
            ring.check(found.code == 0 and found.out == good.out and found.err.count(f"passed over {newest}") == 1,
                       f"{name} RUN_FOLDER, {ranks} of --devices, takes the older one, and says so", str(found) + str(good))
            ring.check(named.code == 2 and f"{newest} is damaged" in named.err, f"{name}: the damaged one that is named is refused", str(named))
    for path in newest.glob("optimizer-*.safetensors"):
        ring.damage(path)
    named = goes_on(r, "named", 5, model=ring.WIDE, devices=2, resume=newest)
    ring.check(named.code == 2 and f"{newest} is damaged" in named.err, "--resume FOLDER refuses the damaged one", str(named))
    result = goes_on(r, out.name, 5, model=ring.WIDE, devices=2, save__keep_last=0)
    ring.check(result.code == 0 and f"resumed  {older} at step 2" in result.out and f"passed over {newest}" in result.out,
               "--resume auto goes back to the older one", str(result))


def damaged_ones_are_passed_over(r):
    source = r.train("source", devices=2, train__max_steps=4, train__save_interval=2, save__keep_last=0, eval__interval=100000)
    names = sorted(path.name for path in (source / "step-00000004").iterdir())
    for name in names:
        out = r.folder / f"damaged-{name}"
        shutil.copytree(source, out)
        ring.damage(out / "step-00000004" / name)
        verify = r.run([r.program, "checkpoint", "verify", str(out / "step-00000004")])
        ring.require(verify.code == 1 and "damaged" in verify.out, f"verify calls a damaged {name} damaged", str(verify))
        result = goes_on(r, out.name, 5, devices=2, save__keep_last=0)
        ring.check(result.code == 0 and f"resumed  {out}/step-00000002 at step 2" in result.out and f"passed over {out}/step-00000004" in result.out,
                   f"--resume auto passes over a damaged {name}, and says so", str(result))
    out = r.folder / f"damaged-{names[0]}"
    for folder in ring.step_folders(out):
        (out / folder / "config.json").write_text("{}")
    for resume in ("auto", "true"):
        result = goes_on(r, out.name, 9, resume=resume)
        ring.check(result.code == 2 and "is good" in result.err and "config.json has 2 bytes" in result.err and "--resume FOLDER" in result.err,
                   f"--resume {resume} where no checkpoint is good is refused: it does not start afresh", str(result))
    result = goes_on(r, "fresh", 1)
    ring.check(result.code == 0, "--resume auto where there is none starts afresh", str(result))


with ring.Ring(sys.argv[1]) as r:
    follows(r, ruined_run(r, "ruined", "sync", 1))
    ruined_run(r, "ruined-async", "async", 2)
    weights_that_are_not_finite(r)
    the_best_one_stays(r)
    the_best_one_is_of_like_evaluations(r)
    an_end_of_skipped_steps_is_marked(r)
    another_precision_judges_no_checkpoint(r)
    a_normal_run_is_never_marked(r)
    damaged_ones_are_passed_over(r)
    damaged_tensors_show_while_they_are_read(r)
