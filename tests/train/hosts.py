"""--hosts: machines that start by ssh, here by a program of that name that runs what it is told on this machine.

hosts.py TRIREME
TRIREME_HOST_ID keeps the ranks of two such machines from sharing memory.
"""

import contextlib
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time

import ring

PORT = 29751
SSH = """#!/bin/sh
# ssh -T -o X -o Y -- HOST COMMAND
echo "$@" >> "$FAKE_SSH_LOG"
while [ "$1" != -- ]; do shift; done
[ ! -f "$FAKE_SSH_SETUP" ] || . "$FAKE_SSH_SETUP"
case $2 in unreachable*) echo "ssh: connect to host $2 port 22: No route to host" >&2; exit 255;; esac
export TRIREME_HOST_ID=$2
cd / && exec sh -c "$3"
"""


class Machines:
    def __init__(self, r):
        self.ring, self.log = r, r.folder / "ssh.log"
        self.bin = r.folder / "bin"
        self.bin.mkdir()
        (self.bin / "ssh").write_text(SSH)
        (self.bin / "ssh").chmod(stat.S_IRWXU)
        self.setup = r.folder / "setup.sh"  # what ssh does before all else, where there is such a file
        self.first = ring.own_address()

    def environment(self, **more):
        return ring.environment(PATH=f"{self.bin}:{os.environ['PATH']}", FAKE_SSH_LOG=str(self.log), FAKE_SSH_SETUP=str(self.setup)) | more

    def command(self, out, hosts=None, **settings):
        command = self.ring.command(out, launch__master_port=PORT, **settings)
        at = command.index("--devices")
        if "devices" not in settings:
            del command[at:at + 2]
        return [*command, "--hosts", hosts or f"{self.first}:1,second:1"]

    def run(self, command, **more):
        return self.ring.run(command, env=self.environment(**more))

    def start(self, command):
        with open(self.ring.folder / "start.out", "w") as out, open(self.ring.folder / "start.err", "w") as err:
            return subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=self.ring.folder, env=self.environment())


def train_together(r, machines):
    one = ring.metrics(r.train("one", train__max_steps=4))
    result = machines.run(machines.command("both", train__max_steps=4))
    ring.check(result.code == 0 and "2 ranks  gloo  " in result.out, "two machines started by ssh train together", str(result))
    losses = [(one[s]["loss"], ring.metrics(r.folder / "both")[s]["loss"]) for s in range(1, 5)]
    ring.check(all(a == b for a, b in losses), "the losses of one rank, bit for bit", str(losses))
    said = machines.log.read_text()
    ring.check(said.count("BatchMode=yes") == 2 and said.count(" on_host\n") == 2 and "pretrain" not in said,
               "ssh's command line holds nothing of the job", said)
    hosts = r.folder / "hosts"
    hosts.write_text(f"{machines.first} slots=1\nsecond slots=1  # the other\n")
    yaml = r.folder / "hosts.yaml"
    yaml.write_text(f"launch:\n  hostfile: {hosts}\n")
    command = machines.command("file", train__max_steps=2)
    del command[command.index("--hosts"):]
    result = machines.run([*command, "--config", yaml])
    ring.check(result.code == 0 and machines.log.read_text().count(" on_host\n") == 4, "a hostfile named in YAML, and nobody starts twice", str(result))


def the_token_is_seen_nowhere(r, machines):
    """Ranks of both machines have it (the door lets nobody in without), and no command line or environment shows it."""
    job = machines.start(machines.command("token", train__max_steps=100000, train__save_interval=20))
    ring.wait_for(lambda: ring.step_folders(r.folder / "token"), "a first checkpoint")
    shown = ""
    for pid in r.processes():
        with contextlib.suppress(OSError):
            for name in ("cmdline", "environ"):
                shown += pathlib.Path(f"/proc/{pid}/{name}").read_bytes().replace(b"\0", b"\n").decode(errors="replace")
    lock = r.folder / "token" / ".lock"
    shown += lock.read_text()
    files = [p.name for p in lock.parent.glob(".*") if p != lock]
    job.send_signal(signal.SIGTERM)
    result = r.finish(job)
    secrets = re.findall(r"\b[0-9a-f]{64}\b", shown)
    ring.check(result.code == 75 and "TRIREME_LAUNCH_TOKEN_FILE=/proc/self/fd/" in shown and not secrets and not files,
               "the token comes through ssh: no command line, variable or file shows it", f"{secrets} {files} {result}")


def any_program(r, machines):
    script = r.folder / "rank.sh"
    script.write_text('#!/bin/sh\necho "rank $RANK of $WORLD_SIZE at $MASTER_ADDR, $1"\n')
    script.chmod(stat.S_IRWXU)
    result = machines.run([r.program, "launch", "--hosts", f"{machines.first}:2,second:2", "--master_port", str(PORT), "--", script, "it's"])
    lines = sorted(line.split("] ")[-1] for line in result.text.splitlines() if " of 4 at " in line)
    ring.check(result.code == 0 and lines == [f"rank {rank} of 4 at {machines.first}, it's" for rank in range(4)],
               "trireme launch --hosts starts any program", str(result))


def it_ends_as_asked(r, machines):
    job = machines.start(machines.command("stop", train__max_steps=100000, train__save_interval=20))
    ring.wait_for(lambda: ring.step_folders(r.folder / "stop"), "a first checkpoint")
    job.send_signal(signal.SIGTERM)
    result = r.finish(job)
    ring.check(result.code == 75 and "all machines finish the step and save" in result.err, "SIGTERM: both machines stop and save, exit code 75",
               str(result))
    how = "continue with: the same command and --resume auto, on each machine where it was started"
    ring.check(how in result.text, "and say how machines go on, not one of them alone", str(result))
    r.require_nothing_is_left("stop", "SIGTERM")
    result = machines.run(machines.command("stop", train__max_steps=int(ring.step_folders(r.folder / "stop")[-1][5:]) + 2, resume="true"))
    ring.check(result.code == 0, "and the run goes on from there", str(result))


def one_request_may_come_twice(r, machines):
    for what, signals in [("SIGTERM twice within a second", [signal.SIGTERM, signal.SIGTERM]),
                          ("SIGUSR1, which only warns, and SIGTERM", [signal.SIGUSR1, signal.SIGTERM])]:
        out = "-".join(s.name for s in signals)
        job = machines.start(machines.command(out, train__max_steps=100000, train__save_interval=20))
        ring.wait_for(lambda: ring.step_folders(r.folder / out), "a first checkpoint")
        for number in signals:
            job.send_signal(number)
            time.sleep(0.2)
        result = r.finish(job)
        ring.check(result.code == 75, f"{what}: one request, exit code 75", str(result))
        r.require_nothing_is_left(out, what)


def parent_on_host(pid):
    while b"\0on_host" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(pathlib.Path(f"/proc/{pid}/status").read_text().split("PPid:")[1].split()[0])
    return pid


def a_session_that_ends_stops_the_job(r, machines):
    job = machines.start(machines.command("session", train__max_steps=100000, train__save_interval=20))
    ring.wait_for(lambda: ring.step_folders(r.folder / "session"), "a first checkpoint")
    os.kill(parent_on_host(r.ranks(2)[1]), signal.SIGTERM)
    result = r.finish(job)
    ring.check(result.code == 75, "SIGTERM to what ssh runs on one machine: both stop and save, exit code 75", str(result))
    r.require_nothing_is_left("session", "SIGTERM to on_host")


def a_stop_before_machines_have_their_order(r, machines):
    """A pipe holds 64 KiB, and the rest of this order waits for a machine that does not read."""
    machines.setup.write_text("exec sleep 100\n")
    told = machines.log.read_text().count(" on_host\n")
    job = machines.start([r.program, "launch", "--hosts", f"{machines.first}:1,second:1", "--", "true", "x" * 100000])
    ring.wait_for(lambda: machines.log.read_text().count(" on_host\n") == told + 2, "ssh to both machines")
    job.send_signal(signal.SIGTERM)
    result = r.finish(job)
    machines.setup.unlink()
    ring.check(result.code == 75 and result.seconds < 5, "SIGTERM before machines have read their order: exit code 75", str(result))


def launchers_of_orders(r):
    found = 0
    for pid in r.processes():
        with contextlib.suppress(OSError):
            found += b"\0TRIREME_LAUNCH_TOKEN_FILE=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    return found


def a_stop_before_launchers_take_signals(r, machines):
    """They read the settings first, here forever."""
    settings = r.folder / "endless.yaml"
    settings.write_text("train: {log_interval: 1}\n")
    machines.setup.write_text(f"mkfifo {settings}.$$ && mv {settings}.$$ {settings}\n")
    job = machines.start([*machines.command("early"), "--config", settings])
    ring.wait_for(lambda: launchers_of_orders(r) == 2 or job.poll() is not None, "a launcher on each machine")
    job.send_signal(signal.SIGTERM)
    result = r.finish(job)
    machines.setup.unlink()
    ring.check(result.code == 75, "SIGTERM while launchers still read the settings: exit code 75", str(result))
    r.require_nothing_is_left("early", "an early SIGTERM")


def nothing_outlives_it(r, machines):
    job = machines.start(machines.command("kill", train__max_steps=100000, train__save_interval=20))
    ring.wait_for(lambda: ring.step_folders(r.folder / "kill"), "a first checkpoint")
    job.kill()
    job.wait()
    start = time.monotonic()
    r.require_nothing_is_left("kill", "SIGKILL")
    ring.check(True, f"kill -9: nothing is left {time.monotonic() - start:.1f} s later")


def a_machine_that_fails_is_named(r, machines):
    job = machines.start(machines.command("lost", train__max_steps=100000, train__save_interval=20, comm__timeout="5s"))
    ring.wait_for(lambda: ring.step_folders(r.folder / "lost"), "a first checkpoint")
    os.kill(r.ranks(2)[1], signal.SIGKILL)
    result = r.finish(job)
    ring.check(result.code not in (0, 75) and "[second] job failed" in result.err and "machine to fail" in result.err and
               "continue with: the same command and --resume auto, on each" in result.err,
               "a killed rank: its machine's report, and which machine it was", str(result))
    r.require_nothing_is_left("lost", "a lost rank")
    result = machines.run(machines.command("far", hosts=f"{machines.first}:1,unreachable:1", comm__timeout="5s"))
    ring.check(result.code == 1 and "[unreachable] ssh: connect" in result.err and result.err.count("ssh unreachable true") == 1 and
               result.err.find("ssh: connect") < result.err.find("job failed: ssh to unreachable"), "a machine that ssh does not reach", str(result))
    # The others notice a machine's end by themselves in 15 s; of one that was never there, they cannot.
    ring.check(result.seconds < 12, f"ends the job after {result.seconds:.1f} s", str(result))
    r.require_nothing_is_left("far", "an unreachable machine")


def mistakes_are_refused(r, machines):
    for what, hosts, more, sentence in [
            ("different numbers of ranks", "a:4,b:2", [], "a has 4 ranks and b has 2"),
            ("a machine twice", "a:1,a:1", [], "names a twice"),
            ("no name", ":4", [], "':4' is not a machine"),
            ("a loopback address", "localhost:1,b:1", [], "localhost is a loopback address"),
            ("another number of machines", "a:1,b:1", ["--num_nodes", "3"], "num_nodes 3 contradicts the 2 machines"),
            ("two lists", "a:1,b:1", ["--hostfile", "x"], "say one of them")]:
        result = machines.run([*machines.command("none", hosts=hosts), *more])
        ring.check(result.code == 2 and sentence in result.err and result.seconds < 5, f"refused at once: {what}", str(result))
    result = machines.run(machines.command("none", hosts="a:1,b:1"), PATH="/nowhere")
    ring.check(result.code == 2 and "no ssh on PATH" in result.err, "refused: no ssh", str(result))
    result = r.run([r.program, "on_host"])
    ring.check(result.code == 1 and "trireme --hosts" in result.err, "on_host by hand says who it is for", str(result))
    ring.require(not (r.folder / "none").exists(), "nothing is written")


with ring.Ring(sys.argv[1]) as r:
    machines = Machines(r)
    mistakes_are_refused(r, machines)
    if not machines.first:
        print("skipped: this machine has no address but the loopback's")
        sys.exit(ring.SKIPPED)
    train_together(r, machines)
    the_token_is_seen_nowhere(r, machines)
    any_program(r, machines)
    it_ends_as_asked(r, machines)
    one_request_may_come_twice(r, machines)
    a_session_that_ends_stops_the_job(r, machines)
    a_stop_before_machines_have_their_order(r, machines)
    a_stop_before_launchers_take_signals(r, machines)
    nothing_outlives_it(r, machines)
    a_machine_that_fails_is_named(r, machines)
