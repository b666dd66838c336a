"""A run saved on two ranks goes on on one, two or four; a rank killed in the middle of a save costs nothing saved.

resume.py TRIREME
"""

import os
import random
import signal
import sys
import time

import ring

KILLS = 100 if ring.SLOW else 4  # of saves at once and beside training, in turn
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
                                 save__max_shard_bytes="1MB", save__mode="async" if number % 2 else "sync"))
    pids = r.ranks(2)
    ring.wait_for(lambda: len(ring.step_folders(folder)) >= 1 + number % 3, "a first checkpoint")
    ring.wait_for(lambda: list(folder.glob(".tmp-*")), "a save under way", interval=0)
    time.sleep(source.random() * 0.02)
    rank = number // 2 % 2
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


def saves_beside_training(r):
    at_once = r.train("at-once", model=LARGER, devices=2, train__max_steps=6, train__save_interval=2)
    beside = r.train("beside", model=LARGER, devices=2, train__max_steps=6, train__save_interval=2, save__mode="async")
    ring.check(ring.step_folders(beside) == ring.step_folders(at_once), "saves beside training: the same checkpoints")
    for name in ring.step_folders(at_once):
        files = {path.name: path.read_bytes() for path in (at_once / name).glob("*.safetensors")}
        ring.require(all((beside / name / file).read_bytes() == bytes_ for file, bytes_ in files.items()), f"{name}: the same bytes")
    ring.check(True, "saves beside training hold the state of their step, bit for bit, though training went on")
    result = r.run(r.command("every-step", model=LARGER, devices=2, train__max_steps=12, train__save_interval=1, save__mode="async",
                             save__keep_last=0))
    ring.check(result.code == 0 and len(ring.step_folders(r.folder / "every-step")) == 12, "a save that comes too soon waits for the one before", str(result))
    ring.check("waited   " in result.out and "for the save of step 1, which was still under way" in result.out, "and says so", str(result))
    ring.check("beside training, which stood still for " in result.out, "the time that training stood still is printed", str(result))
    plain = r.run([r.program, "explain", "memory", *r.command("x", model=LARGER, devices=2)[2:]])
    copy = r.run([r.program, "explain", "memory", *r.command("x", model=LARGER, devices=2, save__mode="async")[2:]])
    ring.check("copy for saving" in copy.out and "copy for saving" not in plain.out, "explain memory shows the copy", str(copy))
    huge = dict(model__hidden_size=16384, model__num_hidden_layers=48, model__intermediate_size=65536, model__num_attention_heads=128)
    result = r.run(r.command("huge", devices=2, save__mode="async", **huge))
    ring.check(result.code == 2 and "save.mode async keeps a copy of the state of" in result.err and "are available" in result.err,
               "a copy that this machine cannot hold is refused at the start, with the numbers", str(result))
    ring.require(not (r.folder / "huge").exists(), "nothing was written")


def a_run_keeps_what_it_starts_from(r):
    """A new run from a step of its own out_dir must not save another model in that step's place."""
    first = r.train("keeps", train__max_steps=4, train__save_interval=2, save__keep_last=0) / "step-00000002"
    before = {path.name: path.read_bytes() for path in first.iterdir()}

    def from_it(out, **settings):
        command = r.command(out, model={}, **settings)
        command[command.index("llama-5m")] = str(first)
        return r.run(command)

    for what, settings in [("its number", {"train__max_steps": 2}), ("beyond", {"train__max_steps": 3}),
                           ("beyond, counted in epochs", {"train__max_steps": "null", "train__epochs": 1})]:
        for devices in (1, 2):
            result = from_it("keeps", devices=devices, **settings)
            ring.check(result.code == 2 and f"from the weights of {first} would replace that folder at step 2" in result.err and "--resume" in result.err,
                       f"a run on {devices} from a step of its own out_dir to {what} is refused", str(result))
            ring.require({path.name: path.read_bytes() for path in first.iterdir()} == before, "the step is as it was")
    result = from_it("keeps-not", train__max_steps=3)
    ring.check(result.code == 0, "into another out_dir it starts", str(result))
    result = from_it("keeps", train__max_steps=1)
    ring.check(result.code == 0 and ring.step_folders(r.folder / "keeps") == ["step-00000001", "step-00000002", "step-00000004"],
               "and one that ends before that step", str(result))
    result = from_it("keeps", train__max_steps=5, resume=first)
    ring.check(result.code == 0 and "resumed  " in result.out, "and one that goes on from the step", str(result))
    ring.require({path.name: path.read_bytes() for path in first.iterdir()} == before, "the step is as it was")


with ring.Ring(sys.argv[1]) as r:
    a_run_keeps_what_it_starts_from(r)
    goes_on_elsewhere(r)
    saves_beside_training(r)
    source = random.Random(5)
    inside = sum(kill_in_a_save(r, number, source) for number in range(KILLS))
    ring.check(inside > 0, f"{inside} of {KILLS} kills fell into a save")
