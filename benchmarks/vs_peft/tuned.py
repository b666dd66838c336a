"""Runs one variant of plan.py and returns its figures; refuses figures of a run that did not compute what the other did."""
import json
import math
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from runner import Failed, execute, first_step
from shapes import BETA1, BETA2, LEARNING_RATE, MAX_NORM, SHAPES, WEIGHT_DECAY

HERE = Path(__file__).resolve().parent
SAME = 0.02  # of the first loss: both sides begin with the same weights and rows, in bf16


class Bench:
    """Keeps the base between runs, and the first loss that all of them must find."""

    def __init__(self, folder):
        self.folder, self.first_losses = Path(folder), {}

    def base(self, model, setup):
        base = self.folder / model
        if not base.exists():
            made = subprocess.run([setup.python, "-B", str(HERE / "base.py"), str(base), model, str(setup.sequence)], capture_output=True, text=True)
            if made.returncode != 0:
                raise Failed(f"no base: {made.stderr[-2000:]}")
        return base

    def measure(self, variant, setup):
        base = self.base(variant.model, setup)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            command = (ours if variant.side == "trireme" else peer)(variant, setup, base, folder)
            load = os.getloadavg()[0]
            times = execute(command, 1, setup, folder)
            found = of_metrics(variant, setup, Path(folder)) if variant.side == "trireme" else json.loads(Path(f"{folder}/result.json").read_text())
        found.update(variant=variant.name, other_cores=times["other_cores"], load=load, wall_seconds=times["seconds"],
                     command=" ".join(command).replace(folder, "DIR").replace(str(base), "BASE"), peak_rss_bytes=times["peak_rss_bytes"],
                     exec_to_first_step_seconds=first_step(times, variant), median_seconds=statistics.median(found["step_seconds"]))
        self.check(found, variant)
        return found

    def check(self, found, variant):
        """The same first loss everywhere, near that of an untrained model, and a lower one last."""
        is_dpo = "dpo" in variant.name  # a model that is its own reference begins at log 2
        losses, expected = found["losses"], math.log(2 if is_dpo else SHAPES[variant.model]["vocabulary"])
        first = self.first_losses.setdefault((variant.model, is_dpo, "nf4" in variant.name), losses[0])  # 4 bits are another model
        if not all(math.isfinite(loss) for loss in losses) or abs(losses[0] - expected) > 0.3 or abs(losses[0] - first) > SAME or losses[-1] >= losses[0]:
            raise Failed(f"{variant.name} went from loss {losses[0]:.3f} to {losses[-1]:.3f}; the other side began at {first:.3f}, an untrained "
                         f"{variant.model} near {expected:.3f}, and both learn, so its times are not compared")


def ours(variant, setup, base, folder):
    subcommand, *settings = variant.arguments
    steps = variant.warmup + variant.steps
    data = ["--data", "TextFiles", "--data.train_data_path", f"{base}/rows.jsonl", "--data.val_data_path", f"{base}/rows.jsonl"]
    if subcommand == "finetune_dpo":
        data = ["--data", "JSON", "--data.json_path", f"{base}/pairs.jsonl", "--data.val_data_path", f"{base}/pairs.jsonl", "--data.tokenizer", f"{base}/tokenizer"]
    return [setup.trireme, subcommand, str(base), *data, "--precision", variant.precision, "--devices", "2",
            "--launch.threads_per_rank", str(setup.threads), "--train.max_seq_length", str(setup.sequence),
            "--train.micro_batch_size", str(setup.micro_batch), "--train.global_batch_size", str(2 * setup.micro_batch),
            "--train.max_steps", str(steps), "--train.lr_warmup_steps", "0", "--train.lr_decay", "constant", "--train.max_norm", str(MAX_NORM),
            "--train.log_interval", "1", "--train.save_interval", str(steps), "--eval.final_validation", "false",
            "--optimizer.lr", str(LEARNING_RATE), "--optimizer.betas", f"[{BETA1}, {BETA2}]", "--optimizer.weight_decay", str(WEIGHT_DECAY),
            "--out_dir", f"{folder}/out", *settings]


def peer(variant, setup, base, folder):
    return [setup.python, "-B", str(HERE / ("peer_trl.py" if "--dpo" in variant.arguments else "peer.py")), "--base", str(base), *(word for word in variant.arguments if word != "--dpo"), "--threads", str(setup.threads),
            "--micro_batch_size", str(setup.micro_batch), "--max_seq_length", str(setup.sequence), "--warmup", str(variant.warmup),
            "--steps", str(variant.steps), "--json", f"{folder}/result.json"]


def of_metrics(variant, setup, folder):
    rows = [json.loads(line) for line in (folder / "out" / "metrics.jsonl").read_text().splitlines()]
    return dict(losses=[row["loss"] for row in rows], step_seconds=[row["seconds"] for row in rows[variant.warmup:]],
                warmup_seconds=[row["seconds"] for row in rows[:variant.warmup]], tokens_per_step=2 * setup.micro_batch * setup.sequence,
                peak_fraction=rows[-1].get("peak_fraction"))
