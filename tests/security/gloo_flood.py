"""Somebody of this machine, without the job's token, calls every port that listens and says each number from 0 to 63, again
and again, as gloo's ranks do: the ranks train to the end all the same.

gloo_flood.py TRIREME
A few starts; TRIREME_SLOW=1: twenty. Wants root, for a network of its own and for a stranger without rights in it.
"""

import contextlib
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))

import namespaces
import ring

STARTS = 20 if ring.SLOW else 4
NOBODY = 65534
STRANGER = """
import contextlib, os, socket, struct
assert os.geteuid() != 0
kept, calls = [], 0
while True:
    ports = set()
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            words = line.split()
            if words[3] == "0A":
                ports.add(int(words[1].split(":")[1], 16))
    for port in ports:
        for number in range(64):
            s = socket.socket()
            s.setblocking(False)
            with contextlib.suppress(OSError):
                s.connect_ex(("127.0.0.1", port))
                s.send(struct.pack("<q", number))
                calls += 1
            kept.append(s)
        del kept[:-512]
        print(calls, flush=True)
"""


@contextlib.contextmanager
def stranger(inside):
    process = subprocess.Popen([*inside, sys.executable, "-c", STRANGER], stdout=subprocess.PIPE, encoding="utf-8")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def calls_of(process):
    """How often the stranger has called; ends him."""
    process.kill()
    lines = process.stdout.read().split()
    return int(lines[-1]) if lines else 0


def ranks_train_under_a_flood(r, inside):
    as_nobody = [*inside, "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    alone = ring.metrics(r.train("alone", devices=2, train__max_steps=3, comm__backend="gloo"))
    told = 0
    for start in range(STARTS):
        with stranger(as_nobody) as flood:
            result = r.run([*inside, *r.command(f"flood{start}", devices=2, train__max_steps=3, comm__backend="gloo", comm__timeout="10s")])
            calls = calls_of(flood)
        ring.require(result.code == 0, f"start {start + 1} of {STARTS} under a flood trains to the end", str(result))
        ring.require(calls >= 64, "the flood was one", f"{calls} calls")
        told += "did not prove that they are of this job" in result.text
        losses = ring.metrics(r.folder / f"flood{start}")
        ring.require(all(losses[s]["loss"] == alone[s]["loss"] for s in alone), "and its losses are those without a flood")
    ring.check(told > 0 or not ring.SLOW, f"{STARTS} of {STARTS} starts train to the end under a flood of calls; {told} tell of some at gloo's own ports")


if missing := namespaces.why_not():
    print(f"skipped: {missing}")
    sys.exit(ring.SKIPPED)
with ring.Ring(sys.argv[1]) as r, namespaces.namespaces(1) as [name]:
    ranks_train_under_a_flood(r, ["ip", "netns", "exec", name])
    r.require_nothing_is_left("flood0", "a flood")
