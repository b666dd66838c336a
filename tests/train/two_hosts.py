"""Two hosts, played by two network namespaces with a cable between them: each has a launcher, and its ranks train together.
TRIREME_HOST_ID keeps them from sharing memory.

two_hosts.py TRIREME
Skipped where this is not root's or there is no `ip` (iproute2).
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

import namespaces
import ring

ADDRESSES = ["10.77.31.1", "10.77.31.2"]
PORT = 29731
TIMEOUT = 6  # comm.timeout


def flags(**settings):
    return [word for key, value in settings.items() for word in (f"--{key.replace('__', '.')}", str(value))]


class Hosts:
    def __init__(self, r, names, ends):
        self.ring, self.names, self.ends = r, names, ends

    def start(self, out, **settings):
        """The same training on both hosts, but for launch.node_rank."""
        return self.start_command(out, lambda **nodes: self.ring.command(out, **nodes, **settings))

    def start_command(self, out, command_of):
        started = []
        for node, name in enumerate(self.names):
            command = command_of(num_nodes=2, launch__node_rank=node, launch__master_addr=ADDRESSES[0], launch__master_port=PORT)
            log = open(self.ring.folder / f"{out}-{node}.txt", "w")
            started.append(subprocess.Popen(["ip", "netns", "exec", name, *command], stdout=log, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, cwd=self.ring.folder, env=ring.environment(TRIREME_HOST_ID=name)))
        return started

    def text(self, out, node):
        return (self.ring.folder / f"{out}-{node}.txt").read_text(errors="replace")


def train_together(r, hosts):
    one = ring.metrics(r.train("one", train__max_steps=4))
    codes = [p.wait(90) for p in hosts.start("both", devices=2, train__max_steps=4)]
    said = hosts.text("both", 0) + hosts.text("both", 1)
    ring.check(codes == [0, 0] and "4 ranks  gloo  " in said, "two ranks on each of two hosts train together over gloo", said)
    ring.check("what ranks send between machines is encrypted (comm.tls)" in said and "--comm.tls false" in said,
               "sealed without having been asked for, and the cost is said", said)
    losses = [(one[s]["loss"], ring.metrics(r.folder / "both")[s]["loss"]) for s in range(1, 5)]
    ring.check(all(a == b for a, b in losses), "the losses of one rank, bit for bit", str(losses))
    logs = sorted(p.name for p in (r.folder / "both" / "logs").iterdir())
    ring.check(logs == [f"rank{i}.log" for i in range(4)], "each rank has its log", str(logs))
    codes = [p.wait(90) for p in hosts.start("inside", devices=2, mesh__tp=2, train__max_steps=4, comm__tls="false")]
    said = hosts.text("inside", 0)
    ring.check(codes == [0, 0], "with mesh.tp 2 inside the hosts too", said + hosts.text("inside", 1))
    ring.check("is not encrypted (comm.tls false)" in said, "what comm.tls false gives up is said", said)


def four_variables_are_enough(r, hosts):
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as guides print them: a process a rank, and a launcher a machine. Scripts add LOCAL_RANK."""
    one = ring.metrics(r.train("one-bare", train__max_steps=3))
    for out, ranks, words in (("bare", (0, 1, 2, 3), ()), ("local", (0, 1, 2, 3), ()), ("offset", (0, 2), ("--devices", "2"))):
        command = r.command(out, train__max_steps=3)
        at = command.index("--devices")
        command = [*command[:at], *command[at + 2:], *words]
        started = []
        for rank in ranks:
            host = hosts.names[rank // 2]
            variables = {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT),
                         "TRIREME_HOST_ID": host, "NCCL_IB_DISABLE": "1", "GLOO_SOCKET_IFNAME": hosts.ends[rank // 2]}
            if out == "local":
                variables["LOCAL_RANK"] = str(rank % 2)
            log = open(r.folder / f"{out}-{rank}.txt", "w")
            started.append(subprocess.Popen(["ip", "netns", "exec", host, *command], stdout=log, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, cwd=r.folder, env=ring.environment(**variables)))
        codes = [p.wait(90) for p in started]
        said = hosts.text(out, 0)
        ring.check(codes == [0] * len(ranks) and "  4 ranks  gloo  " in said, f"{out}: {len(ranks)} processes with four variables train as 4 ranks",
                   "".join(hosts.text(out, rank) for rank in ranks))
        ring.check(said.count("NCCL_IB_DISABLE has no effect") == 1 and "NCCL_IB_DISABLE" not in hosts.text(out, ranks[1]) or out == "offset",
                   "rank 0 says which variable has no effect", said)
        ring.check([one[s]["loss"] for s in (1, 2, 3)] == [ring.metrics(r.folder / out)[s]["loss"] for s in (1, 2, 3)],
                   "with the losses of one rank, bit for bit", said)
    ring.check("started 4 ranks on 2 hosts" in hosts.text("bare", 0), "ranks that know no host find how many there are", hosts.text("bare", 0))


def collectives_are_measured(r, hosts):
    bench = [r.program, "bench", "collectives", *flags(devices=1, comm__backend="gloo", comm__tls="true", bench__quick="true",
                                                       out_dir=r.folder / "measured")]
    jobs = hosts.start_command("measured", lambda **nodes: bench + flags(**nodes))
    codes = [p.wait(120) for p in jobs]
    said = hosts.text("measured", 0)
    ring.check(codes == [0, 0] and "1.00 MiB, gloo, 2 ranks" in said, "bench collectives measures between them, sealed too", said + hosts.text("measured", 1))


def a_lost_rank_restarts_both(r, hosts):
    steps = 40
    one = ring.metrics(r.train("one-long", train__max_steps=steps))
    jobs = hosts.start("again", devices=1, train__max_steps=steps, train__save_interval=10, launch__max_restarts=2)
    ring.wait_for(lambda: ring.step_folders(r.folder / "again"), "a first checkpoint")
    os.kill(r.ranks(2)[1], signal.SIGKILL)
    codes = [p.wait(120) for p in jobs]
    texts = [hosts.text("again", node) for node in (0, 1)]
    ring.check(codes == [0, 0] and all("restart 1 of 2" in text and "signal 9" in text for text in texts),
               "a lost rank starts both machines' ranks again", f"{codes} {texts}")
    losses = [(one[s]["loss"], ring.metrics(r.folder / "again")[s]["loss"]) for s in range(1, steps + 1)]
    ring.check("resumed" in texts[0] and all(a == b for a, b in losses), "from the newest checkpoint, to the losses of one rank", str(losses))


def has_ended(pid):
    """Whether the process has ended, though its parent may not have asked for its status yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def a_cut_cable_is_reported(r, hosts):
    jobs = hosts.start("cut", devices=1, train__max_steps=100000, train__save_interval=20, comm__timeout=f"{TIMEOUT}s")
    ring.wait_for(lambda: ring.step_folders(r.folder / "cut"), "a first checkpoint")
    namespaces.ip("-n", hosts.names[1], "link", "set", hosts.ends[1], "down")
    start = time.monotonic()
    # A launcher that is late finds its rank ended, and still says why.
    rank = r.ranks(2)[1]
    os.kill(jobs[1].pid, signal.SIGSTOP)
    ring.wait_for(lambda: has_ended(rank), "the end of rank 1", TIMEOUT + 5)
    os.kill(jobs[1].pid, signal.SIGCONT)
    codes = [p.wait(60) for p in jobs]
    seconds = time.monotonic() - start
    texts = [hosts.text("cut", node) for node in (0, 1)]
    ring.check(all(codes) and seconds < TIMEOUT + 5, f"a cut cable ends both hosts' ranks within {seconds:.1f} s", f"{codes} {texts}")
    for node, text in enumerate(texts):
        ring.check(f"rank {1 - node}" in text.split("error:")[-1], f"host {node} names the rank it lost", text)
    for node, text in enumerate(texts):
        cut = [line for line in text.splitlines() if "hang: ranks 0, 1 have all joined" in line and "the connection between them is cut" in line]
        ring.check(len(cut) == 1, f"host {node} says in one line what was cut where", text)


def mistakes_are_refused(r):
    for what, settings, sentence in [
            ("nobody says which machine this is", {}, "launch.node_rank must say which machine this is, 0 to 1"),
            ("nobody says where to meet", {"launch__node_rank": 1}, "launch.master_addr must be the address of machine 0"),
            ("a loopback address", {"launch__node_rank": 0, "launch__master_addr": "127.0.0.1"}, "127.0.0.1 is a loopback address"),
            ("a machine too many", {"launch__node_rank": 2, "launch__master_addr": ADDRESSES[0]}, "launch.node_rank 2 is not one of the")]:
        result = r.run(r.command("none", num_nodes=2, **settings))
        ring.check(result.code == 2 and sentence in result.err and result.seconds < 10, f"refused at once: {what}", str(result))
        ring.require(not (r.folder / "none").exists(), f"{what}: nothing is written")


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("how long a cut cable goes unnoticed")
    mistakes_are_refused(r)
    if why := namespaces.why_not():
        print(f"skipped: {why}")
        sys.exit(ring.SKIPPED)
    with namespaces.namespaces(2) as names, namespaces.cable(names, ADDRESSES) as ends:
        hosts = Hosts(r, names, ends)
        train_together(r, hosts)
        four_variables_are_enough(r, hosts)
        collectives_are_measured(r, hosts)
        a_lost_rank_restarts_both(r, hosts)
        a_cut_cable_is_reported(r, hosts)
    r.require_nothing_is_left("nowhere", "two hosts")
