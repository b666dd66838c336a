"""The program needs no Python, and ranks are soon at work, at the start and after a kill.

startup.py TRIREME
The target is 3 s from exec to the end of the first step on two quiet cores. The limit here is 10 s, and where the
machine is so busy that time on the wall says little, 10 s of processor time.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import ring

TARGET_SECONDS, LIMIT_SECONDS = 3, 10


def first_step(r, name, devices=2):
    """Seconds from exec to the line of step 1, as a reader of a pipe sees it, and the line that says where they went."""
    start = time.monotonic()
    process = subprocess.Popen(r.command(name, devices=devices, train__max_steps=3), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, encoding="utf-8", cwd=r.folder,
                               env=ring.environment())
    seconds, phases = None, ""
    for line in process.stdout:
        if seconds is None and line.split()[:2] == ["step", "1/3"]:
            seconds = time.monotonic() - start
        if line.startswith("starting "):
            phases = line.strip()
    ring.check(process.wait() == 0 and seconds is not None, f"{name}: the first step ended after {seconds or 0:.2f} s")
    return seconds, phases


def phases_add_up(seconds, line):
    """The line's phases make its sum, and that is what a clock outside has seen; a reader's pipe may lag a little."""
    parts, total = line.removeprefix("starting ").split("; ")
    total = float(total.split()[0])
    added = sum(float(part.removesuffix(" s").split()[-1]) for part in parts.split(", "))
    ring.check(abs(added - total) <= 0.05 * total and abs(total - seconds) <= 0.05 * seconds + 0.1,
               f"{line}: the phases add up, and a clock outside says {seconds:.2f} s")


def seconds_to_go_on(r):
    """From the death of a rank to the next step of the attempt that follows."""
    job = r.start(r.command("killed", devices=4, train__max_steps=100000, train__save_interval=50, launch__max_restarts=1))
    out = r.folder / "start.out"
    ring.wait_for(lambda: ring.step_folders(r.folder / "killed"), "a checkpoint")
    pids = r.ranks(4)
    start = time.monotonic()
    os.kill(pids[2], signal.SIGKILL)
    ring.wait_for(lambda: "starting " in out.read_text().partition("resumed ")[2], "the first step of the next attempt", interval=0.005)
    seconds = time.monotonic() - start
    job.send_signal(signal.SIGTERM)
    ring.check(r.finish(job).code == 75, "the attempt after it takes a request to stop")
    return seconds


def loaded_once_is_the_same(r):
    """What scripts run without loading the program again ends as what a user starts."""
    one = {"train__max_steps": 2, "train__log_interval": 1}
    for what, command in {"a run": r.command("run", **one), "two ranks": r.command("ranks", devices=2, **one), "the version": [r.program, "--version"],
                          "a refusal": r.command("refused", train__max_steps=-1), "no words": [r.program]}.items():
        ended = []
        for loads in (True, False):
            result = r.run(command, loads=loads)
            logs = [path.read_text() for path in sorted(r.folder.glob("*/metrics.jsonl"))]
            losses = [json.loads(line)["loss"] for log in logs for line in log.splitlines()]
            shutil.rmtree(r.folder / "run", ignore_errors=True), shutil.rmtree(r.folder / "ranks", ignore_errors=True)
            ended.append((result.code, re.sub(r"[0-9.]+", "", result.text) if not losses else "", losses))
        ring.require(r.loaded_once is None or r.loaded_once.is_there, "the library for it is built (target loaded_once)")
        ring.check(r.loaded_once.takes(ring.environment()) and ended[0] == ended[1], f"{what} of a program that was loaded once ends as one that is started",
                   f"{ended[0]}\n{ended[1]}")


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("the time of a start")
    libraries = subprocess.run(["ldd", r.program], check=True, capture_output=True, encoding="utf-8").stdout
    ring.check("libtorch_cpu" in libraries and "not found" not in libraries, "ldd finds every library", libraries)
    ring.check("libpython" not in libraries and "libtorch_python" not in libraries, "ldd names no libpython", libraries)
    gone = subprocess.run(["bash", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$0" --help', r.program], cwd=r.folder, capture_output=True, encoding="utf-8",
                          env=ring.environment(), check=False)
    ring.check(gone.returncode == 2 and gone.stderr.endswith("error: the current folder is gone; change to one that exists\n"), "a current folder that is gone is said",
               str(gone))
    ignored = subprocess.run([r.program, "launch", "--nproc_per_node", "1", "--", "/bin/false"], cwd=r.folder, env=ring.environment(), capture_output=True, timeout=60,
                             preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), check=False)
    ring.check(ignored.returncode == 1, "a launcher whose parent ignores the ends of children sees those of its ranks", str(ignored))
    slow = f"{r.program} launch --nproc_per_node 1 --log_dir slow -- seq 1 30000 | (sleep 5; wc -c)"
    read = r.run(["bash", "-c", f"set -o pipefail; {slow}"])
    ring.check(read.code == 0 and read.out.strip() == str(sum(len(f"{i}\n") for i in range(1, 30001))), "a slow reader gets all that ranks have printed", str(read))
    if not ring.SLOW:
        loaded_once_is_the_same(r)
    empty = r.folder / "empty"
    empty.mkdir()
    result = r.run(r.command("bare", devices=2, train__max_steps=2), env={"PATH": str(empty), "HOME": str(r.folder)}, loads=True)
    ring.check(result.code == 0, "trireme pretrain works on two ranks with nothing on PATH", str(result))
    best, phases = min(first_step(r, f"timed-{number}") for number in range(3))
    phases_add_up(best, phases)
    four, phases = min(first_step(r, f"four-{number}", devices=4) for number in range(3))
    print(f"        4 ranks: {four:.2f} s from exec to the first step; {phases}")
    print(f"        4 ranks: {seconds_to_go_on(r):.2f} s from a kill to the first step of the next attempt, one of them the pause")
    figures = f"{best:.2f} s at best (target {TARGET_SECONDS} s, limit here {LIMIT_SECONDS} s)"
    if best < LIMIT_SECONDS or os.getloadavg()[0] < 2 * os.cpu_count():
        ring.check(best < LIMIT_SECONDS, f"exec to the end of the first step, two ranks: {figures}")
    else:
        used = r.run(r.command("used", devices=2, train__max_steps=1), loads=True).cpu_seconds
        ring.check(used < LIMIT_SECONDS, f"exec to the end of the first step, two ranks: {figures}, but the load is "
                                         f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores; {used:.2f} s of processor time in all")
