"""A request to stop at any one rank, at any time, costs nothing: the ranks stop together with exit code 75 and a valid
checkpoint, and the run that goes on from it ends with the bits of a run that nobody stopped.

preempt.py TRIREME
"""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import ring

STEPS = 24
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]
RUN = {"devices": 2, "train__max_steps": STEPS, "train__save_interval": 6, "eval__interval": 4, "eval__max_iters": 40,
       "save__keep_last": 0}
KINDS = ["start-up", "training", "evaluation", "saving", "loading"]


class Job:
    """Two ranks, started by Trireme's launcher, or each by itself as torchrun starts them."""

    def __init__(self, r, out, launched, settings):
        self.r, self.out, self.launched = r, r.folder / out, launched
        command = r.command(out, **(RUN | settings))
        if launched:
            self.processes = [r.start(command)]
            self.pids = r.ranks(2, timeout=200)
            return
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.processes = []
        for rank in range(2):
            env = ring.environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TRIREME_JOB_ID="preempt")
            with open(r.folder / f"rank{rank}.txt", "w") as log:
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=r.folder,
                                                       stdin=subprocess.DEVNULL, env=env))
        self.pids = [p.pid for p in self.processes]
        for pid in self.pids:  # before that a signal ends the process: nobody else can block it for us
            ring.wait_for(lambda: self.takes_signals(pid), "ranks that take signals")

    def takes_signals(self, pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        caught = int(status.split("SigCgt:")[1].split()[0], 16)
        return caught >> (signal.SIGTERM - 1) & 1

    def signal(self, rank, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[rank], number)

    def said(self):
        """What rank 0 has said so far."""
        return (self.r.folder / ("start.out" if self.launched else "rank0.txt")).read_text(errors="replace")

    def ended(self):
        return any(p.poll() is not None for p in self.processes)

    def finish(self):
        """Exit codes, and what each rank said."""
        codes = {p.wait(timeout=200) for p in self.processes}
        if not self.launched:
            return codes, [(self.r.folder / f"rank{rank}.txt").read_text() for rank in range(2)]
        said = "".join((self.r.folder / name).read_text(errors="replace") for name in ("start.out", "start.err"))
        return codes, [said, (self.out / "logs" / "rank1.log").read_text()]


def stop_place(text):
    """'at step 7' or 'before the first step' of the line that says where a rank stopped."""
    [line] = [line for line in text.splitlines() if "stopped " in line and " by request (" in line]
    return line.split("stopped ")[1].split(" by request")[0].split(",")[0]


def weights(folder):
    """The bytes of every tensor's file of the last checkpoint."""
    return {p.name: p.read_bytes() for p in sorted((folder / f"step-{STEPS:08d}").glob("*.safetensors"))}


def await_a_save(job, skipped):
    """Returns while a checkpoint is being written, or just after, once `skipped` others have been."""
    for later in range(skipped, -1, -1):
        known = set(ring.step_folders(job.out))
        ring.wait_for(lambda: list(job.out.glob(".tmp-*")) or set(ring.step_folders(job.out)) > known or job.ended(), "a save",
                      interval=0.0005)
        if later:
            ring.wait_for(lambda: not list(job.out.glob(".tmp-*")), "the end of a save", interval=0.0005)


def one_stop(r, number, source, straight, latest):
    kind, backend, launched = KINDS[number % 5], ["shm", "gloo"][number // 5 % 2], number // 10 % 2 == 0
    out = f"run-{number}"
    settings = {"comm__backend": backend}
    if kind == "evaluation":
        settings |= {"eval__interval": 1}
    if kind == "saving" and source.random() < 0.5:
        settings |= {"save__mode": "async"}
    if kind == "loading":
        settings |= {"resume": "true"}
        shutil.copytree(straight / "step-00000006", r.folder / out / "step-00000006")
    rank, which = source.randrange(2), source.choice(SIGNALS)
    for attempt in range(8):  # a run may end before its signal comes: then once more, and earlier
        job = Job(r, out, launched, settings | ({"resume": "auto"} if attempt and kind != "loading" else {}))
        if kind == "saving":
            await_a_save(job, source.randrange(3))
        elif kind in ("training", "evaluation"):
            step = f" {source.randrange(1, max(2, (STEPS - 2) >> attempt))}/{STEPS} "
            ring.wait_for(lambda: step in job.said() or job.ended(), f"step{step}", interval=0.002)
            time.sleep(source.uniform(0, 0.2 / 2**attempt))
        else:
            time.sleep(source.uniform(0, latest / 2**attempt))
        job.signal(rank, which)
        codes, said = job.finish()
        if codes != {0}:
            break
        shutil.rmtree(r.folder / out)
        if kind == "loading":
            shutil.copytree(straight / "step-00000006", r.folder / out / "step-00000006")
    what = f"stop {number}: {signal.Signals(which).name} to rank {rank} while {kind}, {backend}, {'our' if launched else 'another'} launcher"
    ring.require(codes == {75}, f"{what}: exit code 75", f"{codes}\n" + "\n".join(said))
    places = {stop_place(text) for text in said}
    ring.require(len(places) == 1, f"{what}: all ranks stop at the same step", str(places))
    [place] = places
    folders = ring.step_folders(r.folder / out)
    if place == "before the first step":
        ring.require(folders == (["step-00000006"] if kind == "loading" else []), f"{what}: nothing is saved before the first step", str(folders))
    else:
        ring.require(folders and folders[-1] == f"step-{int(place.split()[-1]):08d}", f"{what}: the state of {place} is saved", str(folders))
    if folders:
        result = r.run([r.program, "checkpoint", "verify", str(r.folder / out / folders[-1])])
        ring.require(result.code == 0, f"{what}: the checkpoint is valid", str(result))
    left = list((r.folder / out).glob(".tmp-*"))
    ring.require(not left, f"{what}: no unfinished folder is left", str(left))
    result = r.run(r.command(out, **RUN | {"resume": "auto", "comm__backend": backend}))
    ring.require(result.code == 0, f"{what}: the run goes on", str(result))
    ring.require(weights(r.folder / out) == weights(straight), f"{what}: and ends with the bits of a run that nobody stopped")
    want, rows = ring.metrics(straight), ring.metrics(r.folder / out)
    first = 7 if kind == "loading" else 1
    ring.require(all(want[s]["loss"] == rows[s]["loss"] for s in range(first, STEPS + 1)), f"{what}: so are its losses")
    evaluated = [s for s in want if s >= first and "val_loss" in want[s]]
    ring.require(all(want[s]["val_loss"] == rows[s].get("val_loss") for s in evaluated), f"{what}: and its evaluations",
                 str({s: rows[s].get("val_loss") for s in evaluated}))
    if kind == "evaluation" and place != "before the first step":  # one that was cut is made up
        stopped_at = int(place.split()[-1])
        ring.require("val_loss" in rows[stopped_at], f"{what}: step {stopped_at} has its evaluation", str(rows[stopped_at]))
    lines = (r.folder / out / "metrics.jsonl").read_text().splitlines()
    ring.require(len(lines) == len(rows), f"{what}: one row a step", f"{len(lines)} rows of {len(rows)} steps")
    shutil.rmtree(r.folder / out)
    return kind, place


def stops_cost_nothing(r):
    straight = r.train("straight", **RUN)
    # How long ranks of this machine, as busy as it is, take to start.
    job = Job(r, "timed", True, {})
    begin = time.monotonic()
    ring.wait_for(lambda: f" 1/{STEPS} " in job.said(), "the first step")
    latest = time.monotonic() - begin
    job.finish()
    seed = int(os.environ.get("TRIREME_SEED", time.time_ns() % 1_000_000))
    source, count = random.Random(seed), 100 if ring.SLOW else 5
    places = {}
    order = range(count) if ring.SLOW else [10 * source.randrange(2) + 5 * source.randrange(2) + k for k in range(5)]
    for number in order:
        kind, place = one_stop(r, number, source, straight, latest)
        places.setdefault(kind, []).append(place.split()[-1] if "at" in place else "-")
    ring.check(True, f"{count} stops (seed {seed}) at " + "; ".join(f"{k}: {' '.join(v)}" for k, v in places.items()))


def a_long_step_is_given_up(r):
    """A step of 20 s and 5 s of grace; quick: whatever the step takes, and half a second."""
    batch, grace = (448, 5) if ring.SLOW else (48, 0.5)
    settings = {"devices": 2, "train__max_steps": 3, "train__global_batch_size": batch, "train__micro_batch_size": 4,
                "train__max_seq_length": 256, "launch__grace": f"{grace}s"}
    job = r.start(r.command("long", model={}, **settings))
    pids = r.ranks(2, timeout=200)
    ring.wait_for(lambda: (r.folder / "long" / "metrics.jsonl").exists() and ring.metrics(r.folder / "long"), "the first step", timeout=200)
    seconds = ring.metrics(r.folder / "long")[1]["seconds"]
    begin = time.monotonic()
    os.kill(pids[1], signal.SIGTERM)
    result = r.finish(job)
    took = time.monotonic() - begin
    ring.check(result.code == 75 and "step 2 is given up" in result.out and ring.step_folders(r.folder / "long") == ["step-00000001"],
               f"a step of {seconds:.1f} s is given up for {grace} s of grace; step 1 is saved {took:.1f} s after the signal", str(result))
    ring.require(r.run([r.program, "checkpoint", "verify", str(r.folder / "long" / "step-00000001")]).code == 0, "its checkpoint is valid")
    if ring.SLOW:
        ring.check(seconds > 15 and took < grace + 0.5, "inside the grace time, for a step that is far longer")


def a_stop_at_the_end_finds_nothing_left(r):
    """In the last step, and in the evaluation after it: the run ends as one that nobody stopped."""
    step = {"train__global_batch_size": 24, "train__micro_batch_size": 4, "train__max_seq_length": 256}
    evaluation = {"eval__final_validation": "true", "eval__max_iters": 100000, "data__val_split_fraction": 0.9, "eval__interval": 1000}
    for what, model, more in [("the last step", {}, step), ("the last evaluation", ring.WIDE, evaluation)]:
        for attempt in range(5):  # on a busy machine this script may look when all is over
            out = f"end-of-{what.split()[-1]}-{attempt}"
            job = r.start(r.command(out, model, devices=2, train__max_steps=2, **more))
            pids = r.ranks(2, timeout=200)
            ring.wait_for(lambda: (r.folder / out / "metrics.jsonl").exists() and ring.metrics(r.folder / out), "the first step", timeout=200)
            time.sleep(0.1)
            if not ring.step_folders(r.folder / out):
                break
            r.finish(job)
        ring.require(not ring.step_folders(r.folder / out), f"{what} is still to end when the stop comes")
        os.kill(pids[1], signal.SIGUSR1)
        result = r.finish(job)
        ring.check(result.code == 0 and "continue with" not in result.text and "SIGUSR1 at rank 1) when training was complete" in result.out,
                   f"a stop during {what} ends with exit code 0", str(result))
        ring.require(ring.step_folders(r.folder / out) == ["step-00000002"], f"{what}: the last step is saved", str(result))
        done = r.run([r.program, "checkpoint", "verify", str(r.folder / out / "step-00000002")])
        ring.require(done.code == 0, f"{what}: its checkpoint is valid", str(done))
        r.require_nothing_is_left(out, what)


with ring.Ring(sys.argv[1]) as r:
    a_stop_at_the_end_finds_nothing_left(r)
    a_long_step_is_given_up(r)
    stops_cost_nothing(r)
