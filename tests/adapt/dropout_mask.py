"""The mask of an adapter's dropout, which is a pure function: of the run's seed, the step, the place of a token in the step's
global batch, the module's name and the column. So it does not depend on ranks, and PEFT can be given the same.

Here is the definition a second time, in numpy; trireme/model/dropout.h has the first.
"""

import ring

numpy, torch = ring.judges("numpy", "torch")
U64, U32 = numpy.uint64, numpy.uint32
GOLDEN64, GOLDEN32 = 0x9E3779B97F4A7C15, 0x9E3779B9


def splitmix64(x):
    with numpy.errstate(over="ignore"):
        x = numpy.asarray(x, U64) + U64(GOLDEN64)
        x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
        return x ^ (x >> U64(31))


def lowbias32(x):
    with numpy.errstate(over="ignore"):
        x = (x ^ (x >> U32(16))) * U32(0x7FEB352D)
        x = (x ^ (x >> U32(15))) * U32(0x846CA68B)
        return x ^ (x >> U32(16))


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return U64(value)


def kept(seed, step, sequences, positions, module, columns, probability):
    """[sequences, positions, columns] of booleans: of `step` (from 1) and of those sequences of its global batch."""
    places = (numpy.asarray(sequences, U64)[:, None] << U64(32)) | numpy.arange(positions, dtype=U64)[None]
    keys = splitmix64(splitmix64(splitmix64(splitmix64(seed) ^ U64(step)) ^ places) ^ fnv1a64(module))
    rows = (keys & U64(0xFFFFFFFF)).astype(U32)
    steps = (numpy.arange(columns, dtype=U64) * U64(GOLDEN32)).astype(U32)
    with numpy.errstate(over="ignore"):
        drawn = lowbias32(rows[:, :, None] + steps[None, None])
    return drawn >= probability * 2**32


class Dropout(torch.nn.Module):
    """In the place of PEFT's nn.Dropout. `clock` says which step it is; a batch is the whole global batch."""

    def __init__(self, module, probability, clock, seed):
        super().__init__()
        self.module, self.probability, self.clock, self.seed = module, probability, clock, seed

    def forward(self, x_BSD):
        B, S, D = x_BSD.shape
        mask_BSD = torch.from_numpy(kept(self.seed, self.clock.step, range(B), S, self.module, D, self.probability))
        return x_BSD * mask_BSD * (1 / (1 - self.probability))
