"""Threads of a rank wait for each other without spinning where other work has their cores.

busy.py TRIREME
One rank with one thread and with two, beside busy loops. Quick: four of them, at most twice one thread's time, at best of
three. TRIREME_SLOW=1: ten pairs beside six of them, each at most 1.3 times.
"""

import json
import os
import statistics
import subprocess
import sys

import ring

# A step of some 200 ms on one core: in one of 25 ms the operations are so short that a second thread is not worth its wake-up.
MODEL = {}
BATCH = {"train__max_seq_length": 128, "train__global_batch_size": 2, "train__micro_batch_size": 2}


def step_seconds(r, name, threads, steps, **variables):
    result = r.run(r.command(name, MODEL, launch__threads_per_rank=threads, train__max_steps=steps, **BATCH), timeout=600,
                   env=ring.environment(**variables))
    ring.require(result.code == 0, f"{name} trains", str(result))
    rows = [json.loads(line) for line in (r.folder / name / "metrics.jsonl").read_bytes().splitlines()]
    return statistics.median(row["seconds"] for row in rows[1:])


def waits_as(r, **variables):
    """GOMP_SPINCOUNT as libgomp itself says it took it."""
    result = r.run(r.command("said", train__max_steps=1), env=ring.environment(OMP_DISPLAY_ENV="verbose", **variables))
    [line] = [line for line in result.err.splitlines() if "GOMP_SPINCOUNT" in line]
    return line.split("'")[1]


def the_choice_reaches_libgomp(r):
    ring.check(waits_as(r) == "2000", "libgomp's threads look 2,000 times for each other, without a launcher")
    ring.check(waits_as(r, GOMP_SPINCOUNT="77") == "77", "or as often as the user says")
    ring.check(int(waits_as(r, OMP_WAIT_POLICY="active")) > 1_000_000, "or as OMP_WAIT_POLICY says")
    result = r.run([r.program, "launch", "--nproc_per_node", "1", "--", "sh", "-c", "echo $GOMP_SPINCOUNT; env | grep -c ^HOME="])
    ring.check(result.out.split() == ["2000", "1"], "ranks of any program are told, and nothing is missing from their environment", str(result))


def beside_busy_loops(r, loops, most, pairs, must):
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        ratios = []
        for number in range(pairs):
            one = step_seconds(r, f"one-{loops}-{number}", 1, 12)
            two = step_seconds(r, f"two-{loops}-{number}", 2, 12)
            ratios.append(two / one)
            print(f"        {loops} busy loops: {1e3 * one:.1f} ms a step with one thread, {1e3 * two:.1f} with two: {two / one:.2f}", flush=True)
            if not ring.SLOW and two / one <= most:
                break
        good = sum(ratio <= most for ratio in ratios)
        ring.check(good >= must, f"{good} of {len(ratios)} times two threads took at most {most} times what one took", str(ratios))
    finally:
        for other in others:
            other.kill()
            other.wait()


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("how long threads wait")
    print(f"        load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores before")
    the_choice_reaches_libgomp(r)
    if ring.SLOW:
        beside_busy_loops(r, 4, 2.0, 10, 10)
        beside_busy_loops(r, 6, 1.3, 10, 10)
    else:
        beside_busy_loops(r, 4, 2.0, 3, 1)
