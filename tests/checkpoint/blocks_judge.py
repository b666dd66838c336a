"""Matrices in 4 bits are bitsandbytes' to the bit: codes, scales, nested scales, the JSON object, and the values that they stand for.

blocks_judge.py PROBE
Exits with 77 (skipped) where the packages are not installed.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling each shape takes longer than all the rest
try:
    import torch
    import bitsandbytes
    import bitsandbytes.functional as F
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --judges installs it")
    sys.exit(77)

torch.set_num_threads(1)  # the offset is torch's mean, which depends on threads

FIXED = [(1, 1), (1, 63), (1, 64), (1, 65), (3, 5), (2, 32), (7, 9), (64, 64), (1, 16383), (1, 16384), (1, 16385), (128, 129), (255, 257), (512, 1024)]


def shapes():
    random.seed(26)
    return FIXED + [(random.randint(1, 300), random.randint(1, 400)) for _ in range(30 - len(FIXED))]


def matrix(shape, seed):
    """Normal values of very different sizes, with blocks of zeros and a few large and tiny values."""
    torch.manual_seed(seed)
    values = torch.randn(shape) * 10 ** torch.empty(shape[0], 1).uniform_(-3, 1)
    flat = values.view(-1)
    if seed % 3 == 0:
        flat[: flat.numel() // 3] = 0
    if seed % 4 == 1:
        flat[torch.randint(flat.numel(), (max(1, flat.numel() // 500),))] *= 1e4
    if seed % 5 == 2:
        flat[-1] = 1e-41
    return values.clamp(-6e4, 6e4)  # float16 has no larger ones


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def dequantized(codes, state):
    """In float32. The kernel for processors takes rows of whole blocks: for others it reads scales of other blocks."""
    state.dtype = torch.float32
    if state.shape[-1] % state.blocksize == 0:
        return F.dequantize_4bit(codes, state)
    absmax = state.absmax
    if state.nested:
        absmax = F.dequantize_blockwise(absmax, state.state2) + state.offset
    return _dequantize_4bit_compute(codes.reshape(-1), absmax, state.code, state.blocksize, state.shape, torch.float32)


def main(probe):
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        cases = []
        for number, shape in enumerate(shapes()):
            for code in ("nf4", "fp4"):
                for nested in (False, True):
                    dtype = (torch.float32, torch.bfloat16, torch.float16)[number % 3]
                    values = matrix(shape, number).to(dtype)
                    file = folder / str(len(cases))
                    file.write_bytes(bytes_of(values.float()))
                    cases.append((code, nested, values, file))
        lines = [f"bnb.{code}{'-dq' if nested else ''} {str(v.dtype)[6:]} {v.shape[0]} {v.shape[1]} {file}" for code, nested, v, file in cases]
        subprocess.run([probe], input="\n".join(lines) + "\n", text=True, check=True)
        for code, nested, values, file in cases:
            codes, state = F.quantize_4bit(values, quant_type=code, compress_statistics=nested)
            packed = state.as_dict(packed=True)
            wanted = {".codes": bytes_of(codes), ".scales": bytes_of(packed["absmax"]), ".nested": bytes_of(packed["nested_absmax"]) if nested else b"",
                      ".json": bytes_of(packed[f"quant_state.bitsandbytes__{code}"])}
            wanted[".values"] = bytes_of(dequantized(codes, state) + 0)  # no sign of 0
            for name, expected in wanted.items():
                ours = pathlib.Path(f"{file}{name}").read_bytes()
                if name == ".values":
                    ours = bytes_of(torch.frombuffer(bytearray(ours), dtype=torch.float32) + 0)
                if ours != expected:
                    difference = sum(a != b for a, b in zip(ours, expected))
                    sys.exit(f"{code} nested={nested} {values.dtype} {tuple(values.shape)}: {name} differs in {difference} of {len(expected)} bytes"
                             f"{(ours, expected) if name == '.json' else ''}")
            compared += 1
    print(f"{compared} matrices of {len(shapes())} shapes have the bits of bitsandbytes {bitsandbytes.__version__}")


main(sys.argv[1])
