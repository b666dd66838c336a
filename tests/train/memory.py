"""What a run holds is what `explain memory` said: private and shared bytes of both ranks, and no page faults later on.

memory.py TRIREME
What the program itself needs (libraries, threads, LibTorch's own buffers) is the same in all runs, so differences
between two runs are compared: private bytes and those once per host, each on its own.
"""

import contextlib
import json
import re
import sys
import time

import ring

MODEL = ["llama-110m", "--devices", "2", "--precision", "32-true", "--train.max_seq_length", "192",
         "--train.micro_batch_size", "1", "--train.global_batch_size", "2"]
RUNS = {"full_shard": ["--strategy", "full_shard"], "no_shard": ["--strategy", "no_shard"],
        "full_shard with recompute": ["--strategy", "full_shard", "--recompute", "full"], "adapters": ["--strategy", "full_shard", "--lora.r", "8"]}
PAIRS = [("no_shard", "full_shard"), ("full_shard", "full_shard with recompute"), ("full_shard", "adapters")]
RANKS, TOLERANCE, FAULTS = 2, 0.03, 100
MIB = 1 << 20


def predicted(r, settings):
    """(bytes of a rank's own, bytes once per host, planned bytes) as `explain memory` prints them."""
    result = r.run([r.program, "explain", "memory", *MODEL, *settings])
    found = re.search(r"(\d+) bytes: (\d+) private, (\d+) once per host", result.out)
    ring.check(found, "explain memory prints its bytes", str(result))
    total, private, shared = map(int, found.groups())
    return private, shared, total


def resident(pids):
    """Bytes of these processes: anonymous, and in shared memory, where a page counts once (proportional shares).

    Files, that is libraries, are left out: their shares depend on who else on the machine runs them.
    """
    sums = {"Pss_Anon": 0, "Pss_Shmem": 0}
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
            for line in lines:
                key = line.split(":")[0]
                if key in sums:
                    sums[key] += int(line.split()[1]) * 1024
    return sums


def measured(r, name, settings):
    """Highest resident bytes during a run, and the run's own JSON."""
    report = r.folder / "bench.json"
    process = r.start([r.program, "bench", "train", *MODEL, *settings, "--out_dir", str(r.folder / "bench"), "--bench.json",
                       str(report), "--comm.timeout", "120s", "--bench.warmup", "3", "--bench.steps", "1", "--launch.threads_per_rank", "1"])
    pids, peak = r.ranks(RANKS), {}
    while process.poll() is None:
        # One rank is read after the other. What the second maps in between counts in full for the first and by half for
        # itself: so only readings count during which nothing was mapped.
        now, again = resident(pids), resident(pids)
        if all(abs(now[key] - again[key]) < 65536 for key in now) and sum(now.values()) > sum(peak.values()):
            peak = now
        time.sleep(0.1)
    result = r.finish(process)
    ring.check(result.code == 0, f"{name}: runs", str(result))
    return peak, json.loads(report.read_text())


def plan_is_of_the_ranks(r):
    """Attention has scratch for each thread of a rank, whatever the process that plans would use itself."""
    long = [r.program, "explain", "memory", "llama-5m", "--devices", "2", "--model.max_position_embeddings", "16384", "--train.max_seq_length", "16384",
            "--train.global_batch_size", "2", "--train.micro_batch_size", "1", "--recompute", "full", "--launch.threads_per_rank"]
    bytes_of = {(given, other): re.search(r"(\d+) bytes:", r.run([*long, given], env=ring.environment(OMP_NUM_THREADS=other)).out)[1]
                for given in ("1", "4") for other in ("1", "8")}
    ring.check(bytes_of["1", "1"] == bytes_of["1", "8"] and bytes_of["4", "1"] == bytes_of["4", "8"], "a plan does not depend on who plans", str(bytes_of))
    ring.check(int(bytes_of["4", "1"]) > int(bytes_of["1", "1"]), "it depends on the threads of a rank", str(bytes_of))


with ring.Ring(sys.argv[1]) as r:
    plan_is_of_the_ranks(r)
    r.skip_if_sanitized("memory")
    plans, peaks = {}, {}
    for name, settings in RUNS.items():
        plans[name] = predicted(r, settings)
        peaks[name], result = measured(r, name, settings)
        print(f"        {name}: planned {plans[name]}, measured {peaks[name]}, step {result['median_seconds']:.2f} s")
        ring.check(result["planned_bytes"] == plans[name][2], f"{name}: the run allocates the {plans[name][2]} bytes that were explained")
        ring.check(result["minor_faults_per_step"] < FAULTS,
                   f"{name}: {result['minor_faults_per_step']:.0f} minor page faults a step after the third, fewer than {FAULTS}")
    for one, other in PAIRS:
        own = RANKS * (plans[one][0] - plans[other][0])
        shared = plans[one][1] - plans[other][1]
        kinds = [("private bytes", ["Pss_Anon"], own), ("shared bytes", ["Pss_Shmem"], shared), ("bytes in all", ["Pss_Anon", "Pss_Shmem"], own + shared)]
        # Gradient slots are a rank's own in the plan but mapped by all. They are the same in these runs, except that frozen weights have none.
        for kind, keys, want in kinds[2:] if other == "adapters" else kinds:
            have = sum(peaks[one][key] - peaks[other][key] for key in keys)
            ring.check(abs(have - want) <= max(TOLERANCE * abs(want), MIB),
                       f"{one} less {other}, {kind} of both ranks: {have / MIB:.1f} MiB measured, {want / MIB:.1f} MiB predicted"
                       + (f" ({100 * (have - want) / want:+.2f} %)" if want else ""))
