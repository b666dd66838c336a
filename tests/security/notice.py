"""Whoever answers at launch.notice_url may say what he likes, as slowly and as much as he likes: the run goes on, one
warning is said, and no look lasts longer than its deadline of two seconds.

notice.py TRIREME
"""

import contextlib
import pathlib
import select
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))

import ring

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
NEVER = 60  # seconds, far beyond every deadline
# Between two bytes: each comes soon, and all together would never end.
PAUSE = 0.7
LONGEST = 5  # seconds of a look: its deadline of two, and a busy machine's lateness


def hangs_up(s, seconds):
    """Whether the guest hangs up within so many seconds."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([s], [], [], left)[0] and not s.recv(4096):
            return True
    return False


def pour(s, text):
    """The same words again and again, until the guest hangs up."""
    s.setblocking(False)
    while True:
        heard, ready, _ = select.select([s], [s], [])
        if heard and not s.recv(4096):
            return
        if ready:
            s.send(text)


def trickle(s, text):
    for byte in text:
        s.sendall(bytes([byte]))
        if hangs_up(s, PAUSE):
            return


def null(s, _):
    body = b'{"Events": [{"EventType": null}, {"EventType": ["Preempt"]}, null, 7]}'
    s.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def deep(s, _):
    body = b'{"Events": ' + b"[" * 30000 + b"]" * 30000 + b"}"
    s.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def huge(s, _):
    s.sendall(OK + b"\r\n")
    pour(s, b"[" * 65536)


def garbage(s, _):
    s.sendall(b"\x00\xff\x16\x03\x01 what do you want\r\n\r\n" * 50)


def nothing(s, _):
    pass  # hangs up at once


def silence(s, _):
    hangs_up(s, NEVER)


def slow_headers(s, _):
    trickle(s, OK * 10)


def headers_without_end(s, _):
    s.sendall(OK)
    while not hangs_up(s, 0.1):
        s.sendall(b"X-More: to come\r\n")


def flood_of_headers(s, _):
    s.sendall(OK)
    pour(s, b"X-More: to come\r\n" * 4096)


def slow_body(s, _):
    s.sendall(OK + b"Content-Length: 1000\r\n\r\n")
    trickle(s, b" " * 1000)


def slow_token(s, request):
    """Asks for a token, as AWS does, late; and the answer to that request, a second one, trickles."""
    if request.startswith(b"GET"):
        trickle(s, b"HT")
        s.sendall(b"TP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    else:
        trickle(s, OK * 10)


class Answers:
    """A metadata service that somebody else runs."""

    def __init__(self, answer):
        self.answer = answer
        self.looks = []  # of each look, when it began and when its last connection ended
        self.lock = threading.Lock()

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    @property
    def url(self):
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/latest/meta-data"

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                guest, _ = self.socket.accept()
                threading.Thread(target=self.talk, args=(guest,), daemon=True).start()

    def talk(self, guest):
        with guest, contextlib.suppress(OSError):
            begin = time.monotonic()
            request = guest.recv(4096)
            with self.lock:
                if request.startswith(b"GET"):
                    self.looks.append([begin, None])
                look = self.looks[-1]
            try:
                self.answer(guest, request)
            finally:
                look[1] = time.monotonic()

    def ended(self):
        """How long the looks took that a later one has followed."""
        with self.lock:
            return [end - begin for begin, end in self.looks[:-1] if end]

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def steps_of(folder):
    return len(ring.metrics(folder)) if (folder / "metrics.jsonl").exists() else 0


def most_memory(r):
    """MiB that the run has had at most."""
    [line] = [line for line in pathlib.Path(f"/proc/{r.processes()[0]}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def a_run_goes_on(r, answer, says):
    what = f"a notice's answer that is {answer.__name__}"
    out = answer.__name__
    with Answers(answer) as service:
        job = r.start(r.command(out, train__max_steps=1_000_000, train__lr_decay="constant", launch__notice_url=service.url,
                                launch__notice_interval="20ms", train__log_interval=1))

        def has(condition, sentence):
            ring.wait_for(lambda: job.poll() is not None or condition(), f"{what}: {sentence}", NEVER)
            ring.require(job.poll() is None, f"{what} ends no run", (r.folder / "start.err").read_text())

        has(lambda: len(service.ended()) >= 2, "it is asked again and again")
        steps = steps_of(r.folder / out)
        has(lambda: steps_of(r.folder / out) > steps + 2, "the training goes on")
        memory = most_memory(r)
        job.send_signal(signal.SIGTERM)
        done = r.finish(job)
        longest = max(service.ended())
    ring.require(done.code == 75 and done.seconds < LONGEST + 5, f"{what}: the run ends well when it is asked to, and soon", str(done))
    ring.require(longest < LONGEST, f"{what} holds nobody beyond the deadline", f"{longest:.1f} s")
    warnings = done.text.count("warn  launch.notice_url")
    ring.check(warnings == 1 and says in done.text if says else warnings == 0,
               f"{what}: {says or 'no warning'}, at most {longest:.1f} s a look, {memory:.0f} MiB", str(done))
    return memory


LATE = "does not answer in two seconds"

with ring.Ring(sys.argv[1]) as r:
    memories = []
    for answer, says in [(null, ""), (deep, ""), (huge, "sends more than 64 KiB"), (garbage, "does not answer"), (nothing, "does not answer"),
                         (silence, LATE), (slow_headers, LATE), (headers_without_end, LATE), (flood_of_headers, "sends more than 64 KiB"), (slow_body, LATE),
                         (slow_token, "asks for a token and gives none")]:
        memories.append(a_run_goes_on(r, answer, says))
    ring.check(max(memories) <= memories[0] + 32, f"no answer takes memory: {min(memories):.0f} to {max(memories):.0f} MiB")
