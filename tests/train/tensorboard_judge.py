"""What TensorBoard reads of a run is what metrics.jsonl says of it, also after a resume, and nothing else is written.

tensorboard_judge.py TRIREME
"""

import contextlib
import json
import os
import signal
import struct
import sys

import ring

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: no tensorboard; scripts/setup --judges installs it")
    sys.exit(ring.SKIPPED)


EVENTS = "logs/tensorboard/version_0"  # as LitGPT has them


def scalars(folder):
    """{tag: {step: value}} as TensorBoard has them."""
    accumulator = EventAccumulator(str(folder / EVENTS), size_guidance={"scalars": 0})
    accumulator.Reload()
    found = {}
    for tag in accumulator.Tags()["scalars"]:
        events = accumulator.Scalars(tag)
        found[tag] = {event.step: event.value for event in events}
        ring.require(len(found[tag]) == len(events), f"{tag}: no step is there twice", str(events))
    return found


def texts(folder, tag):
    """[(step, text)] of a tag."""
    accumulator = EventAccumulator(str(folder / EVENTS), size_guidance={"tensors": 0})
    accumulator.Reload()
    ring.require(accumulator.SummaryMetadata(tag).plugin_data.plugin_name == "text", f"{tag} is a text", tag)
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in accumulator.Tensors(tag)]


def as_float(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def is_that_of_metrics(folder, steps):
    found, rows = scalars(folder), ring.metrics(folder)
    for tag in ("loss", "grad_norm", "lr", "tokens", "tokens_per_second", "seconds", "rss_bytes"):
        ring.check(found[tag] == {step: as_float(rows[step][tag]) for step in range(1, steps + 1)}, f"{tag} of {steps} steps", str(found[tag]))
    held_out = {step: as_float(row["val_loss"]) for step, row in rows.items() if "val_loss" in row}
    ring.check(found.get("val_loss", {}) == held_out and held_out, "held-out losses where there are any", str(found.get("val_loss")))


def kill_at(r, process, step):
    """SIGKILL to the launcher and all ranks once that step is logged; how many steps were."""
    ring.wait_for(lambda: newest_step(r.folder / "killed") >= step, f"step {step}", timeout=200)
    for pid in r.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    ring.wait_for(lambda: not r.processes(), "all ranks are gone")
    return newest_step(r.folder / "killed")


def newest_step(run):
    """Of the last whole line."""
    with contextlib.suppress(OSError, IndexError):
        return json.loads((run / "metrics.jsonl").read_text().rpartition("\n")[0].splitlines()[-1])["step"]
    return 0


def cut_last_record(run):
    """As if the machine had gone down in the middle of a write: the newest file ends within a record."""
    newest = max((run / EVENTS).iterdir(), key=lambda path: path.name)
    newest.write_bytes(newest.read_bytes()[:-7])


def survives_kills(r, kills=3, steps=240):
    """Nothing is missing and nothing is there twice after kills, each followed by a resume that repeats some steps."""
    run, repeated = r.folder / "killed", 0
    settings = {"train__max_steps": steps, "train__save_interval": 16, "save__keep_last": 2, "eval__interval": 40, "eval__max_iters": 2, "train__loggers": "[tensorboard, csv]"}
    command = r.command("killed", devices=2, **settings)
    for kill in range(1, kills + 1):
        seen = kill_at(r, r.start(command), kill * steps // (kills + 2) + 8)  # amid two saves
        saved = max(int(name[5:]) for name in ring.step_folders(run))
        ring.require(0 < saved <= seen < steps, f"kill {kill} comes amid the run", f"step {seen}, saved {saved}")
        repeated += seen - saved
        if kill == 2 and seen > saved:  # the step is repeated
            cut_last_record(run)
        command = [r.program, "pretrain", "--resume", str(run)]
    last = r.run(command, timeout=250)
    ring.require(last.code == 0, "the last start ends the run", str(last))
    ring.require(repeated > 0, "steps were repeated")
    is_that_of_metrics(run, steps)
    ring.check(len(list((run / EVENTS).iterdir())) == kills + 1, f"{kills} kills and resumes, {repeated} repeated steps: none is missing, none is there twice")


with ring.Ring(sys.argv[1]) as r:
    survives_kills(r)
    settings = {"train__max_steps": 6, "train__save_interval": 3, "eval__interval": 2, "train__loggers": "[tensorboard, csv]"}
    run = r.train("run", devices=2, **settings)
    is_that_of_metrics(run, 6)
    [(step, told)] = texts(run, "settings")
    ring.check(step == 0 and "max_steps: 6" in told and told.startswith("```\n"), "settings are a text", told)
    again = r.run([r.program, "pretrain", "--resume", str(run / "step-00000003"), "--train.max_steps", "8"])
    ring.require(again.code == 0, "the run goes on from its third step", str(again))
    is_that_of_metrics(run, 8)
    ring.check(len(list((run / EVENTS).iterdir())) == 2, "each start has a file of its own")
    (run / EVENTS / "notes.txt").write_text("mine")
    r.train("run", overwrite="true", **settings)
    ring.check(sorted(path.name == "notes.txt" for path in (run / EVENTS).iterdir()) == [False, True],
               "overwrite removes the earlier run's events, and nothing else")
    is_that_of_metrics(run, 6)
    plain = r.train("plain", train__max_steps=2)
    ring.check(not (plain / "logs/tensorboard").exists(), "without train.loggers nothing is written")
