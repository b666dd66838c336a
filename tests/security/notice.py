"""Whoever answers at launch.notice_url may say what he likes, as slowly and as much as he likes: the run goes on to its end.

notice.py TRIREME
"""

import contextlib
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))

import ring

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


def null(s):
    body = b'{"Events": [{"EventType": null}, {"EventType": ["Preempt"]}, null, 7]}'
    s.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def huge(s):
    s.sendall(OK + b"\r\n")
    while True:
        s.sendall(b"[" * 65536)


def deep(s):
    body = b'{"Events": ' + b"[" * 30000 + b"]" * 30000 + b"}"
    s.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def slow(s):
    for byte in OK * 100:
        s.sendall(bytes([byte]))
        time.sleep(0.3)


def silent(s):
    time.sleep(5)


def garbage(s):
    s.sendall(b"\x00\xff\x16\x03\x01 what do you want\r\n\r\n" * 50)


def hang_up(s):
    s.close()


class Answers:
    """A metadata service that somebody else runs."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/latest/meta-data"

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                guest, _ = self.socket.accept()
                self.asked += 1
                threading.Thread(target=self.talk, args=(guest,), daemon=True).start()

    def talk(self, guest):
        with guest, contextlib.suppress(OSError):
            guest.recv(4096)
            self.answer(guest)

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


with ring.Ring(sys.argv[1]) as r:
    for answer, says in [(null, ""), (deep, ""), (huge, "sends more than 64 KiB"), (slow, "does not answer in two seconds"),
                         (silent, "does not answer in two seconds"), (garbage, "does not answer"), (hang_up, "does not answer")]:
        service = Answers(answer)
        with service as url:
            steps = 40
            result = r.run(r.command(answer.__name__, train__max_steps=steps, launch__notice_url=url, launch__notice_interval="20ms",
                                     train__log_interval=steps), timeout=60)
        ring.require(service.asked > 0, f"the service that answers {answer.__name__} was asked", str(result))
        ring.require(result.code == 0, f"a notice's answer that is {answer.__name__} ends no run", str(result))
        ring.require(result.text.count("warn  launch.notice_url") <= 1, "one warning, not one a look", str(result))
        ring.check(not says or result.seconds < 3 or says in result.text, f"a notice's answer that is {answer.__name__}: the run ends well",
                   str(result))
