"""Steps give the same parameters and losses for any parallelism, number of processes and backend.

parity.py TRIREME
Every case is a run of 2 or 4 processes over shm, over gloo and, where MPI is installed, over mpi under mpirun; it is
compared with the run of one process by what both leave behind: checkpoints and metrics.jsonl. Where ranks only divide
data and state, sums in order (reduce: ordered) give equal bits. Elsewhere the bar is ||a-b||/||b|| over all
parameters: 1e-10 in float64 and 2e-6 in float32. tests/engine/matrix_test.cpp has many more combinations, on threads.
"""

import functools
import itertools
import math
import sys

import ring

[numpy] = ring.judges("numpy")
TOLERANCE = {"32-true": 2e-6, "64-true": 1e-10}
PIPELINE, CONTEXT = "pipeline__schedule", "mesh__context"

# name: (ranks, settings). The first group divides data and state only.
DATA = {
    "ddp": (2, {"strategy": "no_shard"}),
    "zero1": (2, {"strategy": "zero1"}),
    "zero2": (2, {"strategy": "zero2"}),
    "zero3": (2, {"strategy": "zero3"}),
    "ddp on 4": (4, {"strategy": "no_shard"}),
    "zero1 on 4": (4, {"strategy": "zero1"}),
    "zero2 on 4": (4, {"strategy": "zero2"}),
    "zero3 on 4": (4, {"strategy": "zero3"}),
    "hybrid 2x2": (4, {"strategy": "hybrid_shard", "mesh__replicate": 2, "mesh__shard": 2}),
    "hybrid zero2 2x2": (4, {"strategy": "hybrid_shard_zero2", "mesh__replicate": 2, "mesh__shard": 2}),
}
PARTS = {
    "tp 2": (2, {"mesh__tp": 2}),
    "tp 2 sequence": (2, {"mesh__tp": 2, "mesh__sequence_parallel": "true"}),
    "pp 2 1f1b": (2, {"mesh__pp": 2, PIPELINE: "1f1b"}),
    "pp 2 zb_v": (2, {"mesh__pp": 2, PIPELINE: "zb_v"}),
    "cp 2 ring": (2, {"mesh__cp": 2, CONTEXT: "ring"}),
    "cp 2 ulysses": (2, {"mesh__cp": 2, CONTEXT: "ulysses"}),
    "pp 2 1f1b x shard 2": (4, {"mesh__pp": 2, "mesh__shard": 2, PIPELINE: "1f1b"}),
    "pp 2 zb_v x shard 2": (4, {"mesh__pp": 2, "mesh__shard": 2, PIPELINE: "zb_v"}),
    "tp 2 x cp 2 ring": (4, {"mesh__tp": 2, "mesh__cp": 2, CONTEXT: "ring"}),
    "tp 2 x cp 2 ulysses": (4, {"mesh__tp": 2, "mesh__cp": 2, CONTEXT: "ulysses"}),
    "tp 2 sequence x shard 2": (4, {"mesh__tp": 2, "mesh__sequence_parallel": "true", "mesh__shard": 2}),
    "pp 2 x tp 2": (4, {"mesh__pp": 2, "mesh__tp": 2}),
}
CASES = DATA | PARTS

# What one rank sends another at once is larger than a mailbox of shm (256 KiB): 1 MiB between stages, 512 KiB of
# keys round the ring.
LARGE = ring.LLAMA | {"hidden_size": 128, "num_key_value_heads": 4, "max_position_embeddings": 256}
LARGE_BATCH = {"train__max_seq_length": 256, "train__micro_batch_size": 8, "train__global_batch_size": 32}

MODELS = {"llama": (ring.LLAMA, {}), "gpt2": (ring.GPT2, {}), "large": (LARGE, LARGE_BATCH)}
LARGE_CASES = ("pp 2 1f1b", "pp 2 zb_v", "cp 2 ring", "pp 2 zb_v x shard 2", "zero3 on 4")

QUICK = [("llama", "32-true", "zero3 on 4", "shm"),
         ("llama", "32-true", "ddp", "gloo"),
         ("llama", "32-true", "hybrid 2x2", "gloo"),
         ("llama", "64-true", "tp 2 sequence", "gloo"),
         ("llama", "64-true", "pp 2 zb_v", "shm"),
         ("llama", "64-true", "cp 2 ulysses", "shm"),
         ("llama", "64-true", "tp 2 x cp 2 ring", "shm"),
         ("llama", "64-true", "pp 2 1f1b x shard 2", "gloo"),
         ("llama", "64-true", "pp 2 x tp 2", "mpi"),
         ("gpt2", "32-true", "pp 2 1f1b", "gloo"),
         ("large", "32-true", "pp 2 1f1b", "shm")]


def all_runs():
    yield from itertools.product(["llama"], TOLERANCE, CASES, ("shm", "gloo"))
    yield from itertools.product(["llama"], ["32-true"], DATA, ["mpi"])
    yield from itertools.product(["llama"], ["64-true"], PARTS, ["mpi"])
    yield from itertools.product(["gpt2"], ["64-true"], PARTS, ["shm"])
    yield from itertools.product(["large"], ["32-true"], LARGE_CASES, ("shm", "gloo", "mpi"))


def norm(values):
    return math.sqrt(sum(float(numpy.sum(v.astype(numpy.float64) ** 2)) for v in values))


def distance(a, b):
    return norm(a[n].astype(numpy.float64) - b[n] for n in b) / norm(b.values())


def rows(folder):
    return [(row["loss"], row["grad_norm"]) for row in ring.metrics(folder).values()]


def held_out(folder):
    [loss] = [row["val_loss"] for row in ring.metrics(folder).values() if "val_loss" in row]
    return loss


def compare(one, other, what, steps, tolerance, exact):
    a, b = (ring.tensors(folder / f"step-{steps:08}") for folder in (other, one))
    ring.require(a.keys() == b.keys() and all(a[n].shape == b[n].shape for n in b), f"{what}: the same {len(b)} tensors",
                 str(a.keys() ^ b.keys()))
    masters = [n for n in b if n.endswith(".master")]
    weights = [n for n in b if f"{n}.master" in masters]
    ring.require(len(masters) == len(weights) > 10, f"{what}: each weight has a master copy", str(sorted(b)))
    lines, wanted = rows(other), rows(one)
    ring.require(len(lines) == len(wanted) == steps, f"{what}: {steps} steps are in metrics.jsonl", str(lines))
    off = abs(held_out(other) / held_out(one) - 1)
    ring.require(off <= (0 if exact else tolerance), f"{what}: held-out losses differ by {off:.1e}")
    if exact:
        unequal = [n for n in b if a[n].tobytes() != b[n].tobytes()]
        ring.require(not unequal, f"{what}: parameters and moments equal bit for bit", f"{len(unequal)} are not: {unequal[:5]}")
        ring.check(lines == wanted, f"{what}: equal bits, equal losses and gradient norms", f"{lines}\n{wanted}")
        return
    # The model's files are fp32, where a difference far below 1e-10 may turn a rounding.
    far, rounded = (distance({n: a[n] for n in names}, {n: b[n] for n in names}) for names in (masters, weights))
    ring.require(far <= tolerance, f"{what}: parameters differ by {far:.1e} of their norm, at most {tolerance:.0e}")
    ring.require(rounded <= TOLERANCE["32-true"], f"{what}: weights in the model's files differ by {rounded:.1e} of their norm")
    worst = max(abs(x - y) / abs(y) for x, y in zip(itertools.chain(*lines), itertools.chain(*wanted)))
    ring.check(worst <= tolerance, f"{what}: parameters differ by {far:.1e} of their norm, losses and gradient norms by {worst:.1e}")


class Suite:
    def __init__(self, r):
        self.ring = r

    def train(self, name, model, precision, **settings):
        config, batch = MODELS[model]
        steps = {"train__max_steps": self.steps(model), "eval__final_validation": "true", "eval__max_iters": 4}
        return self.ring.train(name.replace(" ", "-"), model=config, precision=precision, **(steps | batch | settings))

    @staticmethod
    def steps(model):
        """Ten, where equal bits make more steps a sharper test; three of the large model take as long."""
        return 3 if model == "large" else 10

    @functools.cache
    def one(self, model, precision):
        folder = self.train(f"{model}-{precision}-one", model, precision, strategy="no_shard")
        losses = [row[0] for row in rows(folder)]
        ring.check(losses[-1] < losses[0] - 0.05, f"{model} {precision}: one rank learns, {losses[0]:.3f} to {losses[-1]:.3f}")
        return folder

    def judge(self, model, precision, case, backend, exact=None, **settings):
        what = f"{model} {precision} {case} over {backend}" + "".join(f" {k} {v}" for k, v in settings.items())
        ranks, mesh = CASES[case]
        other = self.train(what, model, precision, devices=ranks, comm__backend=backend, **(mesh | settings))
        compare(self.one(model, precision), other, what, self.steps(model), TOLERANCE[precision],
                case in DATA if exact is None else exact)


with ring.Ring(sys.argv[1]) as r:
    suite, without_mpi = Suite(r), r.why_no_mpi()
    for run in all_runs() if ring.SLOW else QUICK:
        if run[-1] != "mpi" or not without_mpi:
            suite.judge(*run)
    # Sums in the backend's own order need not be the same bits.
    for precision, case, backend in (itertools.product(TOLERANCE, ("zero3", "zero3 on 4"), ("shm", "gloo")) if ring.SLOW else
                                     [("32-true", "zero3", "gloo")]):
        suite.judge("llama", precision, case, backend, exact=False, reduce="fast")
    if without_mpi:
        print(f"left out: backend mpi, {without_mpi}")
