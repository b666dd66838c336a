#!/usr/bin/env python3
"""Operations of a GPU step, beside PyTorch's alone: does a product in a step reach the rate of the same product with nothing around it?

    trireme bench train tiny-llama-1.1b --accelerator cuda --devices 1 ... --bench.operations --bench.json F
    benchmarks/vs_pytorch/operations.py F --batch 8 --kv_heads 4

Reads the step's products (bfloat16) and attention from F, runs each shape by itself through torch.matmul and cuDNN's attention, and prints both times and
their ratio. Sums: "alone / in the step", weighted by time.
"""
import argparse
import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

WARMUP, RUNS = 5, 20


def seconds_of(run):
    """Median over runs of one run's time on the GPU."""
    for _ in range(WARMUP):
        run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(RUNS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    times = sorted(marks[i].elapsed_time(marks[i + 1]) for i in range(RUNS))
    return times[RUNS // 2] / 1e3


def matrix(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def product(row):
    m, n, k = row["m"], row["n"], row["k"]
    a = matrix(k, m).t() if "_tn" in row["name"] else matrix(m, k)
    b = matrix(n, k).t() if "_nt" in row["name"] else matrix(k, n)
    c = matrix(m, n)
    return seconds_of(lambda: torch.matmul(a, b, out=c))


def attention(row, arguments):
    batch, head_dim, sequence = arguments.batch, row["k"], row["m"]
    heads = row["n"] // head_dim // batch
    q, k, v = (matrix(batch, h, sequence, head_dim).requires_grad_() for h in (heads, arguments.kv_heads, arguments.kv_heads))

    def forward():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    if row["name"] == "attention_forward":
        return seconds_of(forward)
    out = forward()
    gradient = torch.randn_like(out)
    return seconds_of(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("json", help="of bench train --bench.operations")
    parser.add_argument("--batch", type=int, required=True, help="sequences of a micro-batch")
    parser.add_argument("--kv_heads", type=int, required=True)
    arguments = parser.parse_args()
    with open(arguments.json) as file:
        result = json.load(file)
    rows = [r for r in result["operations"] if r["dtype"] == "bf16" and r["m"] * r["n"] * r["k"] > 0]
    sums = {}
    for row in rows:
        is_product = row["name"].startswith("product")
        if not is_product and row["name"] not in ("attention_forward", "attention_backward"):
            continue
        try:
            alone = product(row) if is_product else attention(row, arguments)
        except RuntimeError as error:  # no room beside, or no such kernel
            print(f"{row['name']:<22} {row['m']} x {row['n']} x {row['k']}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        total = sums.setdefault("products" if is_product else row["name"], [0, 0])
        total[0] += alone * row["calls_a_step"]
        total[1] += row["seconds"] * row["calls_a_step"]
        print(f"{row['name']:<22}{row['m']:>8} x {row['n']:>7} x {row['k']:>7}{row['calls_a_step']:>8.1f} calls{1e6 * row['seconds']:>10.1f} us in the step"
              f"{1e6 * alone:>10.1f} us alone{alone / row['seconds']:>7.2f}", flush=True)
    for name, (alone, inside) in sums.items():
        print(f"{name}: {1e3 * inside:.2f} ms a step, {1e3 * alone:.2f} ms alone: {alone / inside:.2f}")


if __name__ == "__main__":
    main()
