"""Control groups of a test's own, and a swap file: each is root's to make, and gone afterwards.

Version 1 has a folder for each controller, version 2 one for all.
"""

import contextlib
import os
import pathlib
import subprocess

ROOT = pathlib.Path("/sys/fs/cgroup")


def tell(path, text):
    pathlib.Path(path).write_text(str(text))


@contextlib.contextmanager
def group(controller):
    """A fresh group; yields (its folder, whether it is of version 1). OSError where none can be made."""
    first = (ROOT / controller / "cgroup.procs").exists()
    folder = (ROOT / controller if first else ROOT) / f"trireme-ring-{os.getpid()}"
    if not first:
        v2 = {"blkio": "io"}.get(controller, controller)
        if v2 not in (ROOT / "cgroup.subtree_control").read_text().split():
            tell(ROOT / "cgroup.subtree_control", f"+{v2}")
    folder.mkdir()
    try:
        yield folder, first
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                tell(folder.parent / "cgroup.procs", pid)
        folder.rmdir()


def why_not(controller):
    """Empty where a group of the controller can be made, else what is missing."""
    if os.geteuid() != 0:
        return "control groups want root"
    try:
        with group(controller):
            return ""
    except OSError as error:
        return f"no control group of {controller} can be made here ({error})"


def inside(folder, command):
    """The command, whose process joins the group before it begins."""
    return ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh", *map(str, command)]


def limit_cpu(group, share):
    """Of one core."""
    folder, first = group
    period = 100_000
    if first:
        tell(folder / "cpu.cfs_quota_us", int(share * period))
    else:
        tell(folder / "cpu.max", f"{int(share * period)} {period}")


def limit_memory(group, mebibytes):
    """What is resident beyond it goes to swap space; takes as long as that takes."""
    folder, first = group
    tell(folder / ("memory.limit_in_bytes" if first else "memory.max"), mebibytes << 20)


def limit_reads(group, device, reads_a_second):
    folder, first = group
    number = os.stat(device).st_rdev
    number = f"{os.major(number)}:{os.minor(number)}"
    if first:
        tell(folder / "blkio.throttle.read_iops_device", f"{number} {reads_a_second}")
    else:
        tell(folder / "io.max", f"{number} riops={reads_a_second}")


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, encoding="utf-8").stdout.strip()


@contextlib.contextmanager
def loop_device(folder, mebibytes):
    """A device whose bytes lie in a file. CalledProcessError where there is none."""
    file = folder / "device"
    with open(file, "wb") as new:
        os.posix_fallocate(new.fileno(), 0, mebibytes << 20)
    device = run("losetup", "--find", "--show", str(file))
    try:
        tell(f"/sys/block/{pathlib.Path(device).name}/queue/read_ahead_kb", 16)  # some systems read 8 MiB ahead
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)
        file.unlink()


@contextlib.contextmanager
def swap_space(folder, mebibytes):
    """CalledProcessError where none can be added."""
    with loop_device(folder, mebibytes) as device:
        run("mkswap", device)
        run("swapon", device)
        try:
            yield
        finally:
            run("swapoff", device)


@contextlib.contextmanager
def mounted(device, folder):
    folder.mkdir(exist_ok=True)
    run("mount", device, str(folder))
    try:
        yield folder
    finally:
        run("umount", str(folder))
