"""DeepSpeed's own reader of its files agrees with ours on the batch triple, stage, optimizer, prefetch, limits and dtypes.

deepspeed_judge.py TRIREME
Files are drawn at random; half of them give two of the three batch sizes wrongly for the ranks, and are refused by both.
DeepSpeed's reader asks torch.distributed for the number of ranks, so this process claims to be one of so many.
TRIREME_SLOW=1 draws 200 files. Skipped where `deepspeed` is not installed: PyPI has its source only.
"""

import json
import os
import pathlib
import random
import sys

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", DS_LOG_LEVEL="error")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
import ring

[deepspeed] = ring.judges("deepspeed.runtime.config")

COUNT = 200 if ring.SLOW else 30
STAGES = ["no_shard", "zero1", "shard_grad_op", "full_shard"]


def maybe(draw, tree, key, values, chance=0.5):
    if draw.random() < chance:
        tree[key] = draw.choice(values)


def one_file(draw):
    tree, zero, params = {}, {}, {}
    batch = draw.sample(["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"], draw.choice([1, 2, 3]))
    for key in batch:
        tree[key] = draw.choice([16, 24, 32, 64] if key == "train_batch_size" else [1, 2, 3, 4])
    if batch == ["gradient_accumulation_steps"]:
        tree["train_batch_size"] = 48
    maybe(draw, zero, "stage", [0, 1, 2, 3], 0.9)
    maybe(draw, zero, "reduce_bucket_size", [1000000, 5e8])
    maybe(draw, zero, "overlap_comm", [True, False])
    maybe(draw, zero, "stage3_prefetch_bucket_size", [0, 5e7])
    maybe(draw, zero, "stage3_max_live_parameters", [1e6, 1e9])
    maybe(draw, zero, "stage3_param_persistence_threshold", [0, 1e5])
    maybe(draw, zero, "contiguous_gradients", [True, False])
    if zero:
        tree["zero_optimization"] = zero
    maybe(draw, tree, "gradient_clipping", [0.0, 0.5, 1.0])
    maybe(draw, tree, "steps_per_print", [1, 10])
    maybe(draw, tree, "bf16", [{"enabled": True}, {"enabled": False}])
    if draw.random() < 0.5:
        maybe(draw, params, "lr", [1e-3, 2e-4])
        maybe(draw, params, "weight_decay", [0.0, 0.1])
        maybe(draw, params, "betas", [[0.9, 0.95]])
        tree["optimizer"] = {"type": draw.choice(["Adam", "AdamW", "Lion"]), "params": params}
    return tree


def what_deepspeed_reads(path, ranks):
    """None where DeepSpeed refuses the file."""
    class OfSoMany:  # as deepspeed.runtime.config asks it
        def get_rank(self, *_):
            return 0

        def get_world_size(self, *_, **__):
            return ranks

        def is_initialized(self):
            return True

        def __getattr__(self, name):
            return lambda *_, **__: None

    deepspeed.dist = OfSoMany()
    try:
        read = deepspeed.DeepSpeedConfig(str(path))
    except (AssertionError, ZeroDivisionError, deepspeed.DeepSpeedConfigError):
        return None
    if read.train_micro_batch_size_per_gpu * read.gradient_accumulation_steps * ranks != read.train_batch_size:
        return None
    text, zero = path.read_text(), read.zero_config
    found = {"strategy": STAGES[int(zero.stage)], "train.global_batch_size": read.train_batch_size,
             "train.micro_batch_size": read.train_micro_batch_size_per_gpu, "train.max_norm": read.gradient_clipping or "null"}
    if "bf16" in text:
        found["precision"] = "bf16-mixed" if read.bfloat16_config.enabled else "32-true"
    if "overlap_comm" in text:
        found["schedule.reduce_lag"] = int(zero.overlap_comm)
    if "prefetch_bucket_size" in text and zero.stage == 3:
        found["schedule.prefetch"] = min(int(zero.prefetch_bucket_size), 1)
    if "max_live" in text:
        found["schedule.limit_unsharded"] = int(zero.max_live_parameters)
    if "reduce_bucket_size" in text and zero.stage in (1, 2):
        found["wrap.min_num_params"] = int(zero.reduce_bucket_size)
    if read.steps_per_print:
        found["train.log_interval"] = read.steps_per_print
    if read.optimizer_name:
        params = read.optimizer_params or {}
        found["optimizer"] = "Lion" if read.optimizer_name == "lion" else "AdamW"
        found |= {"optimizer.lr": params.get("lr", 1e-3), "optimizer.weight_decay": params.get("weight_decay", 0.0)}
    return found


def what_we_read(r, path, ranks):
    result = r.run([r.program, "explain", "config", "llama-5m", "--config", str(path), "--devices", str(ranks)])
    if result.code == 2:
        ring.require("train_" in result.err or "gradient_accumulation" in result.err, "only batches are refused", f"{path.read_text()}{result}")
        return None
    ring.require(result.code == 0, f"{path.name} is read", f"{path.read_text()}{result}")
    return {words[0]: words[1] for line in reversed(result.out.splitlines()) if len(words := line.split()) > 1}


def same(ours, theirs):
    return ours == theirs if isinstance(theirs, str) else float(ours.replace(",", "")) == theirs


with ring.Ring(sys.argv[1]) as r:
    draw = random.Random(19)
    compared = refused = 0
    for number in range(COUNT):
        ranks = draw.choice([1, 2, 4, 8])
        path = r.folder / f"file{number}.json"
        path.write_text(json.dumps(one_file(draw)))
        theirs, ours = what_deepspeed_reads(path, ranks), what_we_read(r, path, ranks)
        ring.require((theirs is None) == (ours is None), f"both take {path.name} on {ranks} ranks, or neither",
                     f"{path.read_text()}\nDeepSpeed: {theirs}\nhere: {ours}")
        refused += theirs is None
        for key, value in (theirs or {}).items():
            ring.require(key in ours and same(ours[key], value), f"{key} of {path.name} on {ranks} ranks is {value} for DeepSpeed, {ours.get(key)} here",
                         path.read_text())
            compared += 1
    ring.check(True, f"DeepSpeed's reader and Trireme's agree on {compared} values of {COUNT - refused} files, and refuse {refused}")
