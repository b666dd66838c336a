"""Whoever has not the job's token is refused and named, and the job goes on as if nobody had come.

strangers.py TRIREME
"""

import ctypes
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import namespaces
import ring

STEPS = 60
HEADER = b"!emerirt"  # ends the description of each collective that gloo's ranks send (comm/gloo/exchange.cpp)
RAW_CLIENT = """
import datetime, sys
from torch.distributed import TCPStore
try:
    store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False, wait_for_workers=False, timeout=datetime.timedelta(seconds=3))
    for what in (lambda: store.set("world", b"x"), lambda: store.get("world"), lambda: store.delete_key("world")):
        what()
except Exception as error:
    print("refused", type(error).__name__)
else:
    print("let in")
"""


def variables(pid):
    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {k.decode(): v.decode() for k, _, v in (word.partition(b"=") for word in words)}


def knock(port, data):
    """What a stranger hears who sends `data`: until the other side hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        heard = b""
        try:
            s.sendall(data)
            while (part := s.recv(4096)):
                heard += part
        except ConnectionError:
            pass
        return heard


def core_limit(pid):
    """The most bytes of a core dump of the process."""
    [line] = [line for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max core file size")]
    return line.split()[4]


def nothing_disturbs_a_job(r):
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))  # where a shell allows dumps
    undisturbed = ring.metrics(r.train("alone", devices=2, train__max_steps=STEPS, train__lr_decay="constant"))
    job = r.start(r.command("busy", devices=2, train__max_steps=1_000_000, train__lr_decay="constant", train__log_interval=1))
    pids = r.ranks(2)
    port = int(variables(pids[0])["MASTER_PORT"])
    for pid in pids:
        said = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() + pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        token = os.readlink(f"/proc/{pid}/fd/{variables(pid)['TRIREME_TOKEN_FD']}") if "TRIREME_TOKEN_FD" in variables(pid) else ""
        ring.require("trireme-token" in token, "a rank has the token by a descriptor", token)
        secret = pathlib.Path(f"/proc/{pid}/fd/{variables(pid)['TRIREME_TOKEN_FD']}").read_bytes()
        ring.require(len(secret) == 64 and secret not in said, "and neither in its variables nor in its words")
    for pid in (job.pid, *pids):
        ring.require(core_limit(pid) in ("0", "1"), "who holds a token leaves no core dump", core_limit(pid))
    listening = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, encoding="utf-8", check=False).stdout
    ring.check(not listening or f"127.0.0.1:{port}" in listening, "on one host the store listens at 127.0.0.1 alone", listening)

    # A connection a stranger holds open, in silence, is there all the while.
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    ring.check(knock(port, b"GET / HTTP/1.1\r\n\r\n") == b"", "strangers get no answer")
    raw = subprocess.run([sys.executable, "-c", RAW_CLIENT, str(port)], capture_output=True, encoding="utf-8", timeout=60, check=False)
    if "No module named" not in raw.stderr:
        ring.check(raw.stdout.startswith("refused"), "a TCPStore client can neither set, get nor delete", raw.stdout + raw.stderr)

    other = r.folder / "other-token"
    other.write_text("c07e41d95a8b36f2e1094d7cb85f3a62d9170be4f6285ca3")
    other.chmod(0o600)
    as_rank_one = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port)}
    result = r.run(r.command("intruder", devices=2, launch__token_file=other, comm__timeout="10s"), env=ring.environment(**as_rank_one))
    ring.check(result.code != 0 and "belongs to another job" in result.err and result.seconds < 15, "a rank of another job is told so", str(result))
    named = variables(pids[0])["TRIREME_JOB_ID"]
    result = r.run(r.command("intruder", devices=2, launch__token_file=other, comm__timeout="10s"),
                   env=ring.environment(**as_rank_one, TRIREME_JOB_ID=named))
    ring.check(result.code != 0 and "belongs to another job" in result.err, "so is one that knows the job's name", str(result))
    source = random.Random(5)
    for _ in range(200 if ring.SLOW else 20):
        knock(port, source.randbytes(source.randrange(1, 3000)))
    ring.wait_for(lambda: STEPS in ring.metrics(r.folder / "busy"), f"{STEPS} steps")
    running = job.poll() is None
    for s in silent:
        s.close()
    ring.check(running, "all of this happened while the job ran")
    job.send_signal(signal.SIGTERM)
    done = r.finish(job)
    ring.check(done.code == 75, "it ends well when it is asked to", str(done))
    for sentence in ["sent something else than a handshake", "refused where ranks meet: 127.0.0.1:", "of another job", "of this job and has another token",
                     *(["speaks the language of c10d's TCPStore"] if raw.stdout else [])]:
        ring.check(sentence in done.err, f"told: {sentence}", done.err)
    losses = ring.metrics(r.folder / "busy")
    ring.check(all(losses[s]["loss"] == undisturbed[s]["loss"] for s in range(1, STEPS + 1)), "with every loss as without strangers")


def a_token_file_is_a_secret(r):
    token = r.folder / "token"
    token.write_text("5b1c9e0f7a2d48836cf04b9a1e7d25f83b60c4ad918e2f57")
    token.chmod(0o600)
    result = r.run(r.command("with-file", devices=2, train__max_steps=2, launch__token_file=token))
    ring.check(result.code == 0, "launch.token_file gives the token", str(result))
    token.chmod(0o640)
    result = r.run(r.command("refused", devices=2, train__max_steps=2, launch__token_file=token))
    ring.check(result.code == 2 and "others may read or change it (mode 0640): chmod 600" in result.err, "but not where its group can read it", str(result))
    token.chmod(0o600)
    token.write_text("short")
    result = r.run(r.command("refused", devices=2, train__max_steps=2, launch__token_file=token))
    ring.check(result.code == 2 and "32 to 256 characters" in result.err, "nor where it is easily guessed", str(result))
    result = r.run(r.command("refused", comm__tls="true", comm__backend="mpi"))
    ring.check(result.code == 2 and "backend mpi cannot encrypt what it sends" in result.err, "nor a protection that is none", str(result))
    ring.require(not (r.folder / "refused").exists(), "nothing is written")


def ranks_without_a_launcher_meet_by_a_file(r):
    """As torchrun's and mpirun's do: nobody hands them a token."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    out = r.folder / "bare"
    out.mkdir()
    stale = out / f".meeting-127.0.0.1-{port}"
    stale.write_text(f"127.0.0.1 {port} {'0' * 64}\n")  # of a job that was killed
    stale.chmod(0o600)
    jobs = []
    for rank in (1, 0):
        env = ring.environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(port))
        with open(r.folder / f"bare{rank}.txt", "w") as log:
            jobs.append(subprocess.Popen(r.command("bare", devices=2, train__max_steps=2), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                         cwd=r.folder, env=env))
        time.sleep(1 if rank == 1 else 0)
    codes = [job.wait(90) for job in jobs]
    said = "".join((r.folder / f"bare{rank}.txt").read_text() for rank in (0, 1))
    ring.check(codes == [0, 0], "ranks without a launcher meet by a file, a stale one notwithstanding", said)
    ring.check(not stale.exists(), "which goes with the job")


class Listener:
    """Somebody on the network: counts the packets on the loopback interface that have `words` in them."""

    def __init__(self, words):
        self.words, self.heard, self.all, self.stop = words, 0, 0, False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.2)
        self.thread = threading.Thread(target=self.listen)

    def listen(self):
        while not self.stop:
            try:
                packet = self.socket.recv(1 << 16)
            except TimeoutError:
                continue
            self.all += 1
            self.heard += self.words in packet

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()
        self.socket.close()


def nobody_can_listen_to_sealed_ranks(r):
    """In a network of its own, where it can be made: other jobs of this machine are heard, too."""
    if why := namespaces.why_not():
        print(f"without a network of its own: {why}")
        return listens(r)
    enter = ctypes.CDLL(None).setns
    with namespaces.namespaces(1) as [name], open(f"/run/netns/{name}") as own, open("/proc/self/ns/net") as before:
        ring.require(enter(own.fileno(), 0) == 0, "the test has a network of its own")
        try:
            listens(r)
        finally:
            enter(before.fileno(), 0)


def listens(r):
    heard = {}
    try:
        for tls in ("false", "true"):
            with Listener(HEADER) as listener:
                r.train(f"tls-{tls}", devices=2, train__max_steps=6, comm__backend="gloo", comm__tls=tls)
            heard[tls] = listener.heard
            ring.require(listener.all > 50, "packets were seen", str(listener.all))
    except PermissionError:
        print("without a listener: raw sockets want root")
        return
    ring.check(heard["false"] > 0, f"what gloo sends is plain to a listener: {heard['false']} packets")
    ring.check(heard["true"] == 0, "comm.tls leaves nothing to hear", str(heard))
    plain, sealed = (ring.metrics(r.folder / f"tls-{tls}") for tls in ("false", "true"))
    ring.check(all(plain[s]["loss"] == sealed[s]["loss"] for s in range(1, 7)), "and the losses are the same bits")


with ring.Ring(sys.argv[1]) as r:
    nobody_can_listen_to_sealed_ranks(r)
    a_token_file_is_a_secret(r)
    ranks_without_a_launcher_meet_by_a_file(r)
    nothing_disturbs_a_job(r)
    r.require_nothing_is_left("busy", "strangers")
