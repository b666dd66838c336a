"""Disks that are full, gone or read-only while a run saves: one error, the older checkpoint as it was, training goes on if told to.

save_trouble.py TRIREME
Needs a small file system of its own, which only root may mount, and chattr; what cannot be had is left out and said.
"""

import contextlib
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
        with contextlib.suppress(OSError):  # a run that writes beside this has made the disk full earlier
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
        ring.check(result.code == 74 and "the disk is full, " in result.err and " needed, " in result.err and " 0 bytes needed" not in result.err,
                   f"full disk, {mode}: the run ends with the numbers and 74, which refused settings do not have", str(result))
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


def full_disk_at_the_start(r):
    with Disk(r, "full-start", 8) as disk:
        if disk.why_not:
            print(f"left out: a full disk ({disk.why_not.strip()})")
            return
        for devices in (1, 2):
            out = disk.path / f"out-{devices}"
            r.train(out, model=ring.LLAMA, train__max_steps=1)  # its text is tokenized
            shutil.rmtree(out / "step-00000001")
            disk.fill(leave=0)
            result = r.run(r.command(out, **settings("sync", devices=devices, train__max_steps=2)))
            ring.check(result.code == 74 and "the disk is full" in result.err and " 0 bytes needed" not in result.err,
                       f"a disk that is full at the start, {devices} ranks: 74", str(result))
            ring.check(not [path.name for path in out.rglob(".shared-*")], "and no file of the start is left", str(list(out.iterdir())))
            disk.make_room()


def commands_that_name_a_place(r):
    """They end with 74 as a run does, and do not advise an option that they refuse."""
    source = r.train("wide", **settings("sync", train__max_steps=2)) / "step-00000002"
    with Disk(r, "full-place", 2) as disk:
        if disk.why_not:
            print(f"left out: a full disk ({disk.why_not.strip()})")
            return
        disk.fill(leave=MIB // 4)
        for words in (["convert"], ["checkpoint", "reshard"], ["checkpoint", "consolidate"]):
            result = r.run([r.program, *words, str(source), str(disk.path / "out")])
            ring.check(result.code == 74 and "name a place on another disk" in result.err and "--out_dir" not in result.err,
                       f"{' '.join(words)} onto a full disk: 74, and advice that it takes", str(result))
            ring.require([path.name for path in disk.path.iterdir()] == ["filler"], "and nothing is left", str(list(disk.path.iterdir())))


def files_may_not_grow(r):
    """ulimit -f: said with the limit, not a death by SIGXFSZ."""
    text = r.folder / "text.txt"
    r.train("tokens-are-cached", train__max_steps=1)
    for devices in (1, 2):
        words = r.command(f"limited-{devices}", **settings("sync", devices=devices, train__max_steps=2))
        result = r.run(["sh", "-c", 'ulimit -f 2048; exec "$@"', "sh", *words])
        ring.check(result.code == 74 and "larger than the limit on file sizes, 1.00 MiB (ulimit -f)" in result.err,
                   f"a limit on file sizes, {devices} ranks: told with its number", str(result))
    result = r.run(["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", r.program, "launch", "--nproc_per_node", "2", "--", "sh", "-c", f"exec cat {text} {text} > grown-$RANK"])
    ring.check("(SIGXFSZ)" in result.err and "grew to the limit on file sizes" in result.err and "4.00 KiB" in result.err,
               "another program that the signal ends is told of with the limit", str(result))


def other_files(r):
    """Files beside the checkpoints follow save.on_error, each by its own name."""
    for on_error in ("stop", "continue"):
        out = r.folder / f"in-the-way-{on_error}"
        for name in ("profile.json", "loss.svg"):
            (out / name).mkdir(parents=True)
        result = r.run(r.command(out, train__max_steps=8, profile__measure="true", profile__steps=2, save__on_error=on_error))
        told = [f"warn     cannot replace {out / name}: Is a directory; {what}" in result.text
                for name, what in (("profile.json", "the run goes on without it"), ("loss.svg", "there is no picture of the loss"))]
        if on_error == "stop":
            ring.check(result.code == 2 and "cannot replace" in result.err and not any(told), "a profile that cannot be written stops the run", str(result))
        else:
            ring.check(result.code == 0 and all(told) and "profile  steps " in result.text and (out / "profile.txt").exists(),
                       "a profile and a curve that cannot be written are told of, if the run is to go on", str(result))
    out = r.folder / "in-the-way-of-a-picture"
    (out / "loss.svg").mkdir(parents=True)
    result = r.run(r.command(out, train__max_steps=2))
    ring.check(result.code == 0 and "there is no picture of the loss" in result.text, "a run that has saved everything does not fail by a picture", str(result))


def files_at_the_start_of_a_resume(r):
    """What cannot be opened or cut when a run goes on follows save.on_error, too."""
    for on_error in ("stop", "continue"):
        out = r.folder / f"resumed-{on_error}"
        words = {"train__loggers": "[tensorboard, csv]", "save__on_error": on_error}
        result = r.run(r.command(out, train__max_steps=2, **words))
        ring.require(result.code == 0, "a run", str(result))
        (out / "metrics.jsonl").unlink()
        (out / "metrics.jsonl").mkdir()
        shutil.rmtree(out / "logs")
        (out / "logs").write_text("in the way")
        result = r.run(r.command(out, train__max_steps=4, resume="true", **words))
        told = [line for line in result.text.splitlines() if line.startswith("warn     cannot ") and "the run goes on without it" in line]
        if on_error == "stop":
            ring.check(result.code == 2 and "metrics.jsonl" in result.err and not told, "metrics that cannot be cut stop a resume", str(result))
        else:
            ring.check(result.code == 0 and all(any(name in line for line in told) for name in ("metrics.jsonl", "tensorboard", "csv"))
                       and (out / "step-00000004").is_dir(), "metrics that cannot be cut are told of, if the run is to go on", str(result))


def events_without_room(r):
    (r.folder / "partly").mkdir()
    with Disk(r, "partly/logs", 1) as disk:
        if disk.why_not:
            print(f"left out: a full disk ({disk.why_not.strip()})")
            return
        out, steps = disk.path.parent, 400
        process = r.start(r.command(out, train__max_steps=steps, train__log_interval=1, train__loggers="[tensorboard]", save__on_error="continue"))
        ring.wait_for(lambda: list(disk.path.rglob("events.*")), "events")
        disk.fill(leave=0)
        result = r.finish(process)
        warnings = [line for line in result.text.splitlines() if line.startswith("warn     cannot write")]
        ring.check(result.code == 0 and len(warnings) == 1 and "/events.out.tfevents." in warnings[0] and "the disk is full" in warnings[0],
                   "events without room are told of by their own name, once", str(result))
        ring.check(len((out / "metrics.jsonl").read_text().splitlines()) == steps, "and metrics.jsonl goes on")


def links_lead_nowhere(r):
    """What a run writes lies in out_dir: links there are refused, or replaced, and never followed."""
    target = r.folder / "target"
    for name, devices in [("logs/rank0.log", 2), ("logs", 2), ("ledger", 1), ("ledger/rank0.jsonl", 1), (".lock", 1), ("metrics.jsonl", 1), ("flight", 2)]:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        (target / "rank0.log").write_text("precious")
        (target / "rank0.jsonl").write_text("precious")
        (target / "file").write_text("precious")
        out = r.folder / f"links-{name.replace('/', '-')}"
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(target if name in ("logs", "ledger", "flight") else target / "file")
        result = r.run(r.command(out, **settings("sync", devices=devices, train__max_steps=2, data__ledger="true")))
        ring.check((result.code == 0 or "symbolic link" in result.err) and all(path.read_text() == "precious" for path in target.iterdir())
                   and len(list(target.iterdir())) == 3, f"{name} is a link: not followed ({'refused' if result.code else 'replaced'})", str(result))


def tokens_are_as_private_as_their_text(r):
    for mode, parent in ((0o600, 0o755), (0o640, 0o755), (0o644, 0o755), (0o644, 0o700)):
        folder = r.folder / f"text-{mode:o}-{parent:o}"
        folder.mkdir()
        text = folder / "mine.txt"
        text.write_text(f"{mode} {parent} " + r.text.read_text())
        text.chmod(mode)
        folder.chmod(parent)
        r.folder.chmod(0o755)
        before = set(r.folder.rglob("tokens/*"))
        result = r.run(r.command(f"private-{mode:o}-{parent:o}", data__train_data_path=text, train__max_steps=1))
        made = [path for path in set(r.folder.rglob("tokens/*")) - before if path.suffix in (".bin", ".idx", ".json")]
        wanted = 0o600 if parent == 0o700 else mode
        ring.check(result.code == 0 and len(made) == 3 and all(path.stat().st_mode & 0o777 == wanted for path in made),
                   f"the tokens of a text of mode {mode:o} in a folder of mode {parent:o} have mode {wanted:o}", str([(p.name, oct(p.stat().st_mode)) for p in made]))


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
    for what in ("weights alone", "and without a manifest"):
        for words in ([], ["--dry_run", "true"]):
            result = r.run([*r.command("from-plain", **settings("sync", train__max_steps=1, resume=plain)), *words])
            ring.check(result.code == 2 and f"resume: {plain} holds weights and no state of a run; begin a new run from them: trireme pretrain {plain}" in result.err,
                       f"{what}: no run goes on from them{' '.join(['', *words])}", str(result))
        (plain / "manifest.json").unlink(missing_ok=True)
    command = r.command("from-plain", **settings("sync", model={}, train__max_steps=1))
    command[command.index("llama-5m")] = str(plain)
    result = r.run(command)
    lines = [line for line in result.out.splitlines() if "it has no manifest, so nothing in it could be verified" in line]
    ring.check(result.code == 0 and len(lines) == 1, "a folder without a manifest loads, with one line saying so", str(result))


with ring.Ring(sys.argv[1]) as r:
    for mode in ("sync", "async"):
        full_disk(r, mode)
        gone_folder(r, mode)
    full_disk_at_the_start(r)
    commands_that_name_a_place(r)
    files_may_not_grow(r)
    other_files(r)
    files_at_the_start_of_a_resume(r)
    events_without_room(r)
    links_lead_nowhere(r)
    tokens_are_as_private_as_their_text(r)
    read_only_folder(r)
    anybodys_folder(r)
