"""DeepSpeed's own reader of its files agrees with ours on the batch triple, stage, optimizer, prefetch, limits and dtypes.

deepspeed_judge.py TRIREME
Files are drawn at random; half of them give two of the three batch sizes wrongly for the ranks, and are refused by both.
DeepSpeed's reader asks torch.distributed for the number of ranks, so this process claims to be one of so many.
Every key of its classes is on docs/dialects.md. TRIREME_SLOW=1 draws 200 files.
"""

import json
import os
import random
import sys

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", DS_LOG_LEVEL="error")
import judging
import ring

[deepspeed] = ring.judges("deepspeed.runtime.config")
from deepspeed.runtime.config_utils import DeepSpeedConfigModel

# Where each class of settings stands in a file.
MAPS = {"DeepSpeedZeroConfig": "zero_optimization.", "DeepSpeedZeroOffloadParamConfig": "zero_optimization.offload_param.",
        "DeepSpeedZeroOffloadOptimizerConfig": "zero_optimization.offload_optimizer.", "DeepSpeedBF16Config": "bf16.",
        "DeepSpeedFP16Config": "fp16.", "TPTrainingConfig": "tensor_parallel.", "CommsLoggerConfig": "comms_logger.",
        "TensorBoardConfig": "tensorboard.", "WandbConfig": "wandb.", "CSVConfig": "csv_monitor.", "CometConfig": "comet.",
        "CompileConfig": "compile."}
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
    if zero.get("stage") == 3:
        maybe(draw, zero, "zero_hpz_partition_size", [1, 2])  # DeepSpeed 0.19.8 has no MiCS any more; files still have it
    if zero:
        tree["zero_optimization"] = zero
    maybe(draw, tree, "gradient_clipping", [0.0, 0.5, 1.0])
    maybe(draw, tree, "steps_per_print", [1, 10])
    if draw.random() < 0.3:
        tree["fp16"] = {"enabled": True}
        for key, values in [("loss_scale", [0, 1024]), ("initial_scale_power", [8, 12]), ("loss_scale_window", [500]), ("hysteresis", [3]),
                            ("min_loss_scale", [2]), ("consecutive_hysteresis", [True])]:
            maybe(draw, tree["fp16"], key, values)
    else:
        maybe(draw, tree, "bf16", [{"enabled": True}, {"enabled": False}])
    if tree.get("bf16", {}).get("enabled"):
        maybe(draw, tree, "communication_data_type", ["fp32", "bf16"])
        maybe(draw, tree, "data_types", [{"grad_accum_dtype": "fp32"}, {}])
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
    group = zero.zero_hpz_partition_size
    found = {"strategy": "hybrid_shard" if 1 < group < ranks else STAGES[int(zero.stage)], "train.global_batch_size": read.train_batch_size,
             "train.micro_batch_size": read.train_micro_batch_size_per_gpu, "train.max_norm": read.gradient_clipping or "null"}
    if 1 < group < ranks:
        found["mesh.shard"] = group
    half, brain = read.float16_config, read.bfloat16_config
    found["precision"] = "16-mixed" if half.enabled else "bf16-mixed" if brain.enabled else "32-true"
    if half.enabled:
        found |= {"precision.initial_loss_scale": half.initial_dynamic_scale(), "precision.loss_scale_window": half.loss_scale_window,
                  "precision.loss_scale_hysteresis": half.hysteresis, "precision.min_loss_scale": half.min_loss_scale,
                  "precision.consecutive_hysteresis": half.consecutive_hysteresis, "precision.loss_scale": half.loss_scale or "null"}
    if read.communication_data_type is not None:
        found["precision.reduce"] = "fp32" if "32" in str(read.communication_data_type) else "compute"
    if read.grad_accum_dtype is not None:
        found["precision.gradients"] = read.grad_accum_dtype
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


def classes(base=DeepSpeedConfigModel):
    for one in base.__subclasses__():
        yield one
        yield from classes(one)


def keys():
    for one in classes():
        for name, field in one.model_fields.items():
            yield from [MAPS[one.__name__] + key for key in {name, field.alias or name}] if one.__name__ in MAPS else []


with ring.Ring(sys.argv[1]) as r:
    judging.require_all_known("deepspeed", sorted(keys()))
    draw = random.Random(19)
    compared = accepted = refused = number = 0
    while accepted < judging.COUNT:  # and so many are taken by both
        number += 1
        ranks = draw.choice([1, 2, 4, 8])
        path = r.folder / f"file{number}.json"
        path.write_text(json.dumps(one_file(draw)))
        theirs, ours = what_deepspeed_reads(path, ranks), judging.what_we_read(r, "--config", str(path), "--devices", str(ranks))
        if is_refused := isinstance(ours, str):
            ring.require("train_" in ours or "gradient_accumulation" in ours, "only batches are refused", f"{path.read_text()}\n{ours}")
        ring.require((theirs is None) == is_refused, f"both take {path.name} on {ranks} ranks, or neither",
                     f"{path.read_text()}\nDeepSpeed: {theirs}\nhere: {ours}")
        refused += is_refused
        accepted += not is_refused
        if not is_refused:
            compared += judging.compare(ours, theirs, path, f" on {ranks} ranks")
    ring.check(True, f"DeepSpeed's reader and Trireme's agree on {compared} values of {accepted} files, and refuse {refused}")
