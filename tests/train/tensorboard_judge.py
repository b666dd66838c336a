"""What TensorBoard reads of a run is what metrics.jsonl says of it, also after a resume, and nothing else is written.

tensorboard_judge.py TRIREME
"""

import struct
import sys

import ring

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: no tensorboard; scripts/setup --judges installs it")
    sys.exit(ring.SKIPPED)


def scalars(folder):
    """{tag: {step: value}} as TensorBoard has them."""
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    found = {}
    for tag in accumulator.Tags()["scalars"]:
        events = accumulator.Scalars(tag)
        found[tag] = {event.step: event.value for event in events}
        ring.require(len(found[tag]) == len(events), f"{tag}: no step is there twice", str(events))
    return found


def texts(folder, tag):
    """[(step, text)] of a tag."""
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"tensors": 0})
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
    ring.check(found["val_loss"] == held_out and held_out, "held-out losses where there are any", str(found["val_loss"]))


with ring.Ring(sys.argv[1]) as r:
    settings = {"train__max_steps": 6, "train__save_interval": 3, "eval__interval": 2, "train__loggers": "[tensorboard, csv]"}
    run = r.train("run", devices=2, **settings)
    is_that_of_metrics(run, 6)
    [(step, told)] = texts(run, "settings")
    ring.check(step == 0 and "max_steps: 6" in told and told.startswith("```\n"), "settings are a text", told)
    again = r.run([r.program, "pretrain", "--resume", str(run / "step-00000003"), "--train.max_steps", "8"])
    ring.require(again.code == 0, "the run goes on from its third step", str(again))
    is_that_of_metrics(run, 8)
    ring.check(len(list((run / "tensorboard").iterdir())) == 2, "each start has a file of its own")
    (run / "tensorboard" / "notes.txt").write_text("mine")
    r.train("run", overwrite="true", **settings)
    ring.check(sorted(path.name == "notes.txt" for path in (run / "tensorboard").iterdir()) == [False, True],
               "overwrite removes the earlier run's events, and nothing else")
    is_that_of_metrics(run, 6)
    plain = r.train("plain", train__max_steps=2)
    ring.check(not (plain / "tensorboard").exists(), "without train.loggers nothing is written")
