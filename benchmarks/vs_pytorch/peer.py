#!/usr/bin/env python3
"""The peer: the same Llama as Trireme's preset, in plain PyTorch, trained by FSDP2 or DDP over Gloo on CPU ranks.

    python peer.py --steps 10 --json out.json

Started without RANK it starts its own ranks, one thread and one core each. Nothing here is slower than it needs
to be: q|k|v and gate|up are one product each, attention is F.scaled_dot_product_attention, AdamW is the fused
one, the data is made before the clock starts. Legend of shapes: B rows, S sequence, D width, H heads,
K key/value heads, d head dim, V vocabulary.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SHAPES = {
    "llama-32m": dict(vocabulary=8192, width=512, blocks=8, heads=8, kv_heads=4, mlp=1408),
    "llama-110m": dict(vocabulary=32000, width=768, blocks=12, heads=12, kv_heads=4, mlp=2048),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=SHAPES, default="llama-32m")
    parser.add_argument("--peer", choices=["fsdp2", "ddp"], default="fsdp2")
    parser.add_argument("--precision", choices=["bf16-mixed", "32-true"], default="bf16-mixed")
    parser.add_argument("--compile", action="store_true", help="torch.compile each block")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--micro_batch_size", type=int, default=2)
    parser.add_argument("--max_seq_length", type=int, default=512)
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--no_pin", action="store_true", help="let ranks move between cores")
    parser.add_argument("--json", help="file for the result")
    return parser.parse_args()


def start_ranks(arguments):
    """Runs this file once per rank; returns the first exit status that is not 0."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(arguments.devices):
            environment = dict(os.environ, RANK=str(rank), PEER_STORE=f"{folder}/store", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
            ranks.append(subprocess.Popen([sys.executable, __file__, *sys.argv[1:]], env=environment))
        try:
            while any(rank.poll() is None for rank in ranks) and not any(rank.returncode for rank in ranks):
                time.sleep(0.05)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
        return next((rank.returncode for rank in ranks if rank.returncode), 0)


def main():
    arguments = parse_arguments()
    if "RANK" not in os.environ:
        sys.exit(start_ranks(arguments))
    rank = int(os.environ["RANK"])
    if not arguments.no_pin:  # before torch starts its threads, so that they stay on this core too
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    train(arguments, rank)


def train(arguments, rank):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn import functional as F

    shape = argparse.Namespace(**SHAPES[arguments.model])
    head_dim = shape.width // shape.heads

    def linear(inputs, outputs, std=0.02):
        layer = nn.Linear(inputs, outputs, bias=False)
        nn.init.normal_(layer.weight, std=std)
        return layer

    def rotary(x_BSHd, cosine_S1d, sine_S1d):
        first, second = x_BSHd.chunk(2, dim=-1)
        return x_BSHd * cosine_S1d + torch.cat((-second, first), dim=-1) * sine_S1d

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            std_out = 0.02 / (2 * shape.blocks) ** 0.5
            self.norm1 = nn.RMSNorm(shape.width, eps=1e-5)
            self.qkv = linear(shape.width, (shape.heads + 2 * shape.kv_heads) * head_dim)
            self.out = linear(shape.heads * head_dim, shape.width, std_out)
            self.norm2 = nn.RMSNorm(shape.width, eps=1e-5)
            self.gate_up = linear(shape.width, 2 * shape.mlp)
            self.down = linear(shape.mlp, shape.width, std_out)

        def forward(self, x_BSD, cosine_S1d, sine_S1d):
            B, S, D = x_BSD.shape
            qkv = self.qkv(self.norm1(x_BSD)).view(B, S, shape.heads + 2 * shape.kv_heads, head_dim)
            q, k, v = qkv.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=2)
            q, k = rotary(q, cosine_S1d, sine_S1d), rotary(k, cosine_S1d, sine_S1d)
            repeats = shape.heads // shape.kv_heads
            k, v = (t.repeat_interleave(repeats, dim=2) for t in (k, v))
            y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
            x_BSD = x_BSD + self.out(y.transpose(1, 2).reshape(B, S, D))
            gate, up = self.gate_up(self.norm2(x_BSD)).chunk(2, dim=-1)
            return x_BSD + self.down(F.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(shape.vocabulary, shape.width)
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.blocks = nn.ModuleList(Block() for _ in range(shape.blocks))
            self.norm = nn.RMSNorm(shape.width, eps=1e-5)
            self.head = linear(shape.width, shape.vocabulary)
            frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
            angles = torch.outer(torch.arange(arguments.max_seq_length), frequencies).repeat(1, 2).unsqueeze(1)
            dtype = torch.bfloat16 if arguments.precision == "bf16-mixed" else torch.float32
            self.register_buffer("cosine_S1d", angles.cos().to(dtype), persistent=False)
            self.register_buffer("sine_S1d", angles.sin().to(dtype), persistent=False)

        def forward(self, ids_BS, targets_BS):
            x_BSD = self.embedding(ids_BS)
            for block in self.blocks:
                x_BSD = block(x_BSD, self.cosine_S1d, self.sine_S1d)
            logits_BSV = self.head(self.norm(x_BSD))
            return F.cross_entropy(logits_BSV.flatten(0, 1).float(), targets_BS.flatten())

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['PEER_STORE']}", rank=rank, world_size=arguments.devices)
    torch.manual_seed(0)
    model = Llama()
    num_parameters = sum(p.numel() for p in model.parameters())
    if arguments.compile:
        for block in model.blocks:
            block.compile()
    mixed = arguments.precision == "bf16-mixed"
    if arguments.peer == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if mixed else MixedPrecisionPolicy()
        mesh = init_device_mesh("cpu", (arguments.devices,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        trained = model
    else:
        trained = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=mixed and arguments.peer == "ddp")

    generator = torch.Generator().manual_seed(1 + rank)
    rows = torch.randint(shape.vocabulary, (arguments.micro_batch_size, arguments.max_seq_length + 1), generator=generator)
    ids_BS, targets_BS = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def step():
        with autocast:
            loss = trained(ids_BS, targets_BS)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    losses, seconds = [], []
    for _ in range(arguments.warmup + arguments.steps):
        start = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
    seconds = seconds[arguments.warmup:]
    if rank == 0:
        tokens = arguments.devices * arguments.micro_batch_size * arguments.max_seq_length
        median = statistics.median(seconds)
        result = dict(name=f"PyTorch {torch.__version__} {arguments.peer}{' compiled' if arguments.compile else ''}",
                      model=arguments.model, parameters=num_parameters, precision=arguments.precision,
                      devices=arguments.devices, tokens_per_step=tokens, step_seconds=seconds,
                      losses=[float(loss) for loss in losses],
                      peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        print(f"{result['name']}  {arguments.model} {num_parameters / 1e6:.1f} M  {arguments.precision}  median {median:.3f} s a step "
              f"({min(seconds):.3f} to {max(seconds):.3f})  {tokens / median:,.0f} tokens/s  loss {result['losses'][0]:.3f} to "
              f"{result['losses'][-1]:.3f}  peak {result['peak_rss_bytes'] / 2**20:,.0f} MiB a rank", flush=True)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(result, file, indent=1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
