#!/usr/bin/env python3
"""GRPO in plain PyTorch: the recipe of examples/grpo/sums, on ranks of DistributedDataParallel over Gloo.

    python peer.py --base out/sums/base/step-00002000 --prompts out/sums/sums.jsonl --steps 20 --json out.json

Nothing is left undone that PyTorch can do for this recipe: prompts are read once and their keys and values are kept, all
prompts have one length so that nothing is padded, attention is `scaled_dot_product_attention`, AdamW is the fused one,
and only the answers go through the head in training. A step in which no group has a spread updates nothing, and is counted.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "vs_pytorch"))
from ranks import run_ranks


def parse_arguments(about, judges_held_out=False):
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--base", required=True, help="folder with config.json and model.safetensors")
    parser.add_argument("--prompts", required=True, help="lines of {\"prompt\": ..., \"answer\": ...}, prompts of one length")
    if judges_held_out:
        parser.add_argument("--held_out", help="prompts of which the greedy answers are judged at the end")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=64, help="prompts a step")
    parser.add_argument("--num_generations", type=int, default=16)
    parser.add_argument("--completion", type=int, default=4, help="most tokens of an answer")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], default="32-true")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", help="file for the result")
    return parser.parse_args()


def start_ranks(devices):
    """Runs this file once per rank, each on a core of its own; returns the first exit status that is not 0."""
    with tempfile.TemporaryDirectory() as folder:
        shared = dict(os.environ, PEER_STORE=f"{folder}/store", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
        return run_ranks([sys.executable, __file__, *sys.argv[1:]], devices, shared)


def build(folder):
    """The Llama of a Hugging Face folder, with a cache of keys and values for sampling."""
    import torch
    from safetensors.torch import load_file
    from torch import nn
    from torch.nn import functional as F
    c = argparse.Namespace(**json.loads((folder / "config.json").read_text()))
    head_dim = c.hidden_size // c.num_attention_heads
    places = torch.outer(torch.arange(c.max_position_embeddings).float(),
                         c.rope_theta ** (-torch.arange(0, head_dim, 2).float() / head_dim))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(c.hidden_size, c.rms_norm_eps), nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
            self.qkv = nn.Linear(c.hidden_size, 3 * c.hidden_size, bias=False)
            self.out = nn.Linear(c.hidden_size, c.hidden_size, bias=False)
            self.up = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=False)
            self.down = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

        def forward(self, x_BSD, cosine, sine, past):
            batch, length, _ = x_BSD.shape
            q, k, v = self.qkv(self.norm1(x_BSD)).view(batch, length, 3, c.num_attention_heads, head_dim).permute(2, 0, 3, 1, 4)
            turn = lambda x: x * cosine + torch.cat((-x[..., head_dim // 2:], x[..., :head_dim // 2]), -1) * sine
            q, k = turn(q), turn(k)
            if past is not None:
                k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
            x_BSD = x_BSD + self.out(y.transpose(1, 2).reshape(batch, length, -1))
            gate, up = self.up(self.norm2(x_BSD)).chunk(2, -1)
            return x_BSD + self.down(F.silu(gate) * up), (k, v)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(c.vocab_size, c.hidden_size)
            self.blocks = nn.ModuleList(Block() for _ in range(c.num_hidden_layers))
            self.norm, self.head = nn.RMSNorm(c.hidden_size, c.rms_norm_eps), nn.Linear(c.hidden_size, c.vocab_size, bias=False)
            self.register_buffer("cosine", torch.cat((places, places), -1).cos())
            self.register_buffer("sine", torch.cat((places, places), -1).sin())

        def forward(self, ids_BS, caches=None, last=None):
            """Logits of the last `last` tokens, and the caches."""
            past = 0 if caches is None else caches[0][0].shape[2]
            cosine, sine = (table[past:past + ids_BS.shape[1]] for table in (self.cosine, self.sine))
            x, new = self.embed(ids_BS), []
            for i, block in enumerate(self.blocks):
                x, cache = block(x, cosine, sine, None if caches is None else caches[i])
                new.append(cache)
            return self.head(self.norm(x[:, -last:])), new

    model, given = Model(), load_file(folder / "model.safetensors")
    own = {"embed.weight": given["model.embed_tokens.weight"], "norm.weight": given["model.norm.weight"],
           "head.weight": given.get("lm_head.weight", given["model.embed_tokens.weight"])}
    for i in range(c.num_hidden_layers):
        of = lambda name: given[f"model.layers.{i}.{name}.weight"]
        own |= {f"blocks.{i}.{name}.weight": value for name, value in {
            "norm1": of("input_layernorm"), "norm2": of("post_attention_layernorm"), "out": of("self_attn.o_proj"), "down": of("mlp.down_proj"),
            "qkv": torch.cat([of(f"self_attn.{x}_proj") for x in "qkv"]), "up": torch.cat([of("mlp.gate_proj"), of("mlp.up_proj")])}.items()}
    assert c.num_key_value_heads == c.num_attention_heads
    model.load_state_dict(own, strict=False)
    return model


def sample(model, prompts_PS, arguments, times, greedy=False):
    """Answers [P times, completion] of ids, each cut at a full stop; whatever follows the stop counts nowhere."""
    import torch
    logits, caches = model(prompts_PS, last=1)
    caches = [tuple(x.repeat_interleave(times, 0) for x in cache) for cache in caches]
    logits = logits[:, -1].repeat_interleave(times, 0)
    ids = []
    for step in range(arguments.completion):
        ids.append(logits.argmax(-1) if greedy else torch.multinomial(logits.float().softmax(-1), 1)[:, 0])
        if step + 1 < arguments.completion:
            logits, caches = model(ids[-1][:, None], caches, last=1)
            logits = logits[:, -1]
    return torch.stack(ids, 1)


def text_of(ids):
    return bytes(i for i in ids if i < 256).split(b".")[0].decode(errors="replace")


def main():
    arguments = parse_arguments(__doc__, judges_held_out=True)
    if "RANK" not in os.environ:
        sys.exit(start_ranks(arguments.devices))
    rank = int(os.environ["RANK"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['PEER_STORE']}", rank=rank, world_size=arguments.devices)
    torch.manual_seed(rank)
    model = build(Path(arguments.base))
    trained = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.99), weight_decay=0, fused=True)
    rows = [json.loads(line) for line in open(arguments.prompts)]
    order, own, times = random.Random(1), arguments.batch_size // arguments.devices, arguments.num_generations
    autocast = lambda: torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16-mixed")

    def step():
        batch = order.sample(rows, arguments.batch_size)[rank * own:(rank + 1) * own]
        prompts = torch.tensor([list(row["prompt"].encode()) for row in batch])
        with torch.no_grad(), autocast():
            answers = sample(model, prompts, arguments, times)
        texts = [text_of(ids) for ids in answers.tolist()]
        rewards = torch.tensor([float(text == batch[i // times]["answer"]) for i, text in enumerate(texts)]).view(own, times)
        advantages = (rewards - rewards.mean(1, True)) / (rewards.std(1, keepdim=True) + 1e-6)
        learned = (rewards.std(1) > 0).repeat_interleave(times)
        stop = (answers == ord(".")).float().cumsum(1)
        mask = ((stop - (answers == ord(".")).float()) == 0).float()[learned]
        tokens = mask.sum()
        dist.all_reduce(tokens)
        if tokens == 0:
            without_update.append(len(means))
            return rewards.mean().item()
        if not learned.any():  # the other ranks wait for this one's gradient: the advantages of its answers are 0
            learned[0], mask = True, torch.zeros(1, arguments.completion)
        ids = torch.cat((prompts.repeat_interleave(times, 0), answers), 1)[learned]
        with autocast():
            logits, _ = trained(ids[:, :-1], last=arguments.completion)
        chosen = logits.float().log_softmax(-1).gather(2, answers[learned][..., None])[..., 0]
        ratio = (chosen - chosen.detach()).exp()
        loss = -(ratio * advantages.view(-1)[learned, None] * mask).sum() / tokens.clamp(min=1) * arguments.devices
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return rewards.mean().item()

    seconds, means, without_update = [], [], []
    for _ in range(arguments.warmup + arguments.steps):
        dist.barrier()
        start = time.perf_counter()
        means.append(step())
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        result = dict(step_seconds=seconds[arguments.warmup:], median_seconds=statistics.median(seconds[arguments.warmup:]), rewards=means,
                      without_update=len(without_update))
        if arguments.held_out:
            held = [json.loads(line) for line in open(arguments.held_out)]
            with torch.no_grad():
                found = sample(model, torch.tensor([list(row["prompt"].encode()) for row in held]), arguments, 1, greedy=True)
            result["held_out"] = sum(text_of(ids) == row["answer"] for ids, row in zip(found.tolist(), held)) / len(held)
        print(json.dumps({key: value for key, value in result.items() if key != "step_seconds"}))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(result))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
