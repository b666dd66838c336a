"""Whatever is wrong is said in one helpful message with the right exit code, and nothing is left behind.

bad_input.py TRIREME
What can be refused before anything starts takes under a second of processor time; a full disk needs root (a tmpfs).
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import ring

SECONDS, WALL_SECONDS = 1, 30  # of processor time; on the wall, where other work shares the machine
UGLY = ("Traceback", "terminate called", "core dumped", "std::", "c10::", "Aborted")


def refuses(r, what, command, *words, started=False):
    """Exit code 2, one message with all `words`, quickly, nothing left."""
    out = pathlib.Path(command[command.index("--out_dir") + 1])
    before = {path.name for path in out.glob("*")}
    result = r.run(command)
    ring.require(result.code == 2, f"{what}: exit code 2", str(result))
    missing = [word for word in words if word not in result.err]
    ring.require(not missing, f"{what}: the message says {missing}", str(result))
    ring.require(not any(word in result.text for word in UGLY), f"{what}: no stack, no abort", str(result))
    ring.require(result.err.count("error:") == 1 and result.err.count("\n") <= 4, f"{what}: one message", str(result))
    if not started:
        ring.require(not result.out, f"{what}: nothing else is printed", result.out)
        ring.require((result.cpu_seconds < SECONDS or r.sanitized) and result.seconds < WALL_SECONDS, f"{what}: refused at once",
                     f"{result.cpu_seconds:.2f} s of processor time, {result.seconds:.2f} s")
        ring.require({path.name for path in out.glob("*")} == before, f"{what}: no file is made", str(list(out.glob("*"))))
    r.require_nothing_is_left(out, what)
    message = " / ".join(line.strip() for line in result.err.strip().splitlines()).replace(f"{r.folder}/", "")
    ring.check(True, f"{what} ({result.cpu_seconds:.2f} s of processor time, {result.seconds:.2f} s): {message}")


def settings_are_refused(r):
    def command(**settings):
        return r.command("refused", devices=2, **settings)

    yaml = r.folder / "mistake.yaml"
    yaml.write_text("train:\n  max_steps: 3\nlearnig_rate: 3e-4\n")
    refuses(r, "learnig_rate in a file", [*command(), "--config", str(yaml)], "mistake.yaml:3", "learnig_rate", "optimizer.lr")
    yaml.write_text("optimizer:\n  name: AdamW\n  learnig_rate: 3e-4\n")
    refuses(r, "optimizer.learnig_rate in a file", [*command(), "--config", str(yaml)], "mistake.yaml:3", "learnig_rate", "lr")
    refuses(r, "learnig_rate on the command line", [*command(), "--learnig_rate", "3e-4"], "learnig_rate", "optimizer.lr")
    yaml.write_text("train:\n  max_steps: many\n")
    refuses(r, "a text for a number in a file", [*command(), "--config", str(yaml)], "mistake.yaml:2", "train.max_steps", "many", "whole number")
    refuses(r, "a text for a number", command(train__micro_batch_size="four"), "train.micro_batch_size", "four", "whole number")
    refuses(r, "a batch that micro-batches do not divide", command(train__global_batch_size=7, train__micro_batch_size=2), "7",
            "train.global_batch_size", "micro-batches of 2")
    refuses(r, "a missing corpus", command(data__train_data_path=r.folder / "nowhere.txt"), "nowhere.txt", "no such file")
    (r.folder / "empty.txt").touch()
    refuses(r, "an empty file", command(data__train_data_path=r.folder / "empty.txt"), "empty.txt", "empty")
    refuses(r, "tokens for less than a step", command(train__max_steps="null", train__max_tokens=5), "train.max_tokens is 5", "shorter than one step")
    refuses(r, "a dry run that nothing ends", command(train__max_steps="null", dry_run="true"), "nothing says when to stop", "train.max_steps")
    refuses(r, "a dry run of a backend for programs", command(comm__backend="threads", dry_run="true"), "backend threads", "shm")
    refuses(r, "no devices", [*command(), "--devices", "0"], "devices", "at least 1")
    unknown = command()
    unknown[unknown.index("llama-5m")] = "lama-5m"
    refuses(r, "an unknown model", unknown, "lama-5m", "llama-5m")
    refuses(r, "a sequence longer than the model", command(train__max_seq_length=65), "65", "64", "max_position_embeddings")
    again = r.folder / "again"
    r.run(r.command("again", train__max_steps=1))
    model = r.folder / "a-model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    for more in ([], ["--devices", "2"], ["--dry_run", "true"]):
        result = r.run([r.program, "pretrain", "llama-5m", "--data", "TextFiles", "--data.train_data_path", str(r.text), "--train.max_steps", "1", "--out_dir", str(model), *more])
        ring.check(result.code == 2 and "is the folder of a model (it holds config.json)" in result.err and [p.name for p in model.iterdir()] == ["config.json"],
                   f"a model's folder is no out_dir, and nothing is left in it {more}", str(result))
    refuses(r, "to remove the run that it goes on with", [r.program, "pretrain", "--resume", str(again), "--overwrite", "true", "--out_dir", str(again)], "overwrite removes the run in")
    ring.check((again / "step-00000001").exists(), "its checkpoints stay")
    refuses(r, "nothing to resume", command(resume="true"), "holds no complete checkpoint", "--resume auto")


def a_run_of_no_step_is_refused(r):
    """Only the tokenized text tells how many steps an epoch has, so that it is kept."""
    result = r.run(r.command("short", devices=2, train__max_steps=5, train__epochs=1, train__global_batch_size=1000))
    ring.check(result.code == 2 and "train.epochs 1" in result.err and "shorter than one step" in result.err and not result.out,
               "epochs of less than a step are refused", str(result))


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def damage_is_refused(r):
    whole = r.train("whole", devices=2, train__max_steps=4, train__save_interval=2, optimizer__lr=1e-3)
    ring.check(ring.step_folders(whole) == ["step-00000002", "step-00000004"], "two checkpoints to damage")

    def damaged(name):
        copy = r.folder / name
        shutil.copytree(whole, copy)
        return copy, r.command(name, devices=2, train__max_steps=6, resume=copy / "step-00000004")

    copy, command = damaged("truncated")
    os.truncate(copy / "step-00000004" / "model.safetensors", 1000)
    refuses(r, "a truncated checkpoint", command, "model.safetensors", "1,000", "step-00000004", "step-00000002")

    copy, command = damaged("missing")
    (copy / "step-00000004" / "optimizer-00001-of-00001.safetensors").unlink()
    refuses(r, "a checkpoint without one of its files", command, "optimizer-00001-of-00001.safetensors")

    copy, command = damaged("manifest")
    flip(copy / "step-00000004" / "manifest.json", 40)
    refuses(r, "a damaged manifest", command, "manifest")

    copy, command = damaged("flipped")
    flip(copy / "step-00000004" / "optimizer-00001-of-00001.safetensors", 500_000)
    refuses(r, "one flipped byte beside the headers", command, "optimizer-00001-of-00001.safetensors", "block 0", "step-00000002")

    copy, command = damaged("flipped-later")  # no header lies in the second MiB: the ranks find it as they load
    flip(copy / "step-00000004" / "optimizer-00001-of-00001.safetensors", (1 << 20) + 1000)
    refuses(r, "one flipped byte that ranks find", command, "optimizer-00001-of-00001.safetensors", "block 1", "step-00000002", started=True)
    result = r.run(r.command("flipped-later", devices=2, train__max_steps=6, resume=copy / "step-00000002"))
    ring.check(result.code == 0 and "at step 2" in result.out, "one flipped byte: the older checkpoint that was named resumes", str(result))


def disk_is_full(r):
    mount = r.folder / "small"
    mount.mkdir()
    # Two checkpoints of the tiny model (1.3 MB each) and no third.
    made = os.geteuid() == 0 and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3400k", "tmpfs", mount], capture_output=True).returncode == 0
    if not made:
        print("skipped a full disk: no right to mount a tmpfs")
        return
    try:
        result = r.run(r.command("small", devices=2, train__max_steps=9, train__save_interval=2, save__keep_last=0))
        ring.check(result.code == 74, "a full disk: exit code 74, with which batch jobs are queued again", str(result))
        ring.check("small" in result.err and "space" in result.err and not any(word in result.text for word in UGLY),
                   f"a full disk: {' / '.join(result.err.strip().splitlines())[:300]}", str(result))
        steps = ring.step_folders(mount)
        ring.check(steps and steps[-1] < "step-00000009", f"a full disk: {len(steps)} older checkpoints stay", str(result))
        r.require_nothing_is_left("small", "a full disk")
        result = r.run(r.command("elsewhere", devices=2, train__max_steps=9, resume=mount / steps[-1]))
        ring.check(result.code == 0 and steps[-1] in result.out, f"a full disk: {steps[-1]} resumes elsewhere", str(result))
    finally:
        subprocess.run(["umount", "-l", mount], check=False)


def is_training(r, out):
    with contextlib.suppress(OSError):
        return "step" in (r.folder / out / "metrics.jsonl").read_text()


def stops_when_asked(r, number, whom):
    out = f"stopped-{number.name}-{whom}"
    process = r.start(r.command(out, devices=2, train__max_steps=1_000_000, train__save_interval=0))
    ring.wait_for(lambda: is_training(r, out), "a first step")
    pids = r.ranks(2)
    os.kill(process.pid if whom == "launcher" else pids[1], number)
    result = r.finish(process)
    what = f"{number.name} to the {whom}"
    ring.check(result.code == 75, f"{what}: exit code 75", str(result))
    ring.check("continue with" in result.out and "--resume" in result.out, f"{what}: says how to go on", str(result))
    r.require_nothing_is_left(out, what)
    [step] = [int(name[5:]) for name in ring.step_folders(r.folder / out)]
    ring.check(f"stopped at step {step}" in result.out, f"{what}: saved at step {step}, where it stopped", str(result))
    result = r.run(r.command(out, devices=1, train__max_steps=step + 2, resume="true"))
    ring.check(result.code == 0 and f"at step {step}" in result.out, f"{what}: resumes at step {step} on one rank", str(result))


def rank_dies(r, rank):
    out = f"dead-{rank}"
    process = r.start(r.command(out, devices=2, train__max_steps=1_000_000, train__save_interval=0))
    ring.wait_for(lambda: is_training(r, out), "a first step")
    pids = r.ranks(2)
    killed = time.monotonic()
    os.kill(pids[rank], signal.SIGKILL)
    result = r.finish(process)
    what = f"kill -9 of rank {rank}"
    headline = next((line for line in result.err.splitlines() if line.startswith("job failed")), "")
    ring.check(result.code == 137, f"{what}: exit code 137", str(result))
    ring.check(f"rank {rank} (pid {pids[rank]}) was killed by signal 9 (SIGKILL)" in headline, f"{what}: {headline}", str(result))
    ring.check(not any(word in result.text for word in UGLY), f"{what}: no stack, no abort", str(result))
    ring.check(time.monotonic() - killed < 45, f"{what}: over after {time.monotonic() - killed:.1f} s")
    r.require_nothing_is_left(out, what)


def launcher_dies(r):
    out = "orphans"
    process = r.start(r.command(out, devices=2, train__max_steps=1_000_000, train__save_interval=0))
    ring.wait_for(lambda: is_training(r, out), "a first step")
    process.kill()
    process.wait()
    r.require_nothing_is_left(out, "kill -9 of the launcher")
    ring.check(True, "kill -9 of the launcher leaves no process")


with ring.Ring(sys.argv[1]) as r:
    settings_are_refused(r)
    a_run_of_no_step_is_refused(r)
    damage_is_refused(r)
    disk_is_full(r)
    stops_when_asked(r, signal.SIGINT, "launcher")
    stops_when_asked(r, signal.SIGTERM, "launcher")
    if ring.SLOW:
        stops_when_asked(r, signal.SIGTERM, "rank 1")
    for rank in (0, 1):
        rank_dies(r, rank)
    launcher_dies(r)
