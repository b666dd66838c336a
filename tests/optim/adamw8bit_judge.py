"""Twenty steps of AdamW8bit are those of bitsandbytes on processors, to the rounding of float32.

adamw8bit_judge.py PROBE
Exits with 77 (skipped) where the packages are not installed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"
try:
    import torch
    import bitsandbytes
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --judges installs it")
    sys.exit(77)

STEPS, LR, DECAY = 20, 1e-2, 0.1
SHAPES = [(63, 65), (64, 64), (1, 4097), (100, 257), (300, 512)]  # the first is small: its moments are float32
# An ulp of a moment can choose its neighbour among 256 codes. So few elements may differ by a step of the codes, and the others by rounding.
ROUNDING, STRAYING, CODE = 2e-5, 1e-4, 0.1  # of the rate; share of elements; of the rate


def gradients(shape, seed):
    """Of sizes that differ by rows, so that blocks matter; some are zero, as of rows of an embedding."""
    source = torch.Generator().manual_seed(seed)
    size = 10 ** torch.empty(shape[0], 1).uniform_(-4, 0, generator=source)
    for _ in range(STEPS):
        g = torch.randn(shape, generator=source) * size
        if seed % 2 and shape[0] > 8:
            g[4:8] = 0
        yield g


def main(probe):
    torch.set_num_threads(1)
    strayed = elements = 0
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        lines, wanted = [], []
        for number, shape in enumerate(SHAPES):
            parameter = torch.nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(number)) * 0.1)
            optimizer = bitsandbytes.optim.AdamW8bit([parameter], lr=LR, weight_decay=DECAY)
            file = pathlib.Path(folder) / str(number)
            parts, after = [parameter.detach().clone()], []
            for g in gradients(shape, number):
                parts.append(g)
                parameter.grad = g.clone()
                optimizer.step()
                after.append(parameter.detach().clone())
            state = optimizer.state[parameter]
            is_small = state["state1"].dtype == torch.float32
            if is_small != (parameter.numel() < 4096):
                sys.exit(f"{shape}: bitsandbytes keeps {state['state1'].dtype}")
            file.write_bytes(torch.cat([p.flatten() for p in parts]).numpy().tobytes())
            lines.append(f"{shape[0]} {shape[1]} {STEPS} {LR} {DECAY} {file}")
            wanted.append((shape, file, torch.stack(after), state, is_small))
        subprocess.run([probe], input="\n".join(lines) + "\n", text=True, check=True)
        for shape, file, after, state, is_small in wanted:
            ours = torch.frombuffer(bytearray(pathlib.Path(f"{file}.out").read_bytes()), dtype=torch.float32).view(after.shape)
            far = (ours - after).abs() / LR
            worst = max(worst, far.max().item())
            strayed += (far > ROUNDING).sum().item()
            elements += far.numel()
            if is_small and far.max() > ROUNDING * STEPS:
                sys.exit(f"{shape}: float32 moments, and weights differ by {far.max():.1e} of the rate")
            if not is_small:
                kept = pathlib.Path(f"{file}.state").read_bytes()
                size = shape[0] * shape[1]
                same = sum(a == b for a, b in zip(kept[:size], state["state1"].flatten().numpy().tobytes()))
                if same < (1 - STRAYING) * size:
                    sys.exit(f"{shape}: {size - same} of {size} codes of the first moment differ")
    if strayed > STRAYING * elements or worst > CODE:
        sys.exit(f"{strayed} of {elements} weights differ by more than {ROUNDING:.0e} of the rate, the farthest by {worst:.1e}")
    print(f"{STEPS} steps of {len(SHAPES)} tensors: {elements - strayed} of {elements} weights within {ROUNDING:.0e} of the rate of bitsandbytes "
          f"{bitsandbytes.__version__}, the others within {worst:.1e}")


main(sys.argv[1])
