"""Machines come and go: launchers that meet at an endpoint train together, and those that are left go on from the newest
checkpoint. The machines are launchers on this host, kept apart by TRIREME_HOST_ID.

elastic.py TRIREME
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import ring

STEPS = 1500  # seconds, even for a model as small as this one


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Machines:
    def __init__(self, r, out, nnodes, **settings):
        self.ring, self.out, self.endpoint, self.started = r, out, f"127.0.0.1:{free_port()}", {}
        values = {"comm__timeout": "20s", "launch__last_call": "2s", "train__max_steps": STEPS, "train__save_interval": 50,
                  "save__keep_last": 0, "nnodes": nnodes, "rdzv_endpoint": self.endpoint} | settings
        self.values = values

    def start(self, name, **changes):
        command = self.ring.command(self.out, **(self.values | changes))
        with open(self.ring.folder / f"{self.out}-{name}.txt", "w") as log:
            self.started[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.ring.folder,
                                                  env=ring.environment(TRIREME_HOST_ID=name))
        if len(self.started) == 1:  # it serves the meeting place, and is machine 0
            place = self.ring.folder / self.out / f".meeting-{self.endpoint.replace(':', '-')}"
            ring.wait_for(lambda: place.exists() or self.started[name].poll() is not None, "the launchers' meeting place")
        return self.started[name]

    def text(self, name):
        return (self.ring.folder / f"{self.out}-{name}.txt").read_text(errors="replace")

    def await_text(self, name, sentence, timeout=90):
        ring.wait_for(lambda: sentence in self.text(name) or self.started[name].poll() is not None, f"{name} says {sentence}", timeout)
        ring.require(sentence in self.text(name), f"{name} says: {sentence}", self.everything())

    def everything(self):
        return "\n".join(f"--- {name}\n{self.text(name)[-3000:]}" for name in self.started)

    def finish(self, name, timeout=150):
        try:
            return self.started[name].wait(timeout)
        except subprocess.TimeoutExpired:
            ring.require(False, f"{name} ends within {timeout} s", self.everything())

    def ranks_of(self, name):
        found = []
        for pid in self.ring.processes():
            try:
                variables = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
            except OSError:
                continue
            if f"TRIREME_HOST_ID={name}".encode() in variables and any(v.startswith(b"LOCAL_RANK=") for v in variables):
                found.append(pid)
        return found

    def await_checkpoint(self, more_than=0):
        folder = self.ring.folder / self.out
        ring.wait_for(lambda: folder.exists() and len(ring.step_folders(folder)) > more_than, "a checkpoint", 120)
        return len(ring.step_folders(folder))


def same_losses(r, out, straight, what):
    rows = ring.metrics(r.folder / out)
    unequal = [s for s in range(1, STEPS + 1) if s not in rows or rows[s]["loss"] != straight[s]["loss"]]
    ring.check(not unequal, f"{what}: all {STEPS} losses are those of one rank, bit for bit", str(unequal))


def a_lost_machine_costs_a_restart(r, straight):
    machines = Machines(r, "lost", "1:2", launch__max_restarts=3, launch__last_call="15s")
    machines.start("a")
    b = machines.start("b")
    machines.await_text("a", "machine 0 of 2: ranks 0 to 0 of 2")
    machines.await_text("b", "machine 1 of 2: ranks 1 to 1 of 2")
    machines.await_checkpoint()
    start = time.monotonic()
    os.kill(b.pid, signal.SIGKILL)
    machines.await_text("a", "machine 0 of 1: ranks 0 to 0 of 1, start number 2")
    seconds = time.monotonic() - start
    code = machines.finish("a")
    ring.check(code == 0, f"the machine that is left goes on alone, {seconds:.1f} s after the other was killed", machines.everything())
    said = machines.text("a")
    ring.check("restart 1 of 3 in 1 s: machine " in said and " is gone" in said and "resumed  " in said, "and says why, and from where", said)
    same_losses(r, "lost", straight, "a machine less")
    r.require_nothing_is_left("lost", "a lost machine")


def a_failed_rank_starts_all_again_and_a_late_machine_joins(r, straight):
    machines = Machines(r, "again", "2:3", launch__max_restarts=3)
    for name in "ab":
        machines.start(name)
    machines.await_text("b", " of 2: ranks ")
    saved = machines.await_checkpoint()
    machines.start("c")
    machines.await_text("c", "this one joins at its next start")
    [rank] = machines.ranks_of("b")
    os.kill(rank, signal.SIGKILL)
    for name in "abc":
        machines.await_text(name, " of 3: ranks ")
    machines.await_checkpoint(saved)
    codes = [machines.finish(name) for name in "abc"]
    ring.check(codes == [0, 0, 0], "after a rank's end all start again, with the machine that came late", machines.everything())
    ring.check("was killed by signal 9" in machines.text("b"), "its launcher tells of the failure", machines.everything())
    ring.check(all("signal 9" in machines.text(name) for name in "ab"), "and the other of its reason", machines.everything())
    same_losses(r, "again", straight, "a machine more")
    r.require_nothing_is_left("again", "a failed rank")


def a_rank_lost_while_ranks_start_costs_a_restart(r):
    """The other machine's rank waits for it then, and has neither done nor saved anything."""
    for out, restarts, wanted, told, what in (("early", 2, [0, 0], "restart 1 of 2", "a rank that is lost while ranks start costs a restart, too"),
                                              ("early-end", 0, [1, 137], "signal 9", "and without restarts the job fails on every machine")):
        machines = Machines(r, out, "2:2", launch__max_restarts=restarts, train__max_steps=20)
        for name in "ab":
            machines.start(name)
        ring.wait_for(lambda: machines.ranks_of("b"), "a rank of machine b", interval=0.002)
        os.kill(machines.ranks_of("b")[0], signal.SIGKILL)
        codes = [machines.finish(name) for name in "ab"]
        ring.check(codes == wanted and told in machines.text("a"), what, f"{codes} {machines.everything()}")
        r.require_nothing_is_left(out, what)


def a_late_machine_with_other_settings_is_refused(r, straight):
    machines = Machines(r, "unlike", "1:3", launch__max_restarts=3)
    machines.start("a")
    machines.await_text("a", "machine 0 of 1: ranks 0 to 0 of 1")
    machines.await_checkpoint()
    for name, changes, sentence in [("b", {"optimizer__lr": 2e-3}, " has optimizer.lr 0.002, rank 0 has 0.003; start every machine with the same settings"),
                                    ("c", {"devices": 2}, " has devices 2, rank 0 has 1; ")]:
        machines.start(name, **changes)
        code = machines.finish(name, 30)
        ring.check(code == 2 and sentence in machines.text(name), f"a machine that comes late with another {list(changes)[0]} is refused", machines.everything())
    [rank] = machines.ranks_of("a")
    os.kill(rank, signal.SIGKILL)
    code = machines.finish("a")
    ring.check(code == 0 and "start number 2" in machines.text("a"), "and the job goes on without it, after a restart, too", machines.everything())
    same_losses(r, "unlike", straight, "machines that were refused")


def a_refusal_is_one_on_all_machines(r):
    """With exit code 2: of settings and numbers by the launchers before the first start, of data by the ranks."""
    other_text = r.folder / "other.txt"
    other_text.write_text(r.text.read_text()[100:] + " and a few words more")
    lr = {"optimizer__lr": 2e-3}
    for out, changes, sentence in [
            ("lr", [{}, lr], "has optimizer.lr 0.002, rank 0 has 0.003; start every machine with the same settings"),
            ("devices", [{}, {"devices": 2}], "has devices 2, rank 0 has 1; start every machine with the same settings"),
            ("number", [{"launch__node_rank": number} for number in (0, 1, 1)], "two machines say that they are number 1"),
            ("text", [{}, {"data__train_data_path": other_text}], "rank 1 has the data ")]:
        machines = Machines(r, f"other-{out}", f"{len(changes)}:{len(changes)}", launch__max_restarts=3)
        names = "abc"[:len(changes)]
        for name, change in zip(names, changes):
            machines.start(name, **change)
        codes = [machines.finish(name, 60) for name in names]
        heard = [sentence in machines.text(name) for name in names]
        ring.check(codes == [2] * len(names) and (any(heard) if out == "text" else all(heard)), f"another {out} is refused on all machines", f"{codes} {machines.everything()}")


def stopping_one_machine_stops_all(r):
    machines = Machines(r, "stopped", "2:2", launch__max_restarts=3)
    for name in "ab":
        machines.start(name)
    machines.await_checkpoint()
    machines.started["b"].send_signal(signal.SIGTERM)
    codes = [machines.finish(name) for name in "ab"]
    ring.check(codes == [75, 75], "a signal to one launcher stops and saves on all, and nothing starts again", f"{codes} {machines.everything()}")
    r.require_nothing_is_left("stopped", "a stop")


def a_program_that_always_fails_uses_up_its_restarts(r):
    token = r.folder / "token"
    token.write_text("5b1c9e0f7a2d48836cf04b9a1e7d25f83b60c4ad918e2f57")
    token.chmod(0o600)
    command = [r.program, "launch", "--nnodes", "2", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--rdzv_backend", "c10d", "--max_restarts", "2",
               "--token_file", str(token), "--", "/bin/false"]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", env=ring.environment(), cwd=r.folder)
            for _ in range(2)]
    said = [job.communicate(timeout=120)[0] for job in jobs]
    ring.check([job.returncode for job in jobs] == [1, 1] and all("restart 2 of 2" in text and "all 2 restarts are used up" in text for text in said),
               "a program that always fails is started three times, on both machines", "\n".join(said))


def a_stop_ends_the_wait_for_machines(r):
    """Of trireme launch, whose machines have not all come; whether it is the one where they meet, or another."""
    token = r.folder / "token-of-waiting"
    token.write_text("5b1c9e0f7a2d48836cf04b9a1e7d25f83b60c4ad918e2f57")
    token.chmod(0o600)
    for number, which in [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGTERM, 1), (signal.SIGUSR1, 1)]:
        what = f"{signal.Signals(number).name} to {['the launcher where machines meet', 'another'][which]}"
        command = [r.program, "launch", "--nnodes", "3", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--token_file", str(token), "--",
                   "/bin/sleep", "1000", str(r.folder)]
        logs = [r.folder / f"waits-{name}.txt" for name in "ab"]
        jobs = []
        for log in logs:
            with open(log, "w") as out:
                jobs.append(subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=ring.environment(), cwd=r.folder))
            ring.wait_for(lambda: "waiting at" in log.read_text(), "a launcher that waits for machines")
        start = time.monotonic()
        jobs[which].send_signal(number)
        code = jobs[which].wait(60)
        seconds = time.monotonic() - start
        said = [log.read_text() for log in logs]
        sentence = f"stopped by {signal.Signals(number).name} while waiting for the other machines"
        ring.check(code == 75 and said[which].count("stopped") == 1 and sentence in said[which] and seconds < 5,
                   f"{what} ends the wait after {seconds:.1f} s with exit code 75", f"{code} {said}")
        if which == 0:
            ring.check(jobs[1].wait(60) == 75 and "was stopped, and the job with it" in logs[1].read_text(), "and the other is told", logs[1].read_text())
        else:
            time.sleep(1)
            ring.check(jobs[0].poll() is None, "and the first waits on", logs[0].read_text())
            jobs[0].send_signal(signal.SIGTERM)
            ring.require(jobs[0].wait(60) == 75, "until it is stopped too", logs[0].read_text())
        r.require_nothing_is_left("waits", what)


def mistakes_are_refused(r):
    here = f"127.0.0.1:{free_port()}"
    for what, settings, sentence in [
            ("no endpoint", {"nnodes": "2:4"}, "launch.nnodes 2:4 needs launch.rdzv_endpoint HOST:PORT"),
            ("no range", {"nnodes": "4:2", "rdzv_endpoint": here}, "launch.nnodes 4:2 is not a number of machines"),
            ("no port", {"nnodes": "1:2", "rdzv_endpoint": "host:seven"}, "launch.rdzv_endpoint host:seven is not HOST:PORT"),
            ("any free port", {"nnodes": "1:2", "rdzv_endpoint": "localhost:0"}, "localhost:0 means any free port, which the other machines cannot know"),
            ("two numbers", {"nnodes": "1:3", "num_nodes": "2", "rdzv_endpoint": here}, "launch.nnodes 1:3 and num_nodes 2 contradict each other"),
            ("mpi", {"nnodes": "1:2", "rdzv_endpoint": here, "comm__backend": "mpi"},
             "launch.nnodes lets machines come and go, but mpirun fixes the number of MPI's ranks"),
            ("a mesh that fits no number of machines", {"nnodes": "3:3", "rdzv_endpoint": here, "mesh__tp": 2}, "but 3 ranks start")]:
        result = r.run(r.command("none", **settings))
        ring.check(result.code == 2 and sentence in result.err and result.seconds < 60, f"refused at once: {what}", str(result))
        ring.require(not (r.folder / "none").exists(), f"{what}: nothing is written")
    for words, sentence in (  # of trireme launch, which has torchrun's and Accelerate's names
            (["--nnodes", "2"], "--nnodes 2: --node_rank must say which machine this is"),
            (["--nnodes", "2", "--node_rank", "0"], "--nnodes 2: --master_addr must be the address of machine 0"),
            (["--nnodes", "2", "--node_rank", "2"], "--node_rank 2 is not one of the --nnodes 2"),
            (["--num_machines", "2", "--machine_rank", "2"], "--machine_rank 2 is not one of the --num_machines 2"),
            (["--nnodes", "2:4"], "--nnodes 2:4 needs --rdzv_endpoint HOST:PORT"),
            (["--nnodes", "1:2", "--rdzv_endpoint", here, "--log_ranks", "2"], "cannot show the output of rank 2: the ranks are 0 to 1"),
            (["--include", "a"], "--include and --exclude choose machines of --hosts or --hostfile")):
        result = r.run([r.program, "launch", *words, "--", "true"])
        ring.check(result.code == 2 and sentence in result.err and not re.search(r"launch\.|num_nodes", result.err), f"trireme launch names what was typed: {sentence}", str(result))
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        result = r.run(r.command("taken", nnodes="1:2", rdzv_endpoint=taken, launch__join_timeout="2s"))
    ring.check(result.code == 1 and f"cannot listen at {taken}: " in result.err and "no launcher of this job serves there" in result.err and
               "choose another port (rdzv_endpoint or master_port), the same on every machine" in result.err, "a port that another program has is told so", str(result))
    result = r.run(r.command("few", nnodes="2:2", rdzv_endpoint=here, launch__join_timeout="2s"))
    ring.check(result.code == 1 and "1 machine came to" in result.err and "the job needs 2" in result.err, "too few machines are told so", str(result))


with ring.Ring(sys.argv[1]) as r:
    a_stop_ends_the_wait_for_machines(r)
    mistakes_are_refused(r)
    a_program_that_always_fails_uses_up_its_restarts(r)
    straight = ring.metrics(r.train("straight", train__max_steps=STEPS))
    a_lost_machine_costs_a_restart(r, straight)
    if ring.SLOW:
        a_failed_rank_starts_all_again_and_a_late_machine_joins(r, straight)
    a_late_machine_with_other_settings_is_refused(r, straight)
    a_refusal_is_one_on_all_machines(r)
    stopping_one_machine_stops_all(r)
