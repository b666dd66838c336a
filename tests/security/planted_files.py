"""Whoever can write to out_dir cannot choose whom a job believes: a planted .meeting-JOB, or a token file that others own,
read or can swap, is refused in a sentence.

planted_files.py TRIREME
Wants root for files of another owner.
"""

import contextlib
import os
import pathlib
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))

import ring

NOBODY = 65534
TOKEN = "5b1c9e0f7a2d48836cf04b9a1e7d25f83b60c4ad918e2f57"


class Impostor:
    """Somebody who waits for ranks that believe him."""

    def __enter__(self):
        self.callers = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.wait)
        self.thread.start()
        return self

    def wait(self):
        with contextlib.suppress(OSError):
            while True:
                self.socket.accept()
                self.callers += 1

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()


def owned_by_another(path):
    os.chown(path, NOBODY, NOBODY)


def with_a_second_name(path):
    os.link(path, path.with_name("second" + path.name))


def as_a_link(path):
    target = path.with_name("target" + path.name)
    path.rename(target)
    path.symlink_to(target)


def for_the_group(path):
    path.chmod(0o640)


WAYS = [(for_the_group, "others may read or change it (mode 0640)"), (with_a_second_name, "has 2 names"), (as_a_link, "is a link")]
if os.geteuid() == 0:
    WAYS.append((owned_by_another, f"belongs to user {NOBODY}"))


def a_planted_meeting_file(r):
    with Impostor() as impostor:
        for number, (plant, sentence) in enumerate(WAYS):
            out = r.folder / f"planted{number}"
            out.mkdir()
            path = out / ".meeting-job7"
            path.write_text(f"127.0.0.1 {impostor.port} {TOKEN}\n")
            path.chmod(0o600)
            plant(path)
            env = ring.environment(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1",
                                   TRIREME_JOB_ID="job7")
            result = r.run(r.command(out.name, devices=2, comm__timeout="3s", launch__join_timeout="3s"), env=env, timeout=60)
            ring.require(result.code == 2 and sentence in result.err, f"a planted meeting file ({plant.__name__}) is refused", str(result))
        ring.check(impostor.callers == 0, f"a planted meeting file leads nobody anywhere, {len(WAYS)} ways", f"{impostor.callers} callers")


def a_token_file(r):
    for number, (plant, sentence) in enumerate(WAYS):
        path = r.folder / f"token{number}"
        path.write_text(TOKEN)
        path.chmod(0o600)
        plant(path)
        result = r.run(r.command("token", devices=2, train__max_steps=1, launch__token_file=path))
        ring.require(result.code == 2 and sentence in result.err, f"a token file ({plant.__name__}) is refused", str(result))
    path = r.folder / "guessed"
    for text in ("0123456789abcdef" * 2, "correct horse battery staple, all the way", "7" * 64):
        path.write_text(text)
        path.chmod(0o600)
        result = r.run(r.command("token", devices=2, train__max_steps=1, launch__token_file=path))
        ring.require(result.code == 2 and "can be guessed" in result.err, f"a token that can be guessed is refused: {text}", str(result))
    ring.check(not (r.folder / "token").exists(), "a token file that others have a hand in, or can guess, is refused, and nothing is written")


with ring.Ring(sys.argv[1]) as r:
    a_planted_meeting_file(r)
    a_token_file(r)
