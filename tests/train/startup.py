"""The program needs no Python, and two ranks are soon at work.

startup.py TRIREME
The target is 3 s from exec to the end of the first step on two quiet cores. The limit here is 10 s, and where the
machine is so busy that time on the wall says little, 10 s of processor time.
"""

import os
import subprocess
import sys
import time

import ring

TARGET_SECONDS, LIMIT_SECONDS = 3, 10


def first_step_seconds(r, number):
    """From exec to the line of step 1, as a reader of a pipe sees it."""
    start = time.monotonic()
    process = subprocess.Popen(r.command(f"timed-{number}", devices=2, train__max_steps=3), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, encoding="utf-8", cwd=r.folder,
                               env=ring.environment())
    seconds = None
    for line in process.stdout:
        if seconds is None and line.split()[:2] == ["step", "1/3"]:
            seconds = time.monotonic() - start
    ring.check(process.wait() == 0 and seconds is not None, f"run {number + 1}: the first step ended after {seconds or 0:.2f} s")
    return seconds


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("the time of a start")
    libraries = subprocess.run(["ldd", r.program], check=True, capture_output=True, encoding="utf-8").stdout
    ring.check("libtorch_cpu" in libraries and "not found" not in libraries, "ldd finds every library", libraries)
    ring.check("libpython" not in libraries and "libtorch_python" not in libraries, "ldd names no libpython", libraries)
    empty = r.folder / "empty"
    empty.mkdir()
    result = r.run(r.command("bare", devices=2, train__max_steps=2), env={"PATH": str(empty), "HOME": str(r.folder)})
    ring.check(result.code == 0, "trireme pretrain works on two ranks with nothing on PATH", str(result))
    best = min(first_step_seconds(r, number) for number in range(3))
    figures = f"{best:.2f} s at best (target {TARGET_SECONDS} s, limit here {LIMIT_SECONDS} s)"
    if best < LIMIT_SECONDS or os.getloadavg()[0] < 2 * os.cpu_count():
        ring.check(best < LIMIT_SECONDS, f"exec to the end of the first step, two ranks: {figures}")
    else:
        used = r.run(r.command("used", devices=2, train__max_steps=1)).cpu_seconds
        ring.check(used < LIMIT_SECONDS, f"exec to the end of the first step, two ranks: {figures}, but the load is "
                                         f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores; {used:.2f} s of processor time in all")
