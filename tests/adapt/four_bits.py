"""The values that blocks of 4 bits stand for, by the formula alone."""

import ring

[torch] = ring.judges("torch")

NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
       0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = sorted({sign * value / 12 for value in (0, 0.0625, 8, 12, 4, 6, 2, 3) for sign in (1, -1)})


def dequantized(matrix, code):
    """The nearest of the code's values to each element over the largest of its 64, times that largest."""
    code = torch.tensor(code, dtype=torch.float32)
    blocks = torch.nn.functional.pad(matrix.float().flatten(), (0, -matrix.numel() % 64)).view(-1, 64)
    scales = blocks.abs().amax(1, keepdim=True)
    scaled = (blocks * (1 / scales.clamp(min=1e-38))).clamp(-1, 1).contiguous()
    return (code[torch.bucketize(scaled, (code[1:] + code[:-1]) / 2)] * scales).flatten()[: matrix.numel()].view(matrix.shape)
