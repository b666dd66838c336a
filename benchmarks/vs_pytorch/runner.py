"""Runs one variant of plan.py and returns its figures; refuses figures of a run that did not learn."""
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from shapes import SHAPES, trireme_settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TIMEOUT_SECONDS = 600
LEARNED = 0.02  # of loss, on a batch seen again and again; an untrained model starts within 0.3 of ln(vocabulary)


class Failed(Exception):
    """A run whose figures do not count; the text says which and why."""


@dataclass
class Setup:
    trireme: str
    python: str
    prefix: list  # of every command, for instance ["nice", "-n", "-5"]
    threads: int = 1
    sequence: int = 512
    micro_batch: int = 2


def trireme_command(variant, setup, result, folder):
    devices = int(variant.arguments[variant.arguments.index("--devices") + 1])
    common = ["--precision", variant.precision, "--train.micro_batch_size", str(setup.micro_batch),
              "--train.max_seq_length", str(setup.sequence), "--model.max_position_embeddings", str(setup.sequence),
              "--launch.threads_per_rank", str(setup.threads), *variant.arguments]
    if variant.side == "train":
        return [setup.trireme, "pretrain", *trireme_settings(variant.model), *common, "--train.global_batch_size",
                str(devices * setup.micro_batch), "--train.max_steps", "1", "--eval.final_validation", "false", "--out_dir", f"{folder}/out",
                "--overwrite", "true"]
    return [setup.trireme, "bench", "train", *trireme_settings(variant.model), *common, "--bench.warmup", str(variant.warmup),
            "--bench.steps", str(variant.steps), "--json", result]


def peer_command(variant, setup, result):
    return [setup.python, "-B", str(HERE / "peer.py"), "--model", variant.model, "--precision", variant.precision, *variant.arguments,
            "--threads", str(setup.threads), "--micro_batch_size", str(setup.micro_batch), "--max_seq_length", str(setup.sequence),
            "--warmup", str(variant.warmup), "--steps", str(variant.steps), "--json", result]


def execute(command, copies, setup, folder):
    """Runs the command through timed.py; returns the notes on its output."""
    notes = Path(folder) / "times.json"
    whole = [*setup.prefix, sys.executable, "-B", str(HERE / "timed.py"), str(notes), str(copies), *command]
    try:
        done = subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {TIMEOUT_SECONDS} s: {' '.join(command)}") from None
    times = json.loads(notes.read_text()) if notes.exists() else dict(lines=[], status=done.returncode)
    if done.returncode != 0 or times["status"] != 0:
        output = "\n".join(text for _, _, text in times["lines"][-30:])
        raise Failed(f"status {done.returncode} of: {' '.join(command)}\n{output}{done.stderr[-2000:]}")
    return times


def together(results):
    """Processes that never talk as one result: their tokens add up, and so do their rates step by step."""
    first = dict(results[0])
    if len(results) > 1:
        tokens = sum(r["tokens_per_step"] for r in results)
        rates = [sum(r["tokens_per_step"] / s for r, s in zip(results, row)) for row in zip(*(r["step_seconds"] for r in results))]
        first.update(tokens_per_step=tokens, step_seconds=[tokens / rate for rate in rates],
                     peak_rss_bytes=max(r["peak_rss_bytes"] for r in results))
    return first


def check(result, name, model):
    """The run computed what it should: an untrained model's loss first, a lower one last."""
    losses, expected = result["losses"], math.log(SHAPES[model]["vocabulary"])
    learned = len(losses) < 2 or losses[-1] < losses[0] - LEARNED
    if not all(math.isfinite(loss) for loss in losses) or abs(losses[0] - expected) > 0.3 or not learned:
        raise Failed(f"{name} went from loss {losses[0]:.3f} to {losses[-1]:.3f}; an untrained {model} starts near "
                     f"{expected:.3f} and learns, so its times are not compared")


def first_step(times, variant):
    """Seconds from exec to the line that follows the first step; None where no line says so."""
    return next((seconds for seconds, _, text in times["lines"] if variant.first_line and text.startswith(variant.first_line)), None)


def pretrain_result(times, variant, setup):
    """What pretrain says of its first step; it writes no JSON."""
    for _, _, text in times["lines"]:
        found = re.match(r"step +1/1 +loss ([0-9.]+)", text)
        if found:
            return dict(losses=[float(found[1])], step_seconds=[], tokens_per_step=0, peak_rss_bytes=0)
    raise Failed(f"{variant.name} printed no line on its first step")


def measure(variant, setup):
    with tempfile.TemporaryDirectory() as folder:
        result = f"{folder}/result-{{copy}}.json"
        command = peer_command(variant, setup, result) if variant.side == "peer" else trireme_command(variant, setup, result, folder)
        load = os.getloadavg()[0]
        if variant.copies == 1:
            command = [word.replace("{copy}", "0") for word in command]
        times = execute(command, variant.copies, setup, folder)
        if variant.side == "train":
            found = pretrain_result(times, variant, setup)
        else:
            paths = [Path(result.replace("{copy}", str(copy))) for copy in range(variant.copies)]
            missing = [path for path in paths if not path.exists()]
            if missing:
                raise Failed(f"no result of: {' '.join(command)}")
            found = together([json.loads(path.read_text()) for path in paths])
    check(found, variant.name, variant.model)
    found.update(variant=variant.name, other_cores=times["other_cores"], command=" ".join(word.replace(folder, "DIR") for word in command), load=load,
                 wall_seconds=times["seconds"], exec_to_first_step_seconds=first_step(times, variant))
    if found["step_seconds"]:
        found["median_seconds"] = statistics.median(found["step_seconds"])
    return found
