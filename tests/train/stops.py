"""Starts are weighed, and a request to stop is heard from the first moment on, however many ranks there are.

stops.py TRIREME
A thousand ranks are refused at once, with the numbers. A signal in the first second ends the launcher, and a run of one
rank, with 75. SIGTERM ends a job of 64 ranks on a few cores within 5 s at any moment. A seeded sample; TRIREME_SLOW=1: 60
early signals and 30 jobs. Times are judged there only, for the quick ones share the machine with other tests.
"""

import json
import os
import random
import re
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


def lines(file):
    return file.read_bytes().count(b"\n") if file.exists() else 0


def hears_stops(pid):
    """Whether the process has its own handler for SIGUSR1."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    return caught >> (signal.SIGUSR1 - 1) & 1 == 1


def commands_that_do_not_train(r):
    """They end with 75, too: generate keeps the texts of its file and goes on, evaluate has written nothing."""
    run = r.train("run", model=ring.LLAMA | {"max_position_embeddings": 512}, train__max_steps=2)
    prompts, text, count = r.folder / "prompts.jsonl", r.folder / "long.txt", 240
    words = r.text.read_text()
    prompts.write_text("".join(json.dumps({"prompt": words[4 * i:4 * i + 20]}) + "\n" for i in range(count)))
    text.write_text(words * (5_000_000 // len(words) + 1))
    for devices, number in ((1, signal.SIGUSR1), (2, signal.SIGTERM)):
        out = r.folder / f"texts-{devices}.jsonl"
        command = list(map(str, [r.program, "generate", run, "--prompts", prompts, "--output", out, "--max_new_tokens", 400, "--batch_size", 4, "--devices", devices,
                                 "--launch.threads_per_rank", 1]))
        job = r.start(command)
        ring.wait_for(lambda out=out, job=job: lines(out) > 4 or job.poll() is not None, "texts", timeout=120)
        job.send_signal(number)
        result = r.finish(job)
        said = re.search(r"stopped by request: (\d+) of 240 texts are written; give the command again", result.text)
        ring.check(result.code == 75 and said and 4 < int(said[1]) < count and ("stopping: ranks are asked to end" in result.text) == (devices > 1),
                   f"generate on {devices} ranks stops between texts", str(result))
        result = r.run(command)
        ring.check(result.code == 0 and lines(out) == count and "beside" in result.err, "and goes on when it is given again", str(result))
        job = r.start(list(map(str, [r.program, "evaluate", run, "--text", text, "--devices", devices, "--launch.threads_per_rank", 1])))
        pids = [job.pid] if devices == 1 else r.ranks(devices, timeout=120)
        ring.wait_for(lambda pids=pids: all(map(hears_stops, pids)), "ranks that handle requests to stop", timeout=120)
        job.send_signal(number)
        result = r.finish(job)
        ring.check(result.code == 75 and result.text.count("stopped by request: nothing was written") == 1, f"evaluate on {devices} ranks", str(result))
        r.require_nothing_is_left("run", "commands that were stopped")
    out = r.folder / "texts-of-one.jsonl"
    job = r.start([*command[:command.index("--output") + 1], str(out), *command[command.index("--output") + 2:]])
    ring.wait_for(lambda: lines(out) > 4 or job.poll() is not None, "texts", timeout=120)
    os.kill(r.ranks(2)[1], signal.SIGKILL)
    result = r.finish(job)
    ring.check(result.code == 128 + signal.SIGKILL and "stopped by request" not in result.text, "of a rank that was killed, nobody says a request", str(result))


def suspended(r, backend):
    """Ctrl-Z, for longer than comm.timeout: the job goes on when it is continued."""
    out = r.folder / "start.out"
    job = r.start(r.command(f"suspended-{backend}", devices=2, train__log_interval=1, comm__timeout="2s", comm__backend=backend, **LONG))
    steps = lambda: len(re.findall(r"^step +\d", out.read_text(), re.MULTILINE))
    ring.wait_for(lambda: steps() > 3 or job.poll() is not None, "steps", timeout=120)
    for _ in range(3):  # a rank that waits at that moment has to count its time well
        job.send_signal(signal.SIGTSTP)
        ring.wait_for(lambda: open(f"/proc/{job.pid}/stat").read().rpartition(")")[2].split()[0] == "T", "the launcher to stop")
        time.sleep(3)
        before = steps()
        job.send_signal(signal.SIGCONT)
        ring.wait_for(lambda before=before: steps() > before + 2 or job.poll() is not None, "more steps", timeout=120)
    job.send_signal(signal.SIGTERM)
    result = r.finish(job)
    ring.check(result.code == 75, f"{backend}: a job that was suspended for longer than comm.timeout goes on", str(result))


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("the time and the memory of a start")
    seed = int(os.environ.get("TRIREME_SEED", time.time_ns() % 1_000_000))
    print(f"        seed {seed}, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    too_many(r)
    early_signals(r, random.Random(seed))
    commands_that_do_not_train(r)
    suspended(r, "shm")
    many_ranks(r, random.Random(seed))
