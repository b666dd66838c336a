"""Trains a Llama with DeepSpeed's ZeRO-Infinity on one CPU rank: weights, gradients and optimizer state in files. Writes the seconds of each step as JSON.

peer.py --precision P --shape JSON --sequence N --rows N --threads N --warmup N --steps N --path FOLDER --json FILE      run starts it
The file FILE.begun appears before the first timed step.
"""
import argparse
import json
import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import deepspeed
import torch

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent.parent / "vs_pytorch"))
import models

BLOCK, DEPTH = 1 << 20, 8  # as Trireme's


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = {"precision": str, "shape": json.loads, "path": str, "json": str} | dict.fromkeys(("sequence", "rows", "threads", "warmup", "steps"), int)
    for name, kind in kinds.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    return parser.parse_args()


def settings(arguments, tensors, largest):
    """
    A buffer for each weight: 0.19.8 does not give them back before the step ends ("Not enough buffers 0 for swapping 1"). Nothing is read ahead: what is
    read ahead is read twice ("already assigned swap buffer"). One more optimizer step is read and written while one is computed.
    """
    nvme = {"device": "nvme", "nvme_path": arguments.path}
    return {"train_micro_batch_size_per_gpu": arguments.rows, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "bf16": {"enabled": arguments.precision == "bf16-mixed"},
            "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
            "zero_optimization": {"stage": 3, "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": largest, "reduce_bucket_size": largest,
                                  "stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 4 * largest, "stage3_param_persistence_threshold": 0,
                                  "offload_param": {**nvme, "buffer_count": tensors, "buffer_size": largest, "max_in_cpu": 0},
                                  "offload_optimizer": {**nvme, "buffer_count": 12, "pipeline_read": True, "pipeline_write": True}},
            "aio": {"block_size": BLOCK, "queue_depth": DEPTH, "intra_op_parallelism": 1, "single_submit": False, "overlap_events": True}}


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    deepspeed.init_distributed(dist_backend="gloo")
    shape = SimpleNamespace(**arguments.shape)
    dtype = torch.bfloat16 if arguments.precision == "bf16-mixed" else torch.float32
    with torch.device("meta"):
        sizes = [weight.numel() for weight in models.Plain(shape, arguments.sequence, dtype).parameters()]
    config = settings(arguments, len(sizes), max(sizes))
    # Built elsewhere, the weights become bfloat16 on processors without float16: DeepSpeed 0.19.8, partition_parameters.py, line 410.
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = models.Plain(shape, arguments.sequence, dtype)
    for name, weight in model.named_parameters():
        with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):
            models.draw(name, weight, shape)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    tokens = torch.randint(shape.vocabulary, (arguments.rows, arguments.sequence + 1))
    seconds, losses = [], []
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            Path(f"{arguments.json}.begun").touch()
        start = time.perf_counter()
        loss = engine(tokens[:, :-1], tokens[:, 1:])
        engine.backward(loss)
        engine.step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    if abs(losses[0] - math.log(shape.vocabulary)) > 0.3 or losses[-1] >= losses[0]:
        sys.exit(f"peer: the losses are not those of a model that learns: {losses}")
    Path(arguments.json).write_text(json.dumps({"step_seconds": seconds[arguments.warmup:], "losses": losses, "version": deepspeed.__version__}))


if __name__ == "__main__":
    main()
