"""What slows a run while it goes on is named once, in a sentence: a rank, another program on its cores, a disk.

disturbances.py TRIREME SLOW_DISK_LIBRARY [--minutes N]
Beside other tests only that it is named, because they disturb runs, too. TRIREME_SLOW=1, on a machine that does nothing
else: which rank, within how many steps, and that an undisturbed run says nothing. --minutes 60: only that in an hour on
a busy machine no rank, disk or clock is named.
"""

import contextlib
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import ring

MODEL = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
         "vocab_size": 256, "max_position_embeddings": 256}
BATCH = {"devices": 2, "train__max_seq_length": 128, "train__micro_batch_size": 2, "train__global_batch_size": 4, "eval__interval": 100000,
         "train__log_interval": 10}
PATIENCE = 200  # seconds, beside other tests


def lines(text):
    return [line for line in text.splitlines() if line.startswith("slow ")]


def stopped(r, process):
    """What a run has said until it was asked to stop."""
    process.send_signal(signal.SIGTERM)
    result = r.finish(process)
    ring.require(result.code == 75, "it stops as asked", str(result))
    return result


@contextlib.contextmanager
def stopped_for(pid, share, period=0.05):
    """The process stands still for this share of the time."""
    end = threading.Event()

    def stop_and_go():
        with contextlib.suppress(ProcessLookupError):
            while not end.wait((1 - share) * period):
                os.kill(pid, signal.SIGSTOP)
                end.wait(share * period)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def a_neighbour(r):
    def said():
        return lines((r.folder / "start.out").read_text())

    with ring.busy_core():
        process = r.start(r.command("crowded", MODEL, train__max_steps=100000, **BATCH))
        what = "another program takes its cores"
        ring.wait_for(lambda: any(what in line for line in said()), what, timeout=PATIENCE, detail=said)
        time.sleep(5)
        result = stopped(r, process)
    neighbours = [line for line in lines(result.out) if "another program takes its cores" in line]
    ring.check(len(neighbours) == 1, "a program on a rank's core is named once", str(result))
    slow = [line for line in lines(result.out) if "longer than the others" in line]
    if ring.SLOW:
        ring.check(neighbours[0].startswith("slow     rank 1:"), "it is the last one", str(result))
        ring.check(not slow, "what it takes is not held against the rank, too", str(slow))


def a_throttled_rank(r):
    """It runs 70 % of the time, from before the first step. A step takes a quarter of a second at least: a verdict looks back 5 s."""
    process = r.start(r.command("throttled", MODEL, train__max_steps=40, **(BATCH | {"train__global_batch_size": 128, "train__log_interval": 1})))
    with stopped_for(r.ranks(2)[1], 0.3):
        result = r.finish(process)
    before = result.out.split("slow     rank 1 computed")[0]
    steps = sum(line.startswith("step ") for line in before.splitlines())
    ring.check(result.code == 0 and before != result.out and steps <= 25, f"a rank throttled by 30 % is named after {steps} steps", str(result))


def a_disk(r, library):
    switch = r.folder / "slow"
    os.environ.update(LD_PRELOAD=library, SLOW_DISK=str(switch))
    process = r.start(r.command("saves", MODEL, train__max_steps=100000, train__save_interval=20, save__keep_last=1, **BATCH))
    del os.environ["LD_PRELOAD"], os.environ["SLOW_DISK"]

    def said():
        return (r.folder / "start.out").read_text()

    ring.wait_for(lambda: "\nsaved " in said(), "a first save", timeout=PATIENCE)
    time.sleep(25)  # some looks at the disk as it is
    ring.wait_for(lambda: said().count("\nsaved ") >= 8, "8 saves", timeout=PATIENCE)
    ring.require("a save takes it" not in said(), "no disk is named before it slows", said())
    switch.touch()
    ring.wait_for(lambda: "a save takes it" in said(), "the disk is named", timeout=PATIENCE, detail=said)
    result = stopped(r, process)
    named = [line for line in lines(result.out) if "a save takes it" in line]
    ring.check(len(named) == 1 and "the disk of out_dir has become slower" in named[0], "a disk on which saves take longer than before is named once", str(result))


def nothing(r):
    result = r.run(r.command("alone", MODEL, train__max_steps=1000, train__save_interval=100, **BATCH), timeout=300)
    ring.check(result.code == 0 and not lines(result.out), "1,000 undisturbed steps: nothing is named", str(lines(result.out)))


A_JOB = """
import os, sys, time
memory, end = bytearray(48 << 20), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for at in range(0, len(memory), 64):
        memory[at] = at & 255
with open(sys.argv[2], "wb") as out:
    out.write(memory)
os.unlink(sys.argv[2])
"""
A_BURST = "import sys, time; end = time.monotonic() + 0.03\nwhile time.monotonic() < end: pass"


@contextlib.contextmanager
def a_busy_machine(folder):
    """All cores work all the time, and no rank is singled out: jobs like a compiler's come and go on all cores, scheduled as
    idle, so that they take what ranks leave (with `nice 19` a kernel lets them finish their slice first, and ranks wait);
    and bursts at the priority of the ranks, on core after core, take a tenth of each. A program that takes more of a core
    than that disturbs its rank, and is to be named."""
    end, dice = threading.Event(), random.Random(7)

    def jobs(number):
        while not end.is_set():
            subprocess.run(["chrt", "--idle", "0", sys.executable, "-c", A_JOB, str(dice.uniform(0.2, 3)), str(folder / f"job-{number}")], check=True)

    def bursts():
        cores = sorted(os.sched_getaffinity(0))
        for core in itertools.cycle(cores):
            if end.wait(0.5 / len(cores)):
                return
            subprocess.run(["taskset", "-c", str(core), sys.executable, "-S", "-c", A_BURST], check=True)

    threads = [threading.Thread(target=jobs, args=[number]) for number in range(os.cpu_count() + 1)] + [threading.Thread(target=bursts)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


def stolen_seconds():
    """What the host of a virtual machine took of its cores since it started."""
    return int(pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def a_long_run(r, minutes):
    with a_busy_machine(r.folder):
        stolen, start = stolen_seconds(), time.monotonic()
        process = r.start(r.command("long", MODEL, train__max_steps=100_000_000, **BATCH))
        said, loads = 0, []
        while time.monotonic() < start + 60 * minutes:
            time.sleep(5)
            loads.append(os.getloadavg()[0])
            for line in lines((r.folder / "start.out").read_text())[said:]:
                said += 1
                print(f"        after {time.monotonic() - start:.0f} s: {line}", flush=True)
        result = stopped(r, process)
    steps = max(ring.metrics(r.folder / "long"))
    seconds = time.monotonic() - start
    print(f"        {steps} steps in {seconds / 60:.1f} minutes, load {sum(loads) / len(loads):.1f} on {os.cpu_count()} cores; "
          f"the host took {100 * (stolen_seconds() - stolen) / seconds / os.cpu_count():.2f} % of them")
    # A program that someone starts beside it, such as a copy of files, is named, and rightly.
    others = [line for line in lines(result.out) if "another program takes its cores" not in line]
    ring.check(not others, f"{minutes:g} minutes on a busy machine: nothing is held to be slow", str(others))


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("times")
    if "--minutes" in sys.argv:
        a_long_run(r, float(sys.argv[sys.argv.index("--minutes") + 1]))
        sys.exit()
    a_neighbour(r)
    a_disk(r, os.path.abspath(sys.argv[2]))
    if ring.SLOW:
        a_throttled_rank(r)
        nothing(r)
