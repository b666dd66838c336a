"""A run saved on one mesh goes on on another, over any backend, as if nothing had happened.

resume_mesh.py TRIREME
The straight run has one process; runs on other meshes add up in other orders, so losses equal its own to 1e-5. All
ordered pairs of SIX, and from two data-parallel ranks to each of them; a seeded sample of the pairs when quick. That
moments are bit-equal right after a load: checkpointing_test.cpp.
"""

import itertools
import random
import sys

import ring

STEPS, HALF, TOLERANCE = 10, 5, 1e-5
PIPELINE_TENSOR = {"devices": 4, "mesh__pp": 2, "mesh__tp": 2}
SHARDS = {"devices": 2, "mesh__shard": 2}
DATA_PARALLEL = {"devices": 2, "strategy": "no_shard"}
SIX = [{"devices": 1}, {"devices": 4, "strategy": "full_shard"}, {"devices": 2, "mesh__tp": 2}, {"devices": 2, "mesh__pp": 2},
       PIPELINE_TENSOR, {"devices": 2, "mesh__cp": 2}]
PAIRS = [("auto", a, "auto", b) for a, b in itertools.product(SIX, SIX)] + [("auto", DATA_PARALLEL, "auto", b) for b in SIX]
SAMPLE = random.Random(36).sample(PAIRS, 3)

# (backend saved on, mesh saved on, backend, mesh that goes on)
QUICK = [("shm", PIPELINE_TENSOR, "shm", {"devices": 1}), ("shm", PIPELINE_TENSOR, "gloo", SHARDS),
         ("shm", SHARDS, "gloo", PIPELINE_TENSOR)]
MORE = [("gloo", PIPELINE_TENSOR, "shm", {"devices": 1}), ("gloo", PIPELINE_TENSOR, "shm", SHARDS),
        ("shm", PIPELINE_TENSOR, "shm", PIPELINE_TENSOR), ("gloo", {"devices": 1}, "shm", PIPELINE_TENSOR),
        ("shm", PIPELINE_TENSOR, "shm", {"devices": 4, "mesh__cp": 2, "mesh__tp": 2, "mesh__sequence_parallel": "true"}),
        ("shm", {"devices": 4, "mesh__pp": 2, "mesh__shard": 2, "pipeline__schedule": "zb_v"}, "gloo", {"devices": 4, "mesh__shard": 4}),
        ("mpi", PIPELINE_TENSOR, "mpi", SHARDS), ("mpi", PIPELINE_TENSOR, "shm", {"devices": 1})]


def name_of(mesh):
    return " ".join(f"{k.split('__')[-1]} {v}" for k, v in mesh.items())


def over(backend):
    return {} if backend == "auto" else {"comm__backend": backend}


def losses_agree(rows, want, steps, what):
    ring.require(sorted(rows) == list(steps), f"{what}: steps {steps[0]} to {steps[-1]}", str(sorted(rows)))
    worst = max(abs(rows[s]["loss"] - want[s]["loss"]) for s in steps)
    ring.check(worst <= TOLERANCE, f"{what}: losses of steps {steps[0]} to {steps[-1]} within {worst:.1e} of the straight run")


class Suite:
    def __init__(self, r):
        self.ring, self.saved = r, {}
        straight = r.train("straight", train__max_steps=STEPS)
        self.want, self.goal = ring.metrics(straight), ring.tensors(straight / f"step-{STEPS:08}")

    def save_on(self, backend, mesh):
        key = f"{name_of(mesh)} over {backend}"
        if key not in self.saved:
            folder = self.ring.train(f"on-{key}".replace(" ", "-"), train__max_steps=STEPS, train__save_interval=HALF,
                                     **over(backend), **mesh)
            ring.require(ring.step_folders(folder) == [f"step-{s:08}" for s in (HALF, STEPS)], f"{key}: saved at {HALF}")
            losses_agree(ring.metrics(folder), self.want, range(1, STEPS + 1), key)
            self.saved[key] = folder
        return key, self.saved[key] / f"step-{HALF:08}"

    def go_on(self, saved_over, saved_mesh, backend, mesh):
        key, checkpoint = self.save_on(saved_over, saved_mesh)
        what = f"{key}, then {name_of(mesh)} over {backend}"
        folder = self.ring.train(what.replace(" ", "-").replace(",", ""), train__max_steps=STEPS, resume=checkpoint,
                                 **over(backend), **mesh)
        losses_agree(ring.metrics(folder), self.want, range(HALF + 1, STEPS + 1), what)
        end = ring.tensors(folder / f"step-{STEPS:08}")
        ring.require({n: t.shape for n, t in end.items()} == {n: t.shape for n, t in self.goal.items()},
                     f"{what}: ends with the same {len(self.goal)} tensors")


with ring.Ring(sys.argv[1]) as r:
    suite, without_mpi = Suite(r), r.why_no_mpi()
    for case in QUICK + (MORE + PAIRS if ring.SLOW else SAMPLE):
        if "mpi" not in case or not without_mpi:
            suite.go_on(*case)
    if without_mpi:
        print(f"left out: backend mpi, {without_mpi}")
