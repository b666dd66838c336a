"""Two jobs in one out_dir: the second is refused or waits, and the first never notices.

two_jobs.py TRIREME
Random pairs of launchers, single ranks and mpirun; the second is fresh, overwrites, or resumes; in some pairs the first
is killed or stopped in between. TRIREME_SLOW=1 runs 60 pairs, otherwise one of each kind.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time

import ring

PAIRS = 60 if ring.SLOW else 6
SEED = 19
# How a job starts, and the second one's words. `named`: a scheduler's job, put back into the queue.
STARTS = ("launcher", "single", "mpirun")
WORDS = {"fresh": {}, "resume": {"resume": "true"}, "auto": {"resume": "auto"}, "overwrite": {"overwrite": "true"}}
ENDS = ("SIGTERM", "SIGKILL", "SIGKILL to a rank")
# (what the second says, whether it is the first one's requeued self, when the first ends)
KINDS = [("fresh", False, "after"), ("auto", False, "after"), ("resume", False, "before"), ("fresh", False, "before"),
         ("auto", True, "while"), ("overwrite", False, "after"), ("resume", True, "after"), ("auto", True, "before")]


class Job:
    """A started pretrain with output files of its own."""

    def __init__(self, r, name, out, start, named, **settings):
        ranks = 1 if start == "single" else 2
        command = r.command(out, devices=ranks, train__max_steps=1_000_000, train__save_interval=2, save__keep_last=2,
                            **({"comm__backend": "shm"} if start == "mpirun" else {}), **settings)
        if start == "mpirun":
            command = [*ring.MPIRUN, "-n", "2", *command]
        names = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "austen-x7z9q"} if named else {}
        self.paths = [r.folder / f"{name}.{end}" for end in ("out", "err")]
        with open(self.paths[0], "w") as stdout, open(self.paths[1], "w") as stderr:
            self.process = subprocess.Popen(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL, cwd=r.folder,
                                            env=ring.environment(**names))
        self.began = time.monotonic()

    @property
    def text(self):
        return "".join(path.read_text(errors="replace") for path in self.paths)

    def wait(self, timeout=60):
        ring.wait_for(lambda: self.process.poll() is not None, "a job ends", timeout=timeout, detail=lambda: self.text[-3000:])
        return self.process.returncode


def children(pid):
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, encoding="utf-8")
    return [int(word) for word in done.stdout.split()]


def newest(folder):
    names = [n for n in ring.step_folders(folder) if (folder / n / "manifest.json").exists()]
    return int(names[-1][5:]) if names else 0


def end(job, how):
    target = job.process.pid
    if how == "SIGKILL to a rank" and (below := children(target)):
        target = below[-1]
    with contextlib.suppress(ProcessLookupError):
        os.kill(target, signal.SIGTERM if how == "SIGTERM" else signal.SIGKILL)
    return job.wait()


def lines_of(folder):
    return [int(re.search(r'"step": ?(\d+)', line)[1]) for line in (folder / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]


def records(folder):
    """What a second job would put something else in the place of."""
    return {str(path): path.stat().st_ino for path in [folder / "metrics.jsonl", folder / "run.json", *folder.glob("flight/*"), *folder.glob("logs/*")]}


def the_first_is_unharmed(first, folder, before, step, what):
    ring.require(first.process.poll() is None, f"{what}: the first job still runs", first.text[-3000:])
    ring.require(records(folder) == before, f"{what}: its records are its own", f"{before}\n{records(folder)}")
    ring.wait_for(lambda: newest(folder) > step, f"{what}: the first saves on", detail=lambda: first.text[-3000:])
    steps = lines_of(folder)
    ring.require(steps == list(range(1, len(steps) + 1)), f"{what}: metrics.jsonl has every step once", str(steps))


def goes_on(r, second, folder, step, what):
    ring.wait_for(lambda: newest(folder) > step or second.process.poll() is not None, f"{what}: the second goes on from step {step}",
                  detail=lambda: second.text[-3000:])
    resumed = re.search(r"resumed .* at step (\d+)", second.text)
    ring.require(second.process.poll() is None and resumed and int(resumed[1]) >= step, f"{what}: resumed at step {step} or later", second.text[-3000:])
    code = end(second, "SIGTERM")
    ring.require("stopped at step" in second.text, f"{what}: and stops when asked ({code})", second.text[-3000:])
    steps = lines_of(folder)
    ring.require(steps == list(range(1, len(steps) + 1)), f"{what}: metrics.jsonl has every step once", str(steps))


def commands_beside_a_job(r):
    """What only reads is not refused; what would replace the folder, or add a step to it, is."""
    job = Job(r, "beside", "beside", "launcher", False)
    folder = r.folder / "beside"
    ring.wait_for(lambda: newest(folder) >= 2, "a checkpoint", detail=lambda: job.text[-3000:])
    plain = r.folder / "plain"
    result = r.run([r.program, "generate", str(folder), "--prompt", "the", "--max_new_tokens", "2", "--devices", "1"])
    ring.check(result.code == 0, "generate reads beside a job", str(result))
    result = r.run([r.program, "checkpoint", "list", str(folder)])
    ring.check(result.code == 0, "checkpoint list does", str(result))
    source = r.train("source", train__max_steps=1) / "step-00000001"
    for words in (["checkpoint", "reshard", source, folder / "step-00000001"], ["checkpoint", "consolidate", source, folder / "step-00000001"],
                  ["convert", source, folder, "--force"], ["convert", source, folder / "step-00000001"]):
        result = r.run([r.program, *map(str, words)])
        ring.check(result.code == 2 and f"is in use by another job: trireme pretrain, process {job.process.pid}" in result.err,
                   f"{words[0]} into {words[-1] if words[0] == 'checkpoint' else words[2]}: refused", str(result))
    result = r.run([r.program, "checkpoint", "consolidate", str(source), str(plain)])
    ring.check(result.code == 0, "consolidate into another folder is not", str(result))
    end(job, "SIGTERM")


def pair(r, number, kind, source):
    words, named, when = kind
    first_start, second_start, how = source.choice(STARTS), source.choice(STARTS), source.choice(ENDS)
    if not r.has_mpi:
        first_start, second_start = (s if s != "mpirun" else "launcher" for s in (first_start, second_start))
    what = f"pair {number + 1}: {first_start}, then {second_start} {words}{' of the same name' if named else ''}"
    folder = r.folder / f"pair-{number}"
    first = Job(r, f"{number}-first", folder.name, first_start, named)
    ring.wait_for(lambda: newest(folder) >= 2, f"{what}: a checkpoint of the first", detail=lambda: first.text[-3000:])
    if when == "before":
        end(first, how)
        step = newest(folder)
        second = Job(r, f"{number}-second", folder.name, second_start, named, **WORDS[words])
        if words == "fresh":
            code = second.wait()
            ring.require(code != 0 and "holds checkpoints of another run" in second.text, f"{what}: refused", second.text)
            ring.require(newest(folder) == step and step in lines_of(folder), f"{what}: what the first left is as it was")
            outcome = f"the first ended by {how}, the second is refused"
        else:
            goes_on(r, second, folder, step, what)
            outcome = f"the first ended by {how}, the second goes on"
    else:
        before, step = records(folder), newest(folder)
        second = Job(r, f"{number}-second", folder.name, second_start, named, **WORDS[words])
        if when == "while":
            ring.wait_for(lambda: "waiting for the end of the job that holds" in second.text, f"{what}: it waits", detail=lambda: second.text)
            the_first_is_unharmed(first, folder, before, step, what)
            end(first, how)
            goes_on(r, second, folder, newest(folder), what)
            outcome = f"the second waits; the first ended by {how}, the second goes on"
        else:
            code = second.wait()
            held_by = re.search(r"is in use by another job: .*trireme pretrain, process (\d+) on \S+ since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", second.text)
            ring.require(code != 0 and (second_start == "mpirun" or code == 2) and held_by, f"{what}: refused with 2, naming the first", f"{code}\n{second.text}")
            ring.require(int(held_by[1]) in [first.process.pid, *children(first.process.pid)], f"{what}: names its process", second.text)
            the_first_is_unharmed(first, folder, before, step, what)
            end(first, how)
            outcome = "the second is refused, the first unharmed"
    deadline = time.monotonic() + 20
    while r.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    ring.require(not r.processes(), f"{what}: no process is left", str(r.processes()))
    subprocess.run(["rm", "-rf", str(folder)], check=False)
    ring.check(True, f"{what}: {outcome}")


with ring.Ring(sys.argv[1]) as r:
    r.has_mpi = not r.why_no_mpi()
    commands_beside_a_job(r)
    source = random.Random(SEED)
    for number in range(PAIRS):
        pair(r, number, KINDS[number % len(KINDS)] if number < len(KINDS) else source.choice(KINDS), source)
