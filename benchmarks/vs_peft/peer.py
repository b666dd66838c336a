#!/usr/bin/env python3
"""The peer: PEFT's adapters in transformers' Llama under DDP over Gloo, or transformers' full fine-tuning under autocast.

    python peer.py --base FOLDER --targets q_proj,v_proj --r 8 --steps 6 --json out.json

PEFT's own defaults: the base in the dtype of its files (bf16), adapters in fp32. The peer is not handicapped: each rank is
pinned to a core, AdamW is the fused one, buckets are views, the rows are made before the clock starts.
"""
import argparse
import json
import os
import resource
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../vs_pytorch"))
from base import ids, texts
from ranks import run_ranks
from shapes import BETA1, BETA2, LEARNING_RATE, MAX_NORM, WEIGHT_DECAY

FIRST_STEP = "first step done"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", required=True, help="folder that base.py made")
    parser.add_argument("--targets", default="q_proj,v_proj", help="modules with adapters, or all-linear")
    parser.add_argument("--r", type=int, default=8)
    parser.add_argument("--full", action="store_true", help="train all weights, in fp32 under autocast to bf16")
    parser.add_argument("--nf4", action="store_true", help="the base in 4 bits, with nested scales, by bitsandbytes")
    parser.add_argument("--autocast", action="store_true", help="adapters too compute in bf16, under autocast")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="threads, and cores, of a rank")
    parser.add_argument("--micro_batch_size", type=int, default=2)
    parser.add_argument("--max_seq_length", type=int, default=512)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", help="file for the result")
    return parser.parse_args()


def start_ranks(arguments):
    threads = str(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        shared = dict(os.environ, PEER_STORE=f"{folder}/store", OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, HF_HUB_OFFLINE="1")
        return run_ranks([sys.executable, "-B", *sys.argv], arguments.devices, shared)


def build(arguments):
    """The model to train, and whether it runs under autocast."""
    import torch
    from transformers import AutoModelForCausalLM
    if arguments.full:
        return AutoModelForCausalLM.from_pretrained(arguments.base, dtype=torch.float32, attn_implementation="sdpa"), True
    from peft import LoraConfig, get_peft_model
    bits = {}
    if arguments.nf4:
        from transformers import BitsAndBytesConfig
        bits = {"device_map": "cpu", "quantization_config": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                                                               bnb_4bit_compute_dtype=torch.bfloat16)}
    model = AutoModelForCausalLM.from_pretrained(arguments.base, dtype=torch.bfloat16, attn_implementation="sdpa", **bits)
    targets = arguments.targets if arguments.targets == "all-linear" else arguments.targets.split(",")
    config = LoraConfig(r=arguments.r, lora_alpha=2 * arguments.r, lora_dropout=0.05, target_modules=targets, task_type="CAUSAL_LM")
    return get_peft_model(model, config), arguments.autocast


def train(arguments, rank):
    import torch
    import torch.distributed as dist
    from torch.nn import functional as F
    torch.set_num_threads(arguments.threads)
    if arguments.devices > 1:
        dist.init_process_group("gloo", init_method=f"file://{os.environ['PEER_STORE']}", rank=rank, world_size=arguments.devices)
    torch.manual_seed(0)
    model, autocast = build(arguments)
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    trained = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True) if arguments.devices > 1 else model
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(BETA1, BETA2), weight_decay=WEIGHT_DECAY, fused=True)
    own = slice(rank * arguments.micro_batch_size, (rank + 1) * arguments.micro_batch_size)
    rows = torch.tensor([ids(text) for text in texts(arguments.max_seq_length)])[own]
    ids_BS, targets_BS = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits_BSV = trained(input_ids=ids_BS, use_cache=False).logits
        loss = F.cross_entropy(logits_BSV.flatten(0, 1).float(), targets_BS.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    losses, seconds = [], []
    for i in range(arguments.warmup + arguments.steps):
        start = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss)
        if i == 0 and rank == 0:
            print(f"{FIRST_STEP}, {seconds[0]:.3f} s", flush=True)
    losses = torch.stack(losses)
    if arguments.devices > 1:
        dist.all_reduce(losses)
        losses /= arguments.devices
    if rank == 0 and arguments.json:
        result = dict(losses=losses.tolist(), step_seconds=seconds[arguments.warmup:], warmup_seconds=seconds[:arguments.warmup],
                      tokens_per_step=arguments.devices * arguments.micro_batch_size * arguments.max_seq_length, trained=sum(p.numel() for p in parameters),
                      peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)
    if arguments.devices > 1:
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of Gloo sometimes abort a rank at the interpreter's end


def main():
    arguments = parse_arguments()
    if "RANK" not in os.environ:
        sys.exit(start_ranks(arguments))
    rank, threads, cores = int(os.environ["RANK"]), arguments.threads, sorted(os.sched_getaffinity(0))
    # Before torch starts its threads, so that they stay there too.
    os.sched_setaffinity(0, {cores[(rank * threads + i) % len(cores)] for i in range(threads)})
    train(arguments, rank)


if __name__ == "__main__":
    main()
