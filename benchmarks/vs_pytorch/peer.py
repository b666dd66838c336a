#!/usr/bin/env python3
"""The peer: the same Llama as Trireme's, trained by PyTorch on CPU ranks over Gloo, or alone on a GPU.

    python peer.py --peer fsdp2 --steps 10 --json out.json

Peers: fsdp2 and ddp on the plain model, single (one rank, no communication), litgpt (its GPT under Lightning
Fabric's DDP) and accelerate (transformers' Llama under its DDP). Started without RANK it starts its own ranks, each
on cores of its own. The peer is not handicapped: models.py fuses what PyTorch can fuse, AdamW is the fused one, the
data is made before the clock starts. What the frameworks add is their own.
"""
import argparse
import importlib.metadata
import json
import os
import resource
import socket
import statistics
import sys
import tempfile
import time

from ranks import run_ranks
from shapes import BETA1, BETA2, LEARNING_RATE, MAX_NORM, SHAPES, WEIGHT_DECAY

FIRST_STEP = "first step done"  # timed.py notes when this line appears
MODEL_OF = {"litgpt": "litgpt", "accelerate": "transformers"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=SHAPES, default="llama-32m")
    parser.add_argument("--peer", choices=["fsdp2", "ddp", "single", "litgpt", "accelerate"], default="fsdp2")
    parser.add_argument("--precision", choices=["bf16-mixed", "32-true"], default="bf16-mixed")
    parser.add_argument("--compile", action="store_true", help="torch.compile each block, and the head with the loss")
    parser.add_argument("--attention", choices=["default", "flash", "cudnn"], default="default", help="the only kernel that may run")
    parser.add_argument("--accelerator", choices=["cpu", "cuda"], default="cpu", help="cuda: with --peer single")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="threads, and cores, of a rank")
    parser.add_argument("--micro_batch_size", type=int, default=2)
    parser.add_argument("--max_seq_length", type=int, default=512)
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--no_pin", action="store_true", help="let ranks move between cores")
    parser.add_argument("--json", help="file for the result")
    arguments = parser.parse_args()
    if arguments.accelerator == "cuda" and arguments.peer != "single":
        parser.error("--accelerator cuda goes with --peer single: one rank on one GPU")
    return arguments


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_ranks(arguments):
    """Runs this file once per rank; returns the first exit status that is not 0."""
    threads, devices = str(arguments.threads), str(arguments.devices)
    with tempfile.TemporaryDirectory() as folder:
        shared = dict(os.environ, PEER_STORE=f"{folder}/store", OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads,
                      WORLD_SIZE=devices, LOCAL_WORLD_SIZE=devices, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                      ACCELERATE_USE_CPU="true")
        return run_ranks([sys.executable, __file__, *sys.argv[1:]], arguments.devices, shared)


def pin(rank, threads):
    """Ties this rank to cores of its own; called before torch starts its threads, so that they stay there too."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(rank * threads + i) % len(cores)] for i in range(threads)})


def main():
    arguments = parse_arguments()
    if arguments.peer == "single":
        arguments.devices = 1
    if "RANK" not in os.environ:
        sys.exit(start_ranks(arguments))
    rank = int(os.environ["RANK"])
    if not arguments.no_pin:
        pin(rank, arguments.threads)
    train(arguments, rank)


def wrap(arguments, model, optimizer_of):
    """The model and optimizer under the peer's strategy, with how to compute a loss, go backward and clip."""
    import torch
    from torch import nn
    mixed = arguments.precision == "bf16-mixed"
    autocast = lambda: torch.autocast(arguments.accelerator, torch.bfloat16, enabled=mixed)
    clip = lambda: nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    plain = argparse.Namespace(backward=lambda loss: loss.backward(), clip=clip, context=autocast)
    if arguments.peer == "fsdp2":
        from contextlib import nullcontext
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else MixedPrecisionPolicy()
        mesh = init_device_mesh("cpu", (arguments.devices,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        plain.context = nullcontext
        return model, optimizer_of(model), plain
    if arguments.peer == "ddp":
        trained = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
        return trained, optimizer_of(model), plain
    if arguments.peer == "litgpt":
        from lightning.fabric import Fabric
        from lightning.fabric.strategies import DDPStrategy
        fabric = Fabric(accelerator="cpu", devices=arguments.devices, strategy=DDPStrategy(process_group_backend="gloo"),
                        precision=arguments.precision)
        fabric.launch()
        trained, optimizer = fabric.setup(model, optimizer_of(model))
        return trained, optimizer, argparse.Namespace(backward=fabric.backward, context=fabric.autocast,
                                                      clip=lambda: fabric.clip_gradients(trained, optimizer, max_norm=MAX_NORM))
    if arguments.peer == "accelerate":
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True, mixed_precision="bf16" if mixed else "no")
        trained, optimizer = accelerator.prepare(model, optimizer_of(model))
        return trained, optimizer, argparse.Namespace(backward=accelerator.backward, context=accelerator.autocast,
                                                      clip=lambda: accelerator.clip_grad_norm_(trained.parameters(), MAX_NORM))
    return model, optimizer_of(model), plain


def attention_of(arguments):
    from contextlib import nullcontext
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if arguments.attention == "default":
        return nullcontext()
    return sdpa_kernel(SDPBackend.FLASH_ATTENTION if arguments.attention == "flash" else SDPBackend.CUDNN_ATTENTION)


def time_steps(arguments, step, rank):
    import torch
    finish = torch.cuda.synchronize if arguments.accelerator == "cuda" else lambda: None
    losses, seconds = [], []
    for i in range(arguments.warmup + arguments.steps):
        start = time.perf_counter()
        losses.append(step())
        finish()
        seconds.append(time.perf_counter() - start)
        if i == 0 and rank == 0:
            print(f"{FIRST_STEP}, {seconds[0]:.3f} s", flush=True)
    return [float(loss) for loss in losses], seconds


def train(arguments, rank):
    import torch
    import torch.distributed as dist
    import models

    shape = argparse.Namespace(**SHAPES[arguments.model])
    torch.set_num_threads(arguments.threads)
    if arguments.devices > 1:
        dist.init_process_group("gloo", init_method=f"file://{os.environ['PEER_STORE']}", rank=rank, world_size=arguments.devices)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if arguments.precision == "bf16-mixed" else torch.float32
    model = models.build(MODEL_OF.get(arguments.peer, "plain"), shape, arguments.max_seq_length, dtype)
    num_parameters = sum(p.numel() for p in model.parameters())
    if arguments.compile:
        for block in model.blocks:
            block.compile()
        if isinstance(model, models.Plain):
            model.loss = torch.compile(model.loss)
    optimizer_of = lambda m: torch.optim.AdamW(m.parameters(), lr=LEARNING_RATE, betas=(BETA1, BETA2), weight_decay=WEIGHT_DECAY, fused=True)
    model.to(arguments.accelerator)
    trained, optimizer, how = wrap(arguments, model, optimizer_of)

    generator = torch.Generator().manual_seed(1 + rank)
    rows = torch.randint(shape.vocabulary, (arguments.micro_batch_size, arguments.max_seq_length + 1), generator=generator)
    ids_BS, targets_BS = (part.contiguous().to(arguments.accelerator) for part in (rows[:, :-1], rows[:, 1:]))

    def step():
        with how.context():
            loss = trained(ids_BS, targets_BS)
        how.backward(loss)
        how.clip()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    with attention_of(arguments):
        losses, seconds = time_steps(arguments, step, rank)
    if rank == 0:
        report(arguments, versions(arguments), num_parameters, losses, seconds)
    if arguments.devices > 1:
        dist.barrier()
    # At the interpreter's end, threads of Gloo sometimes abort a rank that has already reported ("terminate called
    # without an active exception"). Nothing is left to do here, so the rank leaves at once.
    sys.stdout.flush()
    os._exit(0)


def versions(arguments):
    names = {"litgpt": ["litgpt", "lightning"], "accelerate": ["accelerate", "transformers"]}.get(arguments.peer, [])
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ["torch", *names])


def peak_gpu_bytes(arguments):
    import torch
    return torch.cuda.max_memory_reserved() if arguments.accelerator == "cuda" else 0


def report(arguments, version, num_parameters, losses, all_seconds):
    seconds = all_seconds[arguments.warmup:]
    tokens, median = arguments.devices * arguments.micro_batch_size * arguments.max_seq_length, statistics.median(seconds)
    result = dict(name=" ".join([arguments.peer, *["compiled"] * arguments.compile, *[f"{arguments.attention} attention"] * (arguments.attention != "default")]), version=version, model=arguments.model,
                  parameters=num_parameters, precision=arguments.precision, ranks=arguments.devices, threads=arguments.threads,
                  tokens_per_step=tokens, step_seconds=seconds, warmup_seconds=all_seconds[:arguments.warmup], losses=losses,
                  peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, peak_gpu_bytes=peak_gpu_bytes(arguments))
    print(f"{version} {result['name']}  {arguments.model} {num_parameters / 1e6:.1f} M  {arguments.precision}  median {median:.3f} s a step "
          f"({min(seconds):.3f} to {max(seconds):.3f})  {tokens / median:,.0f} tokens/s  loss {losses[0]:.3f} to "
          f"{losses[-1]:.3f}  peak {result['peak_rss_bytes'] / 2**20:,.0f} MiB a rank, GPU {result['peak_gpu_bytes'] / 2**20:,.0f} MiB", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
