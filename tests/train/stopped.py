"""A rank that is stopped by a signal anywhere in training is named, over every backend: no connection is blamed.

stopped.py TRIREME
A seeded sample, one rank a backend; TRIREME_SLOW=1: 30.
"""

import contextlib
import os
import random
import re
import signal
import sys
import time

import ring

RANKS, TIMEOUT = 4, 3


def stop_one(r, number, backend, source):
    out = f"run-{number}"
    rank = source.randrange(RANKS)
    job = r.start(r.command(out, devices=RANKS, comm__backend=backend, comm__timeout=f"{TIMEOUT}s", train__max_steps=1000000,
                            launch__join_timeout="60s"))
    pids = r.ranks(RANKS, timeout=120, variable="OMPI_COMM_WORLD_RANK" if backend == "mpi" else "RANK")
    said = r.folder / "start.out"
    ring.wait_for(lambda: "step " in said.read_text(errors="replace") or job.poll() is not None, "a step", timeout=120,
                  detail=(r.folder / "start.err").read_text)
    time.sleep(source.uniform(0, 1))
    at = time.monotonic()
    os.kill(pids[rank], signal.SIGSTOP)
    try:
        code = job.wait(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[rank], signal.SIGKILL)
    seconds = time.monotonic() - at
    text = "".join((r.folder / name).read_text(errors="replace") for name in ("start.out", "start.err"))
    named = re.search(rf"hang: rank {rank} has [^\n]*; it is stopped by a signal", text)
    ring.require(code != 0 and named, f"stop {number}: rank {rank} over {backend} is named", f"exit code {code}\n{text[-4000:]}")
    ring.require("connection between them is cut" not in text, f"stop {number}: no connection is blamed", text[-4000:])
    print(f"ok      stop {number}: {backend}: {named.group(0)[:150]}, over after {seconds:.1f} s", flush=True)


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("how long a job may wait")
    seed = int(os.environ.get("TRIREME_SEED", time.time_ns() % 1_000_000))
    source = random.Random(seed)
    backends = ["gloo", "shm"] + ([] if r.why_no_mpi() else ["mpi"])
    count = 30 if ring.SLOW else len(backends)
    for number in range(count):
        stop_one(r, number, backends[number % len(backends)], source)
    print(f"ok      {count} of {count} stopped ranks are named (seed {seed}, {', '.join(backends)})")
    r.require_nothing_is_left("nowhere", "stopped ranks")
