"""Starts are weighed, and a request to stop is heard from the first moment on, however many ranks there are.

stops.py TRIREME
A thousand ranks are refused at once, with the numbers. A signal in the first second ends the launcher, and a run of one
rank, with 75. SIGTERM ends a job of 64 ranks on a few cores within 5 s at any moment. A seeded sample; TRIREME_SLOW=1: 60
early signals and 30 jobs. Times are judged there only, for the quick ones share the machine with other tests.
"""

import os
import random
import signal
import subprocess
import sys
import time

import ring

TICKS = os.sysconf("SC_CLK_TCK")
RANKS, LIMIT_SECONDS = 64, 5
LONG = {"train__max_steps": 100000, "train__save_interval": 100000}


def refused(r, what, command, *words):
    result = r.run(command)
    missing = [word for word in words if word not in result.err]
    ring.check(result.code == 2 and not missing, f"{what} are refused after {result.seconds:.2f} s: {result.err.strip()[:300]}", f"{missing}\n{result}")
    ring.require(result.seconds < 1 or result.cpu_seconds < 1, f"{what}: within a second", str(result))


def too_many(r):
    numbers = ("1,000 ranks", "core", "GiB", "--launch.oversubscribe true")
    refused(r, "1,000 ranks", r.command("many", devices=1000), *numbers)
    ring.require(not (r.folder / "many").exists(), "nothing was written")
    refused(r, "1,000 ranks of trireme launch", [r.program, "launch", "--nproc_per_node", "1000", "pretrain", "llama-5m"], *numbers)
    refused(r, "1,000 ranks of any program", [r.program, "launch", "--nproc_per_node", "1000", "--", "true"], "1,000 ranks", "core")
    refused(r, "5,000 ranks in a job file", r.command("file", devices=5000, launch__print="sbatch", train__global_batch_size=5000), "1 to 1024")
    large = {"hidden_size": 16384, "num_hidden_layers": 48, "intermediate_size": 65536, "num_attention_heads": 128}
    for what, command in [("plans of one rank", r.command("large", model=large)),
                          ("plans of two ranks", r.command("large", model=large, devices=2)),
                          ("plans that trireme launch starts", [r.program, "launch", "--nproc_per_node", "2", *r.command("large", model=large, devices=2)[1:]])]:
        refused(r, f"{what} larger than the memory", command, "planned", "are free" if "limit of the" not in r.run(command).err else "are left")
    result = r.run([r.program, "launch", "--oversubscribe", "--nproc_per_node", "40", "--", "true"])
    ring.check(result.code == 0, "40 ranks of any program start where that is allowed", str(result))


def cpu_seconds(pid):
    """Processor time so far: what a process has done of its start, whatever else the machine does."""
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def early_signals(r, source):
    """Behind the first 20 ms, in which the dynamic linker loads the libraries."""
    kinds = {"the launcher": r.command("early", devices=2, **LONG), "one rank": r.command("early", **LONG),
             "trireme launch": [r.program, "launch", "--nproc_per_node", "2", *r.command("early", devices=2, **LONG)[1:]]}
    count = 60 if ring.SLOW else 6
    for number in range(count):
        what = list(kinds)[number % 3]
        which = source.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
        after = source.uniform(0.04, 0.3)
        job = r.start(kinds[what])
        while cpu_seconds(job.pid) < after and job.poll() is None:
            time.sleep(0.001)
        job.send_signal(which)
        result = r.finish(job)
        ring.require(result.code == 75, f"{signal.Signals(which).name} to {what} after {after:.3f} s of work ends it with 75", str(result))
        r.require_nothing_is_left("early", f"an early stop of {what}")
        subprocess.run(["rm", "-rf", str(r.folder / "early")], check=True)  # some have saved
    ring.check(True, f"{count} signals in the first 0.3 s of work end launchers and runs of one rank with 75")


def many_ranks(r, source):
    """SIGTERM while 64 ranks are started, load, meet, train and save."""
    command = r.command("crowd", devices=RANKS, launch__oversubscribe="true", train__global_batch_size=RANKS,
                        comm__timeout="600s", **LONG)
    begin = time.monotonic()
    job = r.start(command)
    out = r.folder / "start.out"
    ring.wait_for(lambda: " 2/100000 " in out.read_text(errors="replace") or job.poll() is not None, "the second step of 64 ranks", timeout=500, detail=(r.folder / "start.err").read_text)
    latest = time.monotonic() - begin
    times = []
    for number in range(30 if ring.SLOW else 2):
        if number > 0:
            job = r.start(command)
            after = source.uniform(0, latest + 2)
            time.sleep(after)
        else:
            after = latest
        asked = time.monotonic()
        job.send_signal(signal.SIGTERM)
        result = r.finish(job, timeout=300)
        times.append(time.monotonic() - asked)
        print(f"        SIGTERM after {after:.1f} s: over {times[-1]:.1f} s later, exit code {result.code}", flush=True)
        # Behind exec come some 20 ms in which nobody can take it.
        ring.require(result.code == 75 or (result.code == -signal.SIGTERM and after < 0.5), f"SIGTERM after {after:.2f} s: exit code 75", str(result))
        ring.require(times[-1] < (LIMIT_SECONDS if ring.SLOW else 60), f"SIGTERM after {after:.2f} s: over within {LIMIT_SECONDS} s, not {times[-1]:.1f}", str(result))
        r.require_nothing_is_left("crowd", f"a stop after {after:.2f} s")
        subprocess.run(["rm", "-rf", str(r.folder / "crowd")], check=True)
    ring.check(True, f"{len(times)} jobs of 64 ranks, whose second step ends after {latest:.1f} s, are over {max(times):.1f} s after SIGTERM at the latest")


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("the time and the memory of a start")
    seed = int(os.environ.get("TRIREME_SEED", time.time_ns() % 1_000_000))
    print(f"        seed {seed}, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    too_many(r)
    early_signals(r, random.Random(seed))
    many_ranks(r, random.Random(seed))
