"""Whatever is killed, and whenever: five seconds later no process of the job lives, no shared segment and no port is left,
and a neighbour that is none of the job's still lives.

orphans.py TRIREME
A few random repetitions from a seed; TRIREME_SLOW=1: 200.
"""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import ring

SECONDS = 5 * max(1, os.getloadavg()[0] / os.cpu_count())  # other work takes its share of the cores
MARK = "TRIREME_TEST_ORPHANS"
# A rank that does not hear SIGTERM, with a child that has left its session and its process group.
STUBBORN = "trap '' TERM; setsid sleep 600 & (setsid sh -c 'sleep 600' &); while :; do sleep 0.1; done"


def marked(value):
    """Processes that carry this repetition's mark, zombies left out."""
    wanted = f"{MARK}={value}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0") and b"State:\tZ" not in (entry / "status").read_bytes():
                    found.append(int(entry.name))
    return found


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def variable(pid, name):
    with contextlib.suppress(OSError):
        for item in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if item.startswith(name.encode() + b"="):
                return item.split(b"=", 1)[1].decode()
    return None


def ports(pids):
    """Ports that these processes listen at."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = os.readlink(fd)
                    if target.startswith("socket:["):
                        inodes.add(target[8:-1])
    return {port for port, inode in listening() if inode in inodes}


def listening():
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":
                    yield int(words[1].rsplit(":", 1)[1], 16), words[9]


def victim_of(target, launcher, pids, source):
    if target == "launcher":
        return launcher
    if target == "guardian":
        return next((p for p in pids if name_of(p) == "trireme-guard"), None)
    ranks = {}  # each rank's first process: the others are its children, whose end need not be its own
    for pid in sorted(pids, reverse=True):
        if name_of(pid) != "trireme-guard" and (rank := variable(pid, "RANK")) is not None:
            ranks[rank] = pid
    return ranks[source.choice(sorted(ranks))] if ranks else None


def repetition(r, number, source, segments):
    stubborn = source.random() < 0.5
    target, kill = source.choice(["launcher", "launcher", "guardian", "rank"]), source.choice([signal.SIGKILL, signal.SIGTERM])
    after = source.uniform(0.05, 3.0)
    if stubborn:
        command = [r.program, "launch", "--nproc_per_node", "2", "--log_dir", str(r.folder / f"out{number}"), "--", "/bin/sh", "-c", STUBBORN]
    else:
        command = r.command(f"out{number}", devices=2, train__max_steps=1000000, train__save_interval=20,
                            comm__backend=source.choice(["shm", "gloo"]))
    what = f"{kill.name} to the {target} of {'stubborn ranks' if stubborn else 'a training run'} after {after:.2f} s"
    value = f"{os.getpid()}.{number}"
    job = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=open(r.folder / f"err{number}", "w"), stdin=subprocess.DEVNULL,
        cwd=r.folder, env=ring.environment(**{MARK: value}))
    time.sleep(after)
    pids = marked(value)
    used = ports(pids)
    victim = victim_of(target, job.pid, pids, source)
    if victim is None:  # too early for one
        what, victim, kill = what + " (not there yet, so to the launcher)", job.pid, signal.SIGKILL
        target = "launcher"
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, kill)
    follow_up(job, target, kill, stubborn)
    start = time.monotonic()
    while True:
        left, still, new = marked(value), used & {port for port, _ in listening()}, set(os.listdir("/dev/shm")) - segments
        took = time.monotonic() - start
        if not (left or still or new) or took > SECONDS:  # one that ends loses its environment before its ports
            break
        job.poll()
        time.sleep(0.02)
    job.poll()
    said = (r.folder / f"err{number}").read_text(errors="replace")
    ring.require(not left, f"{number}: {what}: nothing lives after {SECONDS:.0f} s", f"{[(p, name_of(p), variable(p, 'RANK')) for p in left]}\n{said}")
    ring.require(not still, f"{number}: {what}: no port is left", str(still))
    ring.require(not new, f"{number}: {what}: no segment is left", str(new))
    job.wait(timeout=10)
    return what, took


def follow_up(job, target, kill, stubborn):
    """What alone does not end a job, by design: a guardian is replaced, and ranks that were asked to stop may save."""
    if target == "guardian":
        time.sleep(0.3)
        os.kill(job.pid, signal.SIGKILL)
    elif kill == signal.SIGTERM and stubborn:
        # The second request kills at once; what comes within a second of the first is the same one.
        for _ in range(4):
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGTERM)
            time.sleep(1.3)
            if job.poll() is not None:
                break


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("how long a process takes to end")
    neighbour = subprocess.Popen(["sleep", "3600"], env=ring.environment())
    try:
        segments = set(os.listdir("/dev/shm"))
        source = random.Random(2)
        count = 200 if ring.SLOW else 4
        slowest = 0.0
        for number in range(count):
            what, took = repetition(r, number, source, segments)
            slowest = max(slowest, took)
            print(f"ok      {number}: {what}: all gone {took:.2f} s later", flush=True)
            ring.require(neighbour.poll() is None, "the neighbour lives")
        print(f"ok      {count} repetitions leave nothing, the slowest after {slowest:.2f} s; the neighbour lives")
    finally:
        neighbour.kill()
        neighbour.wait()
