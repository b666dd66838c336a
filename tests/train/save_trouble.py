"""Disks that are full, gone or read-only while a run saves: one error, the older checkpoint as it was, training goes on if told to.

save_trouble.py TRIREME
Needs a small file system of its own, which only root may mount, and chattr; what cannot be had is left out and said.
"""

import os
import shutil
import subprocess
import sys

import ring

MIB = 1 << 20
MODEL = ring.LLAMA | {"hidden_size": 128, "intermediate_size": 256}  # a checkpoint of about 6 MB


class Disk:
    """A tmpfs of a few MiB in the ring's folder."""

    def __init__(self, r, name, mib):
        self.path = r.folder / name
        self.path.mkdir()
        self.why_not = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(self.path)], capture_output=True,
                                      encoding="utf-8").stderr

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True)

    def fill(self, leave):
        free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
        (self.path / "filler").write_bytes(b"x" * (free - leave))

    def make_room(self):
        (self.path / "filler").unlink()


def verified(r, folder):
    result = r.run([r.program, "checkpoint", "verify", str(folder)])
    return result.code == 0 and "blocks are as they were saved" in result.out


def settings(mode, **more):
    return dict(model=MODEL, devices=2, train__save_interval=2, save__mode=mode, save__keep_last=0, eval__interval=100000) | more


def full_disk(r, mode):
    with Disk(r, f"full-{mode}", 24) as disk:
        if disk.why_not:
            print(f"left out: a full disk ({disk.why_not.strip()})")
            return
        out = disk.path / "out"
        result = r.run(r.command(out, **settings(mode, train__max_steps=2)))
        ring.require(result.code == 0 and verified(r, out / "step-00000002"), "a first checkpoint", str(result))
        disk.fill(leave=MIB)
        result = r.run(r.command(out, **settings(mode, train__max_steps=6, resume="true")))
        ring.check(result.code == 2 and "the disk is full, " in result.err and " needed, " in result.err,
                   f"full disk, {mode}: the run ends with the numbers", str(result))
        ring.check(ring.step_folders(out) == ["step-00000002"] and verified(r, out / "step-00000002"),
                   f"full disk, {mode}: the older checkpoint is as it was")
        ring.require(not list(out.glob(".tmp-*")), "nothing unfinished is left")
        process = r.start(r.command(out, **settings(mode, train__max_steps=100, train__save_interval=5, save__on_error="continue",
                                                    save__keep_last=1, resume="true")))
        ring.wait_for(lambda: "is not saved, training goes on (save.on_error continue)" in (r.folder / "start.out").read_text(),
                      "a warning")
        disk.make_room()
        result = r.finish(process)
        ring.check(result.code == 0 and ring.step_folders(out) == ["step-00000100"],
                   f"full disk, {mode}: training goes on when told to, and saves again when there is room", str(result))


def gone_folder(r, mode):
    name = f"gone-{mode}"
    process = r.start(r.command(name, **settings(mode, train__max_steps=100000, train__save_interval=50)))
    ring.wait_for(lambda: ring.step_folders(r.folder / name), "a first checkpoint")
    shutil.move(r.folder / name, r.folder / f"{name}-elsewhere")
    result = r.finish(process)
    ring.check(result.code != 0 and "is gone" in result.err, f"folder gone, {mode}: the run says so and ends", str(result))
    ring.check(verified(r, r.folder / f"{name}-elsewhere" / ring.step_folders(r.folder / f"{name}-elsewhere")[0]),
               f"folder gone, {mode}: what was saved is as it was, wherever it is now")
    ring.require(not list((r.folder / name).glob("step-*")), "no checkpoint where the folder was")


def read_only_folder(r):
    out = r.folder / "read-only"
    r.train("read-only", **settings("sync", train__max_steps=2))
    if subprocess.run(["chattr", "+i", str(out)], capture_output=True).returncode != 0:
        print("left out: a read-only folder (chattr does not work here)")
        return
    try:
        result = r.run(r.command("read-only", **settings("sync", train__max_steps=4, resume="true")))
        ring.check(result.code == 2 and str(out) in result.err and "not permitted" in result.err,
                   "read-only folder: refused at the start, naming it", str(result))
    finally:
        subprocess.run(["chattr", "-i", str(out)], check=True)
    ring.check(verified(r, out / "step-00000002"), "read-only folder: the checkpoint is as it was")


def anybodys_folder(r):
    r.train("source", **settings("sync", train__max_steps=2))
    plain = r.folder / "plain"
    result = r.run([r.program, "checkpoint", "consolidate", str(r.folder / "source/step-00000002"), str(plain)])
    ring.require(result.code == 0, "consolidate", str(result))
    (plain / "manifest.json").unlink()
    result = r.run(r.command("from-plain", **settings("sync", train__max_steps=1, resume=plain)))
    lines = [line for line in result.out.splitlines() if "it has no manifest, so nothing in it could be verified" in line]
    ring.check(result.code == 0 and len(lines) == 1, "a folder without a manifest loads, with one line saying so", str(result))


with ring.Ring(sys.argv[1]) as r:
    for mode in ("sync", "async"):
        full_disk(r, mode)
        gone_folder(r, mode)
    read_only_folder(r)
    anybodys_folder(r)
