"""A run saved on two ranks goes on on one, two or four; a rank killed in the middle of a save costs nothing saved.

resume.py TRIREME
"""

import os
import random
import signal
import sys
import time

import ring

KILLS = 30 if ring.SLOW else 2
# About 9 MB of weights and moments in several files: a save that takes a while.
LARGER = ring.LLAMA | {"hidden_size": 192, "intermediate_size": 384, "num_attention_heads": 4}


def goes_on_elsewhere(r):
    unbroken = r.train("unbroken", devices=2, train__max_steps=20, train__save_interval=10)
    ring.check(ring.step_folders(unbroken) == ["step-00000010", "step-00000020"], "a run of 20 steps saved at 10 and at 20")
    want, goal = ring.metrics(unbroken), ring.tensors(unbroken / "step-00000020")
    for ranks in (1, 2, 4):
        for strategy in ("full_shard", "no_shard") if ring.SLOW else ("full_shard",):
            out = r.train(f"on-{ranks}-{strategy}", devices=ranks, strategy=strategy, train__max_steps=20,
                          resume=unbroken / "step-00000010")
            rows = ring.metrics(out)
            ring.check(sorted(rows) == list(range(11, 21)), f"{ranks} ranks, {strategy}: goes on at step 11")
            worst = max(abs(rows[s]["loss"] - want[s]["loss"]) for s in rows)
            ring.check(worst <= 1e-5, f"{ranks} ranks, {strategy}: losses of steps 11 to 20 within {worst:.1e} of the unbroken run")
            end = ring.tensors(out / "step-00000020")
            ring.check(all(end[n].tobytes() == goal[n].tobytes() for n in goal), f"{ranks} ranks, {strategy}: ends in the same bits")


def newest_is(r, out, step, what):
    """A resumed run of one more step must start from `step` and verify every byte of it."""
    result = r.run(r.command(out, model=LARGER, devices=2, train__max_steps=step + 1, save__keep_last=0, resume="true",
                             train__save_interval=0))
    ring.check(result.code == 0 and f"step-{step:08} at step {step}" in result.out, f"{what}: resumes at step {step}", str(result))
    return result


def kill_in_a_save(r, number, source):
    out = f"killed-{number}"
    folder = r.folder / out
    launcher = r.start(r.command(out, model=LARGER, devices=2, train__max_steps=1000, train__save_interval=1, save__keep_last=0,
                                 save__max_shard_bytes="1MB"))
    pids = r.ranks(2)
    ring.wait_for(lambda: len(ring.step_folders(folder)) >= 1 + number % 3, "a first checkpoint")
    ring.wait_for(lambda: list(folder.glob(".tmp-*")), "a save under way", interval=0)
    time.sleep(source.random() * 0.02)
    rank = number % 2
    os.kill(pids[rank], signal.SIGKILL)
    result = r.finish(launcher)
    steps = [int(name[5:]) for name in ring.step_folders(folder)]
    left = [path.name for path in folder.glob(".tmp-*")]
    where = f"kill {number + 1}, of rank {rank}"
    ring.check(result.code == 128 + signal.SIGKILL, f"{where}: exit code {result.code}", str(result))
    ring.check(f": rank {rank} (pid {pids[rank]}) was killed by signal 9 (SIGKILL)" in result.err, f"{where}: named in the headline", str(result))
    ring.check(steps == list(range(1, len(steps) + 1)), f"{where}: {len(steps)} whole checkpoints, {len(left)} unfinished")
    ring.check(f"step-{steps[-1]:08}" in result.err, f"{where}: the headline names the newest good checkpoint", str(result))
    newest_is(r, out, steps[-1], where)
    r.require_nothing_is_left(out, where)
    return bool(left) or f"step {steps[-1] + 1}" in result.err


with ring.Ring(sys.argv[1]) as r:
    goes_on_elsewhere(r)
    source = random.Random(5)
    inside = sum(kill_in_a_save(r, number, source) for number in range(KILLS))
    ring.check(inside > 0, f"{inside} of {KILLS} kills fell into a save")
