"""What `run --all` measures and must show, as data: variants, groups of variants that alternate, targets.

A group runs round after round, each variant once a round, so that a machine that grows slower does so for all of
them; a ratio is that of medians over all timed steps, with the smallest and the largest of a single round.
"""
from dataclasses import replace

from variants import Group, Target, Variant, with_changes


def ours(name, *arguments, **other):
    return Variant(name, "trireme", arguments, **other)


def peer(name, *arguments, **other):
    return Variant(name, "peer", ("--peer", *arguments), first_line="first step done", **other)


FULL = ours("full_shard", "--strategy", "full_shard", "--devices", "2")
NO_SHARD = ours("no_shard", "--strategy", "no_shard", "--devices", "2")
SINGLE = ours("one rank", "--strategy", "no_shard", "--devices", "1")
PAIR = replace(SINGLE, name="two separate ranks", copies=2)
GLOO = ours("full_shard, gloo", "--strategy", "full_shard", "--devices", "2", "--comm.backend", "gloo")
RECOMPUTE = ours("full_shard, recompute full", "--strategy", "full_shard", "--devices", "2", "--recompute", "full", steps=4)
START = replace(FULL, name="start of bench train", warmup=0, steps=1, first_line="starting ")
TRAIN = Variant("start of pretrain", "train", FULL.arguments, steps=1, warmup=0, first_line="step ")
FSDP2, DDP = peer("FSDP2", "fsdp2"), peer("DDP", "ddp")
FSDP2_COMPILED, DDP_COMPILED = peer("FSDP2 compiled", "fsdp2", "--compile"), peer("DDP compiled", "ddp", "--compile")
PEER_SINGLE = peer("PyTorch, one rank", "single")
PEER_PAIR = replace(PEER_SINGLE, name="PyTorch, two separate ranks", copies=2)
LITGPT, ACCELERATE = peer("litgpt (Fabric DDP)", "litgpt"), peer("accelerate (DDP)", "accelerate")

GROUPS = {
    "bf16": Group("llama-32m, bf16-mixed, sharded", 3, (FULL, FSDP2, FSDP2_COMPILED)),
    "ddp": Group("llama-32m, bf16-mixed, every rank holds all", 3, (NO_SHARD, DDP_COMPILED)),
    "scaling": Group("llama-32m, bf16-mixed, cost of sharding and of talking", 5, (FULL, NO_SHARD, PAIR)),
    "fp32": Group("llama-32m, 32-true, sharded", 3, with_changes((FULL, FSDP2), precision="32-true")),
    "110m": Group("llama-110m, bf16-mixed, sharded", 3, with_changes((FULL, FSDP2), model="llama-110m", warmup=1, steps=5)),
    "gloo": Group("llama-32m, bf16-mixed, sharded, both over Gloo", 3, (GLOO, FSDP2)),
    "memory": Group("llama-32m, bf16-mixed, memory", 2, with_changes((FULL, NO_SHARD, RECOMPUTE), warmup=1, steps=4)),
    "start": Group("llama-32m, bf16-mixed, 2 ranks, from exec to the end of the first step", 5,
                   (START, TRAIN, replace(FSDP2, warmup=0, steps=1))),
    "others": Group("llama-32m, bf16-mixed, other ways to train", 2, (FULL, DDP, LITGPT, ACCELERATE, SINGLE, PEER_SINGLE, PEER_PAIR)),
}

TARGETS = (
    Target("bf16", "bf16 full_shard / FSDP2 eager, tokens/s", "tokens", "full_shard", "FSDP2", at_least=1.85),
    Target("bf16", "bf16 full_shard / FSDP2 + compile, tokens/s", "tokens", "full_shard", "FSDP2 compiled", at_least=1.75),
    Target("ddp", "bf16 no_shard / DDP + compile, tokens/s", "tokens", "no_shard", "DDP compiled", at_least=1.5),
    Target("fp32", "fp32 full_shard / FSDP2 eager, tokens/s", "tokens", "full_shard", "FSDP2", at_least=1.5),
    Target("gloo", "bf16 full_shard over Gloo / FSDP2 eager, tokens/s", "tokens", "full_shard, gloo", "FSDP2", at_least=1.5),
    Target("bf16", "share of the register peak, bf16 full_shard", "peak", "full_shard", at_least=0.82),
    Target("scaling", "full_shard / no_shard, tokens/s", "tokens", "full_shard", "no_shard", at_least=0.98),
    Target("scaling", "2 ranks, full_shard / 2 separate processes, tokens/s", "tokens", "full_shard", "two separate ranks", at_least=0.98),
    Target("scaling", "2 ranks, no_shard / 2 separate processes, tokens/s", "tokens", "no_shard", "two separate ranks", at_least=0.98),
    Target("bf16", "peak RSS a rank / FSDP2, llama-32m", "rss", "full_shard", "FSDP2", at_most=0.5),
    Target("110m", "peak RSS a rank / FSDP2, llama-110m", "rss", "full_shard", "FSDP2", at_most=0.55),
    Target("memory", "RSS saved by full_shard / planned saving", "saved", "full_shard", "no_shard", at_least=0.9, at_most=1.1),
    Target("memory", "RSS saved by recompute: full / planned saving", "saved", "full_shard, recompute full", "full_shard",
           at_least=0.9, at_most=1.1),
    Target("start", "exec to the end of the first step, s (bench train)", "first_step", "start of bench train", at_most=2.0),
    Target("start", "exec to the end of the first step, s (pretrain)", "first_step", "start of pretrain", at_most=2.0),
)
