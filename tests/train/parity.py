"""Ten steps give the same parameters, moments and losses for any strategy, number of processes and backend.

parity.py TRIREME
The bar is ||a-b||/||b|| <= 2e-6 in float32 and 1e-10 in float64; sums in order (reduce: ordered) give equal bits.
"""

import itertools
import math
import sys

import ring

[numpy] = ring.judges("numpy")
TOLERANCE = {"32-true": 2e-6, "64-true": 1e-10}
QUICK = {"32-true": [("full_shard", 2, "shm"), ("no_shard", 4, "shm"), ("full_shard", 4, "gloo")],
         "64-true": [("no_shard", 2, "gloo"), ("full_shard", 4, "shm")]}


def distance(a, b):
    squares = sum(float(numpy.sum((a[n].astype(numpy.float64) - b[n]) ** 2)) for n in b)
    return math.sqrt(squares / sum(float(numpy.sum(b[n].astype(numpy.float64) ** 2)) for n in b))


def combinations(precision):
    if not ring.SLOW:
        return QUICK[precision]
    return [c for c in itertools.product(("no_shard", "full_shard"), (1, 2, 4), ("shm", "gloo")) if c[1] > 1 or c[2] == "shm"]


def compare(one, other, what, tolerance, exact):
    a, b = ring.tensors(other / "step-00000010"), ring.tensors(one / "step-00000010")
    ring.check(a.keys() == b.keys(), f"{what}: the same {len(b)} tensors")
    master = [n for n in b if n.endswith(".master")]
    far = distance({n: a[n] for n in master}, {n: b[n] for n in master})
    ring.check(far <= tolerance, f"{what}: parameters differ by {far:.1e} of their norm, at most {tolerance:.0e}")
    if not exact:
        return
    unequal = [n for n in b if a[n].tobytes() != b[n].tobytes()]
    ring.check(not unequal, f"{what}: parameters and moments equal bit for bit", f"{len(unequal)} are not: {unequal[:5]}")
    rows = ring.metrics(one), ring.metrics(other)
    pairs = [[(row["loss"], row["grad_norm"]) for row in run.values()] for run in rows]
    ring.check(pairs[0] == pairs[1] and len(pairs[0]) == 10, f"{what}: ten equal losses and gradient norms", str(pairs))


with ring.Ring(sys.argv[1]) as r:
    models = {"llama": ring.LLAMA} | ({"gpt2": ring.GPT2} if ring.SLOW else {})
    for (name, model), precision in itertools.product(models.items(), TOLERANCE):
        one = r.train(f"{name}-{precision}-one", model=model, precision=precision, strategy="no_shard")
        losses = [row["loss"] for row in ring.metrics(one).values()]
        ring.check(losses[-1] < losses[0] - 0.05, f"{name} {precision}: one rank learns, {losses[0]:.3f} to {losses[-1]:.3f}")
        for strategy, ranks, backend in combinations(precision):
            what = f"{name} {precision} {strategy} on {ranks} over {backend}"
            other = r.train(what.replace(" ", "-"), model=model, precision=precision, strategy=strategy, devices=ranks,
                            comm__backend=backend)
            compare(one, other, what, TOLERANCE[precision], exact=True)
        # Sums in the backend's own order: not the same bits, but within the bar.
        for backend in ("gloo", "shm") if ring.SLOW else ("gloo",):
            if precision == "32-true" or ring.SLOW:
                what = f"{name} {precision} full_shard on 4 over {backend}, reduce fast"
                other = r.train(f"{name}-{precision}-{backend}-fast", model=model, precision=precision, devices=4, reduce="fast",
                                comm__backend=backend)
                compare(one, other, what, TOLERANCE[precision], exact=False)
