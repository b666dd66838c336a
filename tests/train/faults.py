"""Injected faults end in one line that names the rank, the operation, what was expected and what was found, within
comm.timeout + 5 s: a skipped collective, a wrong shape, a rank that sleeps, a stopped process, a cut link; alone and inside
training steps, over shm, gloo and mpi. Ranks that throw or are killed: the last lines name them, and nobody stays.

faults.py TRIREME
A seeded sample; TRIREME_SLOW=1: 50 cases. Times are judged there only, for the quick ones share the machine with other tests.
"""

import dataclasses
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import threading
import time

import ring

TIMEOUT = 3  # comm.timeout, s
PATIENCE = 5
RANKS = 4
MESHES = {"full_shard": ({}, ["gather", "reduce", "loss", "world"]),
          "tp": ({"mesh.tp": 2}, ["gather", "reduce", "tp"]),
          "pp": ({"mesh.pp": 2, "pipeline.schedule": "1f1b"}, ["gather", "reduce", "activations", "gradients"])}


@dataclasses.dataclass
class Case:
    number: int
    backend: str
    mode: str
    kind: str
    rank: int
    group: str = "world"
    call: int = 0
    mesh: str = "full_shard"

    def __str__(self):
        where = f"{self.mode} {self.mesh if self.mode == 'train' else ''}".strip()
        return f"case {self.number}: {self.kind} on rank {self.rank}, call {self.call} of {self.group}, {where}, {self.backend}"


def draw_cases(count, backends, may_cut):
    source = random.Random(8)
    cases = []
    for number in range(count):
        backend = backends[number % len(backends)]
        kinds = ["skip", "shape", "sleep", "stop"] + (["cut"] if may_cut and backend != "shm" else [])
        case = Case(number, backend, source.choice(["bare", "train", "train"]), kinds[number // len(backends) % len(kinds)],
                    source.randrange(RANKS), call=source.randrange(3, 40))
        if case.mode == "train":
            case.mesh = source.choice(list(MESHES))
            groups = MESHES[case.mesh][1]
            # A message that is left out is no call that ranks could compare.
            if case.kind in ("skip", "shape"):
                groups = [g for g in groups if g not in ("activations", "gradients")]
            case.group = source.choice(groups)
        cases.append(case)
    return cases


def is_expected(case, line):
    """Whether the line tells this fault: whose, in which operation, what was expected and what was found."""
    operation = r"(all_gather|reduce_scatter|all_reduce|broadcast|barrier|send|receive)"
    if case.kind == "cut":
        return re.search(rf"hang: ranks 0-3 have all joined {operation} #[\d,]+ of group \w+.* for \d.*connection between them is cut", line)
    if case.kind in ("sleep", "stop"):
        # The others may wait for it in another group than the one whose call it does not make.
        doing = "is stopped by a signal" if case.kind == "stop" else "sleeps"
        return re.search(rf"hang: rank {case.rank} has (not joined|not sent|not received|called) .*{operation} #[\d,]+ of group \w+ .* for \d.*; it {doing}", line)
    named = rf"expected {operation}\(.* as on global ranks [\d, ]+, found {operation}\(.* on rank \d \(global rank {case.rank}\)"
    if case.mode == "train" and case.mesh != "full_shard":  # groups of two ranks, of which neither is the odd one
        named = rf"rank \d \(global rank \d\) calls {operation}\(.*but rank \d \(global rank \d\) calls {operation}\(.*"
    late = rf"hang: rank {case.rank} has (not joined|called) .*{operation} #[\d,]+ of group {case.group}\b.*"
    gone = rf"rank \d \(global rank {case.rank}\).* closed its communicator"
    return re.search(named, line) or (case.kind == "skip" and (re.search(late, line) or re.search(gone, line)))


class Judge:
    """Runs cases; a network of their own lets their links be cut."""

    def __init__(self, r):
        self.ring = r
        self.program = pathlib.Path(r.program).parent / "fault_rank"
        self.namespace = f"ringfault{os.getpid()}"

    def may_cut(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            return False
        made = subprocess.run(["ip", "netns", "add", self.namespace], capture_output=True, check=False)
        if made.returncode != 0:
            return False
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "lo", "up"], check=True)
        return True

    def close(self):
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)

    def command(self, case, out, timeout=TIMEOUT):
        settings = {"out_dir": out, "comm.backend": case.backend, "comm.timeout": f"{timeout}s", "precision": "32-true",
                    "strategy": "full_shard", "train.max_seq_length": 32, "train.global_batch_size": 16, "train.micro_batch_size": 1,
                    "launch.threads_per_rank": 1}
        settings |= {f"model.{k}": v for k, v in ring.LLAMA.items()} | MESHES[case.mesh][0]
        words = [str(self.program), case.mode, "llama-5m"]
        for key, value in settings.items():
            words += [f"--{key}", str(value)]
        if case.backend == "mpi":
            mpirun = [w.replace("self,vader", "self,tcp") for w in ring.MPIRUN] if case.kind == "cut" else ring.MPIRUN
            return [*mpirun, *(["--mca", "btl_tcp_if_include", "lo"] if case.kind == "cut" else []), "-n", str(RANKS), *words]
        return [self.ring.program, "launch", "--nproc_per_node", str(RANKS), "--log_dir", str(out), "--", *words]

    def run(self, case):
        """Lines of the job's standard error with the time when each came, the time of the fault, the job's end and code."""
        out = self.ring.folder / f"case{case.number}"
        out.mkdir()
        env = ring.environment(OMP_NUM_THREADS="1")
        kind = "none" if case.kind == "cut" else case.kind
        env |= {"TRIREME_FAULT": f"{case.rank}:{kind}:{case.group}:{case.call}",
                "TRIREME_FAULT_STEPS": "1000000" if case.kind == "cut" else "40"}
        command = self.command(case, out)
        if case.kind == "cut":
            command = ["ip", "netns", "exec", self.namespace, *command]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
                               stdin=subprocess.DEVNULL, cwd=self.ring.folder, env=env)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend((time.monotonic(), line) for line in job.stdout))
        reader.start()
        at = self.cut(case, out) if case.kind == "cut" else None
        try:
            code = job.wait(timeout=120)
        finally:
            job.kill()
            if case.kind == "cut":
                subprocess.run(["ip", "-n", self.namespace, "link", "set", "lo", "up"], check=True)
        end = time.monotonic()
        reader.join(timeout=10)
        if at is None:
            ring.require((out / "fault.txt").exists(), f"{case}: the fault happens", "".join(line for _, line in lines))
            at = float((out / "fault.txt").read_text())
        return lines, at, end, code, out

    def cut(self, case, out):
        """Once all ranks have made calls, a moment later."""
        ring.wait_for(lambda: len(list((out / "flight").glob("rank*.flight"))) == RANKS, f"{case}: all ranks record", 60)
        time.sleep(2 + case.call / 40)
        at = time.monotonic()
        subprocess.run(["ip", "-n", self.namespace, "link", "set", "lo", "down"], check=True)
        return at

    def judge(self, case):
        lines, at, end, code, out = self.run(case)
        text = "".join(line for _, line in lines)
        hits = [when for when, line in lines if is_expected(case, line)]
        ring.require(hits, f"{case}: one line tells it", text)
        ring.require(code != 0, f"{case}: the job fails", text)
        told, ended = hits[0] - at, end - at
        limit = TIMEOUT + PATIENCE if ring.SLOW else 60
        ring.require(told < limit, f"{case}: told within {limit} s, not {told:.1f} s", text)
        if case.kind in ("sleep", "stop", "cut"):
            later = self.ring.run([self.ring.program, "report", "hang", str(out)])
            who = "ranks 0-3" if case.kind == "cut" else f"rank {case.rank} "
            # Of a rank that has ended nobody could see any more that it slept.
            doing = {"sleep": "; it sleeps", "stop": "; it is stopped by a signal", "cut": ""}[case.kind]
            ring.require(later.code == 1 and later.out.startswith(f"hang: {who}") and (case.backend == "mpi" or doing in later.out),
                         f"{case}: report hang says it afterwards", text + str(later))
        print(f"ok      {case}: told after {told:.1f} s, over after {ended:.1f} s", flush=True)
        return told


def killed_from_outside(judge):
    """A job that hangs and is killed before its timeout: its recorders tell."""
    r, case = judge.ring, Case(2000, "shm", "train", "sleep", 1, "gather", 25)
    out = r.folder / "outside"
    out.mkdir()
    env = ring.environment(OMP_NUM_THREADS="1", TRIREME_FAULT="1:sleep:gather:25")
    with open(r.folder / "outside.txt", "w") as log:
        job = subprocess.Popen(judge.command(case, out, timeout=600), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=r.folder, env=env)
    ring.wait_for((out / "fault.txt").exists, "the rank falls asleep")
    time.sleep(2.5)
    alive = r.run([r.program, "report", "hang", str(out)])
    job.kill()
    job.wait(timeout=10)
    r.require_nothing_is_left("outside", "a job that was killed")
    dead = r.run([r.program, "report", "hang", str(out), "--calls", "3"])
    said = re.compile(r"hang: rank 1 has (not joined|called) \w+ #")
    ring.check(alive.code == 1 and said.match(alive.out) and "it sleeps" in alive.out, "report hang looks at a job that stands", str(alive))
    ring.check(dead.code == 1 and said.match(dead.out) and "it has ended, in Unshard(" in dead.out and "rank 3, its last calls:" in dead.out,
               "and at one that was killed from outside", str(dead))
    words = "hang: rank 2 has not joined, as was said while it lived\n"
    (out / "flight" / "hang.txt").write_text(words)
    said_before = r.run([r.program, "report", "hang", str(out)])
    ring.check(said_before.code == 1 and said_before.out.startswith(words), "what ranks said in time goes before what is left of them", str(said_before))
    nothing = r.run([r.program, "report", "hang", str(r.folder)])
    ring.check(nothing.code == 2 and "holds no flight recorder's files" in nothing.err, "and refuses a folder without recorders", str(nothing))


def ends_of_ranks(judge, backends):
    """A rank that throws, and one that is killed, while the others wait for it."""
    number = 1000
    for backend in backends:
        for kind in ("fail", "kill"):
            number += 1
            case = Case(number, backend, "train", kind, 2, "gather", 25)
            lines, at, end, code, _ = judge.run(case)
            text = "".join(line for _, line in lines)
            last = "".join([line for _, line in lines][-10:]) if backend != "mpi" else text
            ring.require(code != 0, f"{backend}, {kind}: the job fails", text)
            if kind == "fail":
                ring.require("out of luck, as the test asked" in last and "rank 2" in last, f"{backend}: the last lines name the rank and its words", text)
            else:
                ring.require("signal 9" in last and "rank 2" in last, f"{backend}: signal 9 is named", text)
            if backend != "mpi":
                ring.require("logs/rank2.log" in last, f"{backend}: and its log", text)
                ring.require(kind == "fail" or re.search(r"it had at most \d.* [MG]iB of memory", last), f"{backend}: and its memory", text)
            limit = 15 if ring.SLOW else 60
            ring.require(end - at < limit, f"{backend}, {kind}: all have ended within {limit} s, not {end - at:.1f} s", text)
            print(f"ok      {backend}: rank 2 of 4 {kind}s; all have ended {end - at:.1f} s later", flush=True)


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("how long faults go unnoticed")
    judge = Judge(r)
    backends = ["shm", "gloo"] + ([] if r.why_no_mpi() else ["mpi"])
    if why := r.why_no_mpi():
        print(f"without mpi: {why}")
    try:
        may_cut = judge.may_cut()
        if not may_cut:
            print("without cut links: namespaces want root and iproute2")
        cases = draw_cases(50, backends, may_cut)
        if not ring.SLOW:
            cases = [c for kind in ("skip", "stop") for c in [c for c in cases if c.kind == kind][:1]]
        times = [judge.judge(case) for case in cases]
        print(f"ok      {len(times)} of {len(cases)} faults are told, the slowest after {max(times):.1f} s, with a timeout of {TIMEOUT} s")
        killed_from_outside(judge)
        if ring.SLOW:
            ends_of_ranks(judge, backends)
    finally:
        judge.close()
    r.require_nothing_is_left("nowhere", "faults")
