"""A run saved on two ranks goes on on one, two or four; a rank killed in the middle of a save costs nothing saved.

resume.py TRIREME
"""

import os
import random
import shutil
import signal
import sys
import time

import ring

KILLS = 100 if ring.SLOW else 6  # of saves at once and beside training, and of ranks and launchers, in turn
# About 9 MB of weights and moments in several files: a save that takes a while.
LARGER = ring.LLAMA | {"hidden_size": 192, "intermediate_size": 384, "num_attention_heads": 4}


def goes_on_elsewhere(r):
    unbroken = r.train("unbroken", devices=2, train__max_steps=20, train__save_interval=10)
    ring.check(ring.step_folders(unbroken) == ["step-00000010", "step-00000020"], "a run of 20 steps saved at 10 and at 20")
    want, goal = ring.metrics(unbroken), ring.tensors(unbroken / "step-00000020")
    for ranks in (1, 2, 4):
        for strategy in ("full_shard", "no_shard") if ring.SLOW else ("full_shard",):
            out = r.train(f"on-{ranks}-{strategy}", devices=ranks, strategy=strategy, train__max_steps=20,
                          resume=unbroken / "step-00000010")
            rows = ring.metrics(out)
            ring.check(sorted(rows) == list(range(11, 21)), f"{ranks} ranks, {strategy}: goes on at step 11")
            worst = max(abs(rows[s]["loss"] - want[s]["loss"]) for s in rows)
            ring.check(worst <= 1e-5, f"{ranks} ranks, {strategy}: losses of steps 11 to 20 within {worst:.1e} of the unbroken run")
            end = ring.tensors(out / "step-00000020")
            ring.check(all(end[n].tobytes() == goal[n].tobytes() for n in goal), f"{ranks} ranks, {strategy}: ends in the same bits")


def newest_is(r, out, step, what):
    """A resumed run of one more step must start from `step` and verify every byte of it."""
    result = r.run(r.command(out, model=LARGER, devices=2, train__max_steps=step + 1, save__keep_last=0, resume="true",
                             train__save_interval=0))
    ring.check(result.code == 0 and f"step-{step:08} at step {step}" in result.out, f"{what}: resumes at step {step}", str(result))
    return result


def kill_in_a_save(r, number, source):
    out = f"killed-{number}"
    folder = r.folder / out
    command = r.command(out, model=LARGER, devices=2, train__max_steps=1000, train__save_interval=1, save__keep_last=0,
                        save__max_shard_bytes="1MB", save__mode="async" if number % 2 else "sync")
    by_launch = number % 4 < 2
    if by_launch and number % 3 == 2:  # in a folder that --resume says
        r.train(out, model=LARGER, devices=2, train__max_steps=1, save__keep_last=0)
        command = [r.program, "pretrain", "--resume", folder, "--train.max_steps", "1000", "--train.save_interval", "1"]
    launcher = r.start([r.program, "launch", "--nproc_per_node", "2", *command[1:]] if by_launch else command)
    pids = r.ranks(2)
    ring.wait_for(lambda: len(ring.step_folders(folder)) >= 1 + number % 3, "a first checkpoint")
    ring.wait_for(lambda: list(folder.glob(".tmp-*")), "a save under way", interval=0)
    time.sleep(source.random() * 0.02)
    name, pid = [("rank 0", pids[0]), ("rank 1", pids[1]), ("the launcher", launcher.pid)][number % 3]
    under_way = {path.name[5:18] for path in folder.glob(".tmp-*")}
    os.kill(pid, signal.SIGKILL)
    result = r.finish(launcher)
    where = f"kill {number + 1}, of {name}"
    r.require_nothing_is_left(out, where)
    steps = [int(name[5:]) for name in ring.step_folders(folder)]
    ring.check(steps == list(range(1, len(steps) + 1)), f"{where}: {len(steps)} whole checkpoints, nothing unfinished")
    if name != "the launcher":
        ring.check(result.code == 128 + signal.SIGKILL, f"{where}: exit code {result.code}", str(result))
        ring.check(f": {name} (pid {pid}) was killed by signal 9 (SIGKILL)" in result.err, f"{where}: named in the headline", str(result))
        ring.check(by_launch or f"step-{steps[-1]:08}" in result.err, f"{where}: the headline names the newest good checkpoint", str(result))
    interrupted = not under_way <= set(ring.step_folders(folder))
    newest_is(r, out, steps[-1], where)
    return interrupted


def saves_beside_training(r):
    at_once = r.train("at-once", model=LARGER, devices=2, train__max_steps=6, train__save_interval=2)
    beside = r.train("beside", model=LARGER, devices=2, train__max_steps=6, train__save_interval=2, save__mode="async")
    ring.check(ring.step_folders(beside) == ring.step_folders(at_once), "saves beside training: the same checkpoints")
    for name in ring.step_folders(at_once):
        files = {path.name: path.read_bytes() for path in (at_once / name).glob("*.safetensors")}
        ring.require(all((beside / name / file).read_bytes() == bytes_ for file, bytes_ in files.items()), f"{name}: the same bytes")
    ring.check(True, "saves beside training hold the state of their step, bit for bit, though training went on")
    result = r.run(r.command("every-step", model=LARGER, devices=2, train__max_steps=12, train__save_interval=1, save__mode="async",
                             save__keep_last=0))
    ring.check(result.code == 0 and len(ring.step_folders(r.folder / "every-step")) == 12, "a save that comes too soon waits for the one before", str(result))
    ring.check("waited   " in result.out and "for the save of step 1, which was still under way" in result.out, "and says so", str(result))
    ring.check("beside training, which stood still for " in result.out, "the time that training stood still is printed", str(result))
    plain = r.run([r.program, "explain", "memory", *r.command("x", model=LARGER, devices=2)[2:]])
    copy = r.run([r.program, "explain", "memory", *r.command("x", model=LARGER, devices=2, save__mode="async")[2:]])
    ring.check("copy for saving" in copy.out and "copy for saving" not in plain.out, "explain memory shows the copy", str(copy))
    huge = dict(model__hidden_size=16384, model__num_hidden_layers=48, model__intermediate_size=65536, model__num_attention_heads=128)
    result = r.run(r.command("huge", devices=2, save__mode="async", **huge))
    ring.check(result.code == 2 and "save.mode async keeps a copy of the state of every rank" in result.err and "are available" in result.err,
               "a copy that this machine cannot hold is refused at the start, with the numbers", str(result))
    ring.require(not (r.folder / "huge").exists(), "nothing was written")


def bytes_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def a_folder_holds_one_run(r):
    """A new run in a folder that holds another's checkpoints would replace some of them and leave others."""
    out = r.train("one-run", devices=2, train__max_steps=4, train__save_interval=2)
    first = out / "step-00000002"
    before = bytes_of(out)
    elsewhere = r.train("elsewhere", train__max_steps=2) / "step-00000002"
    for what, settings in [("a new run", {}), ("one that ends earlier", {"train__max_steps": 1}), ("one from its weights", {"model": {}, "name": first}),
                           ("one on two ranks", {"devices": 2}), ("one that resumes another's", {"resume": elsewhere}),
                           ("one whose launcher restarts it", {"devices": 2, "launch__max_restarts": 2})]:
        name = settings.pop("name", None)
        command = r.command("one-run", **settings)
        if name:
            command[command.index("llama-5m")] = str(name)
        result = r.run(command)
        ring.check(result.code == 2 and f"{out} holds checkpoints of another run (the newest is step-00000004)" in result.err and "--overwrite true" in result.err
                   and f"trireme pretrain --resume {out}" in result.err, f"refused beside another run's checkpoints: {what}", str(result))
        ring.require(bytes_of(out) == before, f"{what}: nothing was touched")
    result = r.run(r.command("one-run", train__max_steps=5, resume=first))
    ring.check(result.code == 0 and "resumed  " in result.out, "one that goes on from a step of it starts", str(result))
    for word in ("true", "auto"):
        result = r.run(r.command("one-run", resume=word, overwrite="true"))
        ring.check(result.code == 2 and "overwrite removes the run in" in result.err, f"resume {word} and overwrite contradict each other", str(result))
    command = r.command("one-run", model={}, overwrite="true")
    command[command.index("llama-5m")] = str(first)
    result = r.run(command)
    ring.check(result.code == 2 and f"overwrite would remove {first}, which the run starts from" in result.err, "overwrite keeps what the run starts from", str(result))
    (out / "step-notes").mkdir()
    (out / "step-00000077").mkdir()
    for mine in ("notes.txt", "logs/mine.log", "step-notes/a", "step-00000077/a"):
        (out / mine).write_text("mine")
    result = r.run(r.command("one-run", devices=2, overwrite="true", train__max_steps=0))
    ring.check(result.code == 2 and first.exists(), "a refused run has removed nothing", str(result))
    result = r.run(r.command("one-run", devices=2, overwrite="true", train__max_steps=3, train__save_interval=2))
    ring.check(result.code == 0 and ring.step_folders(out) == ["step-00000002", "step-00000003", "step-00000077", "step-notes"]
               and sorted(ring.metrics(out)) == [1, 2, 3], "overwrite: the folder holds the new run alone", str(result))
    ring.check((out / "logs/rank0.log").read_text().count("--- job") == 1, "its logs too")
    ring.check(all((out / mine).read_text() == "mine" for mine in ("notes.txt", "logs/mine.log", "step-notes/a", "step-00000077/a")),
               "and what is nobody's run stays")


def commands_that_measure_keep_their_records_apart(r):
    out = r.train("measured", devices=2, train__max_steps=2)
    before = bytes_of(out)
    for words in (["doctor", "--devices", "2"], ["evaluate", str(out), "--text", str(r.text), "--devices", "2", "--launch.threads_per_rank", "1"],
                  ["generate", str(out), "--prompt", "the", "--max_new_tokens", "2", "--devices", "2", "--mesh.tp", "2"]):
        result = r.run([r.program, *words, "--out_dir", str(out)])
        changed = [name for name, content in before.items() if bytes_of(out).get(name) != content]
        ring.check(result.code in (0, 1) and not changed, f"{words[0]} --out_dir of a run leaves its flight records and logs", f"{changed}\n{result}")
        ring.require((out / words[0] / "logs/rank0.log").exists(), f"its own are in {words[0]}/", str(result))


def one_rank_leaves_no_records_of_an_earlier_job(r):
    out = r.train("two-then-one", devices=2, train__max_steps=2)
    before = r.run([r.program, "report", "hang", str(out)])
    ring.check(before.code in (0, 1) and "rank 1" in before.out, "report hang speaks of the job of two ranks", str(before))
    r.train("two-then-one", devices=1, train__max_steps=3, resume="true")
    after = r.run([r.program, "report", "hang", str(out)])
    ring.check(after.code == 2 and "holds no flight recorder's files" in after.err, "and no longer, once one rank has gone on", str(after))


def what_the_optimizer_keeps(r, adamw):
    """A change of it is refused by its name before ranks start, and by --dry_run."""
    sgd = r.train("sgd", train__max_steps=2, optimizer="SGD")
    kahan = r.train("kahan", train__max_steps=2, precision="bf16-true", **{"precision.rounding": "kahan"})
    for out, words, told in [(adamw, ["--optimizer", "Lion"], "optimizer was AdamW, is Lion now"), (sgd, ["--optimizer.momentum", "0.9"], "is 0.9 now"),
                             (kahan, ["--precision.rounding", "nearest"], "precision.rounding was kahan, is nearest now"),
                             (kahan, ["--precision", "32-true", "--precision.rounding", "nearest"], "precision.rounding was kahan, is nearest now"),
                             (adamw, ["--precision", "bf16-true", "--precision.rounding", "kahan"], "precision.rounding was nearest, is kahan now")]:
        for more in ([], ["--dry_run"]):
            result = r.run([r.program, "pretrain", "--resume", str(out), "--devices", "2", "--train.max_steps", "9", *words, *more])
            ring.check(result.code == 2 and told in result.err and f"trireme pretrain {out}/step-" in result.err and "rank 0" not in result.err,
                       f"refused: {' '.join([*words, *more])}", str(result))
    result = r.run([r.program, "pretrain", "--resume", str(adamw), "--model.hidden_size", "128", "--dry_run"])
    ring.check(result.code != 0 and "[" in result.err and "embed_tokens" in result.err, "--dry_run compares the shapes of the checkpoint", str(result))
    result = r.run([r.program, "pretrain", "--resume", str(adamw), "--train.max_steps", "9", "--dry_run"])
    ring.check(result.code == 0 and "Nothing was started" in result.out, "and shows a resumed run that can start", str(result))
    for words, told in ((["--train.max_seq_length", "16"], "train.max_seq_length was 32 and is 16"), (["--data.packing", "best_fit"], "data.packing was wrapped and is best_fit")):
        result = r.run([r.program, "pretrain", "--resume", str(adamw), "--train.max_steps", "9", *words, "--dry_run"])
        ring.check(result.code == 2 and told in result.err and "--data.on_change restart" in result.err, f"--dry_run refuses other data: {words[0]}", str(result))
    result = r.run([r.program, "pretrain", "--resume", str(adamw), "--train.max_steps", "4", "--dry_run"])
    ring.check(result.code == 0 and "nothing to do: the run ends at step 4" in result.out and "Nothing was started" not in result.out,
               "and says where nothing is left to do", str(result))


def a_resume_knows_its_settings(r):
    """Nothing is repeated; the command line changes single settings, and each change is told."""
    settings = dict(train__max_steps=8, train__save_interval=4, train__lr_decay="constant", data__append_eos="false")
    whole = r.train("known-whole", **settings)
    out = r.train("known", devices=2, strategy="zero1", **settings | {"train__max_steps": 4})
    here = [r.program, "pretrain"]
    goal = ring.tensors(whole / "step-00000008")
    ways = {"--resume FOLDER": ["--resume", "{}", "--devices", "2"], "RUN_FOLDER --resume true": ["{}", "--resume", "true"],
            "CHECKPOINT --resume true": ["{}/step-00000004", "--resume", "true"], "--out_dir FOLDER --resume true": ["--out_dir", "{}", "--resume=true"]}
    for number, (what, words) in enumerate(ways.items()):
        copy = r.folder / f"known-{number}"
        shutil.copytree(out, copy)
        result = r.run([*here, *(word.format(copy) for word in words), "--train.max_steps", "8"])
        ring.check(result.code == 0 and "at step 4" in result.out and "changed  train.max_steps was 4, is 8 now" in result.out
                   and result.out.count("changed  ") == 1, f"{what}: goes on, and says what is changed", str(result))
        end = ring.tensors(copy / "step-00000008")
        ring.check(all(end[n].tobytes() == goal[n].tobytes() for n in goal), f"{what}: with the bits of a run that never ended")
    copy = r.folder / "changed"
    shutil.copytree(out, copy)
    (r.folder / "now.yaml").write_text("seed: 7\noptimizer: {lr: 1e-3}\n")
    result = r.run([*here, "--resume", str(copy), "--config", "now.yaml", "--train.global_batch_size", "4", "--train.max_steps=6", "--optimizer.lr", "2e-3"])
    for change in ("seed was 42, is 7 now", "train.global_batch_size was 8, is 4 now", "optimizer.lr was 0.003, is 0.002 now"):
        ring.check(result.code == 0 and change in result.out, f"told: {change}", str(result))
    result = r.run([*here, "--resume", str(copy), "--train.max_steps=8", "--model.tie_word_embeddings", "true"])
    ring.check(result.code == 2 and "lm_head.weight" in result.err and "model.tie_word_embeddings" in result.err, "tying weights that differ is refused", str(result))
    result = r.run([r.program, "explain", "config", "--resume", str(out), "--train.max_steps", "9"])
    ring.check(f"checkpoint {out}/step-00000004" in result.out and "zero1" not in result.out, "explain config says what comes from the checkpoint", str(result))
    what_the_optimizer_keeps(r, out)
    result = r.run([*here, str(out), "--data", "TextFiles", "--data.train_data_path", str(r.text), "--train.max_steps", "1", "--out_dir", str(r.folder / "from-run"),
                    "--train.max_seq_length", "32", "--train.global_batch_size", "4"])
    ring.check(result.code == 0 and f"weights  {out}/step-00000004" in result.out, "pretrain RUN_FOLDER starts from its newest checkpoint's weights", str(result))
    result = r.run([*here, str(out), "--out_dir", str(out), "--train.max_steps", "1"])
    ring.check(result.code == 2 and f"trireme pretrain --resume {out}" in result.err, "and beside them it is told how to go on", str(result))


def data_that_is_elsewhere_is_named(r):
    r.train("near", train__max_steps=1, data__train_data_path=r.text.name)
    (r.folder / "another-place").mkdir()
    command = [r.program, "pretrain", "--resume", str(r.folder / "near"), "--train.max_steps", "2"]
    result = r.run(["bash", "-c", 'cd another-place && exec "$0" "$@"', *command])
    ring.check(result.code == 2 and f"data.train_data_path {r.text.name} is taken over from the checkpoint" in result.err
               and "relative to the folder that this starts in, and is not there: say where the data is now, --data.train_data_path PATH" in result.err,
               "a run that goes on elsewhere says whose its data is", str(result))
    ledger = r.run(["bash", "-c", 'cd another-place && exec "$0" "$@"', r.program, "data", "ledger", *command[2:4], "--step", "1"])
    ring.check(ledger.code == 2 and f"data.train_data_path {r.text.name} is taken over from the checkpoint" in ledger.err, "and so does the ledger of its samples", str(ledger))
    result = r.run(["bash", "-c", 'cd another-place && exec "$0" "$@"', *command, "--data.train_data_path", f"../{r.text.name}"])
    ring.check(result.code == 0, "and goes on with data that is named again", str(result))
    (r.folder / "more.txt").write_text(r.text.read_text()[:9000])
    mixture = ["--data.mixture", f"[3 {r.text.name}, 1 more.txt]", "--data.on_change", "restart"]
    result = r.run([*command[:-1], "3", *mixture])
    ring.check(result.code == 0 and "order    begins at sample 0 of the new data" in result.out, "one text becomes a mixture", str(result))
    result = r.run(["bash", "-c", 'cd another-place && exec "$0" "$@"', *command[:-1], "4"])
    ring.check(result.code == 2 and f"data.mixture {r.text.name} is taken over from the checkpoint" in result.err
               and "--data.mixture '[SHARE PATH, ...]' with all of its paths" in result.err, "paths of a mixture are named, too", str(result))
    result = r.run([*command[:-1], "5", "--data.train_data_path", r.text.name])
    ring.check(result.code == 2 and "--data.on_change restart" in result.err, "a permission to change data holds for one start", str(result))
    result = r.run([*command[:-1], "5", "--data.train_data_path", r.text.name, "--data.on_change", "restart"])
    ring.check(result.code == 0, "and a mixture becomes one text again", str(result))


with ring.Ring(sys.argv[1]) as r:
    a_folder_holds_one_run(r)
    commands_that_measure_keep_their_records_apart(r)
    one_rank_leaves_no_records_of_an_earlier_job(r)
    a_resume_knows_its_settings(r)
    data_that_is_elsewhere_is_named(r)
    goes_on_elsewhere(r)
    saves_beside_training(r)
    source = random.Random(5)
    inside = sum(kill_in_a_save(r, number, source) for number in range(KILLS))
    ring.check(inside > 0, f"{inside} of {KILLS} kills fell into a save")
