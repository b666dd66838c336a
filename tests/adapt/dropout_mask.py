"""The masks of dropout, which are pure functions: of the run's seed, the step, the place of a token in the step's global batch,
the module's name and the column; of attention weights, of the head and the key too. So they do not depend on ranks, and PEFT
and transformers can be given the same.

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


def keys_of(seed, step, sequences, positions, module):
    """[sequences, positions] of 32 bits: of `step` (from 1) and of those sequences of its global batch."""
    places = (numpy.asarray(sequences, U64)[:, None] << U64(32)) | numpy.arange(positions, dtype=U64)[None]
    keys = splitmix64(splitmix64(splitmix64(splitmix64(seed) ^ U64(step)) ^ places) ^ fnv1a64(module))
    return (keys & U64(0xFFFFFFFF)).astype(U32)


def hashes(rows, columns):
    """[..., columns]: of counters of each row."""
    steps = (numpy.arange(columns, dtype=U64) * U64(GOLDEN32)).astype(U32)
    with numpy.errstate(over="ignore"):
        return lowbias32(rows[..., None] + steps)


def kept(seed, step, sequences, positions, module, columns, probability):
    """[sequences, positions, columns] of booleans."""
    return hashes(keys_of(seed, step, sequences, positions, module), columns) >= probability * 2**32


def kept_weights(seed, step, sequences, positions, module, heads, probability):
    """[sequences, heads, positions, positions] of booleans: attention weights of queries and keys."""
    rows = hashes(keys_of(seed, step, sequences, positions, module), heads)
    return (hashes(rows, positions) >= probability * 2**32).transpose(0, 2, 1, 3)


class Dropout(torch.nn.Module):
    """In the place of PEFT's nn.Dropout. `clock` says which step it is; a batch is the whole global batch."""

    def __init__(self, module, probability, clock, seed):
        super().__init__()
        self.module, self.probability, self.clock, self.seed = module, probability, clock, seed

    def forward(self, x_BSD):
        B, S, D = x_BSD.shape
        mask_BSD = torch.from_numpy(kept(self.seed, self.clock.step, range(B), S, self.module, D, self.probability))
        return x_BSD * mask_BSD * (1 / (1 - self.probability))
