#!/usr/bin/env python3
"""Starts a command, or copies of it at once on cores of their own, and notes when each line of output appears.

    timed.py TIMES.json 1 COMMAND...        one process, on all cores
    timed.py TIMES.json 2 COMMAND... {copy} two processes that never talk, one core each; {copy} is 0 and 1

The clock starts right before exec, after whatever `run --prefix` waits for, and is the same for both sides. This
process sleeps between lines. It also notes how many cores other programs kept busy meanwhile, because a step waits for
the slowest rank.
"""
import json
import os
import resource
import subprocess
import sys
import threading
import time


def start(command, copy, copies):
    core = sorted(os.sched_getaffinity(0))[copy] if copies > 1 else None
    return subprocess.Popen([word.replace("{copy}", str(copy)) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace", preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}))


def follow(process, begin, copy, lines):
    for line in process.stdout:
        lines.append((time.perf_counter() - begin, copy, line.rstrip("\n")))


def busy_seconds():
    """Of all cores, since boot: user, nice, system and interrupts, without idling and waiting for disks."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:8]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def peak_rss_bytes():
    """Of that process, among all that the command started and waited for, which had the most."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def own_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main():
    output, copies, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    busy, own = busy_seconds(), own_seconds()
    lines, begin = [], time.perf_counter()
    processes = [start(command, copy, copies) for copy in range(copies)]
    followers = [threading.Thread(target=follow, args=(process, begin, copy, lines)) for copy, process in enumerate(processes)]
    for follower in followers:
        follower.start()
    for follower in followers:
        follower.join()
    status = next((s for s in [process.wait() for process in processes] if s), 0)
    seconds = time.perf_counter() - begin
    others = max(0.0, busy_seconds() - busy - (own_seconds() - own)) / seconds
    with open(output, "w") as file:
        json.dump(dict(seconds=seconds, other_cores=others, status=status, peak_rss_bytes=peak_rss_bytes(), lines=lines), file)
    sys.exit(min(abs(status), 255))


if __name__ == "__main__":
    main()
