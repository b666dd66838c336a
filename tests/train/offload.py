"""Values that rest in host memory or on a disk: same numbers as without, also over saves, resumes, kills and full disks.

offload.py TRIREME [memory]      memory: only the last part
A few kills and a small model; TRIREME_SLOW=1: 100 kills, and 3 GiB of state in 768 MiB of memory.

The last part also compares what the run's processes hold with the plan. What they hold is what no file on a disk backs: anonymous memory, shared
memory and what was swapped out (Pss_Anon + Pss_Shmem + SwapPss of smaps_rollup), at its highest. It is to be the planned bytes and those of the
program itself, within 3 %. The program's own are what a run of a tiny model with the same settings holds beyond its plan.
"""

import contextlib
import os
import pathlib
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import ring

DISK = {f"offload__{kind}": "disk" for kind in ("optimizer", "master", "parameters", "gradients", "activations")}
HOST = {key: "cpu" for key in DISK}
MIXED = {"precision": "bf16-mixed", "train__lr_decay": "constant", "model": ring.LLAMA | {"num_hidden_layers": 4}, "train__global_batch_size": 4}
PLACEMENTS = {
    "all on disk": DISK,
    "all in host memory": HOST,
    "a third of it on disk": DISK | {"offload__ratio": 0.3},
    "the optimizer alone, a block at a time": {"offload__optimizer": "disk", "offload__buffers": 1, "offload__prefetch": 3},
}
MIB = 1 << 20
HELD_OFF = 0.03


def numbers(folder):
    return {step: [row[key] for key in ("loss", "grad_norm")] for step, row in ring.metrics(folder).items()}


def equals(r, what, folder, plain, steps):
    ring.check(numbers(folder) == numbers(plain), f"{what}: losses and norms", f"{numbers(folder)}\n{numbers(plain)}")
    ours, theirs = (ring.tensors(one / f"step-{steps:08}") for one in (folder, plain))
    unequal = [name for name in theirs if ours[name].tobytes() != theirs[name].tobytes()]
    ring.check(ours.keys() == theirs.keys() and not unequal, f"{what}: {len(theirs)} tensors of the checkpoint", str(unequal))


def placements(r):
    plain = r.train("plain", **MIXED)
    for devices in (1, 2):
        for name, offload in PLACEMENTS.items():
            settings = MIXED | offload | {"devices": devices, "strategy": "full_shard"}
            folder = r.train(f"{devices} {name}", train__save_interval=4, save__mode="async" if devices == 2 else "sync", **settings)
            equals(r, f"{name}, {devices} ranks", folder, plain, 10)
    # A folder's weights are written in several passes, where they rest.
    folder = plain / "step-00000010"
    for name, offload in [("in memory", {}), ("on disk", DISK)]:
        words = r.command(f"adapters {name}", **MIXED | offload | {"train__max_steps": 3, "lora__r": 4, "devices": 2})
        words[words.index("llama-5m")] = str(folder)
        result = r.run([word for word, before in zip(words, [""] + words) if not word.startswith("--model.") and not before.startswith("--model.")])
        ring.require(result.code == 0, f"adapters of a folder, {name}", str(result))
    ring.check(numbers(r.folder / "adapters on disk") == numbers(r.folder / "adapters in memory"), "adapters of a folder: losses and norms")
    # A checkpoint knows nothing of where its values rested.
    for name, before, after in [("from disk to memory", DISK, {}), ("from memory to disk", {}, DISK)]:
        folder = r.train(f"moved {name}", **MIXED | before | {"train__max_steps": 6})
        r.train(f"moved {name}", resume="true", **MIXED | after | {"train__max_steps": 10, "devices": 2})
        equals(r, f"resumed {name}", folder, plain, 10)
    return plain


def unlike_lists(r):
    """Small groups and whole matrices: some ranks own nothing of a group, and their lists move and step less than the others'."""
    common = {"model": ring.LLAMA | {"num_hidden_layers": 4}, "train__micro_batch_size": 2, "train__max_steps": 4, "eval__interval": 2, "eval__max_iters": 4,
              "strategy": "full_shard"}
    small, whole = {"wrap__by": "parameter"}, {"optimizer": "Muon", "precision": "64-true"}
    cases = {"parameters": (small, 2, {"offload__parameters": "cpu"}),
             "gradients": (small, 4, {"offload__gradients": "cpu", "schedule__prefetch": 2}),
             "everything, whole matrices": (whole, 4, HOST | {"schedule__prefetch": 3}),
             "a part, whole matrices": (whole, 2, {"offload__gradients": "cpu", "offload__parameters": "cpu", "offload__ratio": 0.6, "schedule__prefetch": 2})}

    def rows(folder):
        return {step: [row.get(key) for key in ("loss", "grad_norm", "val_loss")] for step, row in ring.metrics(folder).items()}

    plain = [rows(r.train(f"one rank {number}", **common | settings)) for number, settings in enumerate((small, whole))]
    for what, (settings, devices, offload) in cases.items():
        ours, theirs = rows(r.train(f"unlike {what}", **common | settings | offload | {"devices": devices})), plain[settings is whole]
        ring.check(ours == theirs, f"{what}, {devices} ranks of unlike lists: losses, norms and held-out losses", f"{ours}\n{theirs}")


def refusals(r):
    def refused(what, said, code=2, limit=None, **settings):
        command = r.command("refused", **MIXED | settings)
        result = r.run(command, preexec_fn=limit)
        ring.check(result.code == code and said in result.text and not (r.folder / "refused" / "step-00000010").exists(), what, str(result))

    refused("a folder in memory", "offload.path /dev/shm lies in memory, where offloading saves nothing", **DISK | {"offload__path": "/dev/shm"})
    refused("no folder", "offload.path /nowhere: No such file or directory", **DISK | {"offload__path": "/nowhere"})
    refused("weights that ranks share", "offload.parameters moves a rank's own weights, but with strategy zero1", devices=2, strategy="zero1",
            offload__parameters="cpu")
    refused("gradients that ranks share", "offload.gradients moves a rank's own sums of gradients, but with strategy no_shard 2 ranks share them",
            devices=2, strategy="no_shard", offload__gradients="cpu")
    refused("a ratio of nothing", "offload.ratio is the share of what leaves, and nothing leaves", offload__ratio=0.5)
    refused("blocks of no disk", "offload.buffers is for what rests on a disk, and nothing does", offload__optimizer="cpu", offload__buffers=16)
    refused("a kind with nothing to move", "nothing leaves a rank's memory: offload.master has nothing to move: units compute with", precision="32-true",
            offload__master="cpu")
    small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MIB // 4, MIB // 4))
    refused("a file", ": Not a directory", **DISK | {"offload__path": r.program})
    needed = float(re.search(r"a rank needs ([\d.]+) MiB", r.run(r.command("refused", **MIXED, offload__fit="100KiB")).err)[1])
    for what, settings in (("a folder in memory", DISK | {"offload__path": "/dev/shm"}), ("too little memory", {"offload__fit": "100KiB"}),
                           ("too little memory for its threads", {"offload__fit": "100KiB", "launch__threads_per_rank": 5}),
                           ("a disk that fit takes and that is not there", {"offload__fit": f"{1.1 * needed:.2f}MiB", "offload__host": "1KiB", "offload__path": "/nowhere"}),
                           ("an out_dir that is a file", {"out_dir": r.program})):
        results = [r.run(r.command("refused", **MIXED | settings | dry)) for dry in ({}, {"dry_run": "true"})]
        ring.check(all(result.code == 2 for result in results) and results[0].err == results[1].err, f"a dry run refuses {what} as the run does",
                   "\n".join(map(str, results)))
    refused("a disk without room", "cannot offload", code=74, limit=small, **DISK | {"offload__path": str(r.folder)})


def tells(r):
    """What nothing chooses by, and what moves nothing, is said in a sentence; only if it was asked for."""
    environment = ring.environment(XDG_CONFIG_HOME=str(r.folder / "not measured"))
    settings = MIXED | {"precision": "32-true", "train__max_steps": 2, "offload__optimizer": "disk"}
    for what, more, told in (("nothing", {}, ()),
                             ("how early copies begin", {"offload__prefetch": "auto"}, ("offload.prefetch auto is 1: this machine has not been",)),
                             ("a kind that is idle", {"offload__master": "disk"}, ("offload.master has nothing to move: units compute with",))):
        result = r.run(r.command(what, **settings | more), env=environment)
        warned = [line for line in result.text.splitlines() if line.startswith("warn ") and "offload." in line]
        ring.check(result.code == 0 and ("; copies begin 1 computation ahead" in result.text) == ("offload__prefetch" in more) and len(warned) == len(told)
                   and all(map(str.__contains__, warned, told)), f"{what}: {len(told)} warnings", str(result))
    words = ["llama-5m", "--devices", "1", "--precision", "32-true", "--offload.optimizer", "disk", "--offload.master", "disk", "--offload.prefetch", "auto"]
    result = r.run([r.program, "explain", "memory", *words], env=environment)
    ring.check(result.code == 0 and "copies begin 1 computation ahead (offload.prefetch auto)" in result.out and result.out.count("warning: offload.") == 2,
               "explain memory says so, too", str(result))


def unlike_figures(r):
    """By figures of a disk copies begin earlier; ranks that read different figures would plan different lists, and are refused."""
    figures = r.folder / "measured" / "trireme" / "hardware.yaml"
    figures.parent.mkdir(parents=True)
    home = str(figures.parent.parent)
    command = r.command("unlike", **MIXED | {"devices": 2, "strategy": "full_shard", "train__max_steps": 2, "offload__optimizer": "disk",
                                             "offload__master": "disk", "offload__prefetch": "auto"})
    for rate in (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10):
        figures.write_text(f"name: this\nmemory_rate: 10\npeak: {{fp32: 0.1}}\nshares_cores: true\ndisk: {{rate: {rate}}}\n")
        result = r.run([r.program, "explain", "memory", *command[2:]], env=ring.environment(XDG_CONFIG_HOME=home))
        ring.require(result.code == 0 and "copies begin " in result.out, "explain memory says when copies begin", str(result))
        ahead = int(re.search(r"copies begin (\d+) ", result.out)[1])
        if ahead > 1:
            break
    ring.require(ahead > 1, "a disk of some rate asks for copies that begin earlier", str(result))
    result = r.run(command, env=ring.environment(XDG_CONFIG_HOME=home))
    ring.check(result.code == 0 and f"; copies begin {ahead} computations ahead" in result.text,
               f"a disk of {rate} GB/s: copies begin {ahead} computations ahead", str(result))
    command[command.index("--out_dir") + 1] = str(r.folder / "unlike ranks")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=r.folder, encoding="utf-8",
                              env=ring.environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                                   MASTER_PORT=str(port), XDG_CONFIG_HOME=where)) for rank, where in enumerate((home, home + "/none"))]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    ring.check(all(rank.returncode == 2 and f"offload.prefetch auto is 1 on some ranks and {ahead} on others" in text for rank, text in zip(ranks, said)),
               "ranks that read different figures are refused", "\n".join(said))


def kills(r, plain):
    """Ranks and launchers die at random; what is left is the last checkpoint, and a resume ends as the undisturbed run."""
    source = random.Random(int(os.environ.get("TRIREME_SEED", "1")))
    scratch = r.folder / "scratch"
    scratch.mkdir()
    settings = MIXED | DISK | {"devices": 2, "strategy": "full_shard", "train__save_interval": 2, "save__mode": "async", "offload__path": scratch}
    times = 100 if ring.SLOW else 3
    for number in range(times):
        out = f"killed {number}"
        process = r.start(r.command(out, **settings))
        time.sleep(source.uniform(0.3, 2.5))
        victims = r.processes()
        if victims and process.poll() is None:
            try:
                os.kill(source.choice(victims), signal.SIGKILL)
            except ProcessLookupError:
                pass
        r.finish(process)
        r.require_nothing_is_left(out, f"kill {number}")
        ring.require(not any(scratch.iterdir()), f"kill {number}: no file is left", str(list(scratch.iterdir())))
        again = r.run(r.command(out, resume="auto", **settings))
        ring.require(again.code == 0, f"kill {number}: the run continues", str(again))
        ours, theirs = numbers(r.folder / out), numbers(plain)
        ring.require(ours == theirs, f"kill {number}: the undisturbed numbers", f"{ours}\n{theirs}")
    print(f"ok      {times} kills: the undisturbed losses, no process and no file left", flush=True)


def places_of_groups():
    """Folders in which a group of processes with limited memory may be made, and the name of the limit's file: first of this process' own group, which
    a user may have been given."""
    own = {controller: path for _, controllers, path in (line.strip().split(":", 2) for line in open("/proc/self/cgroup")) for controller in controllers.split(",")}
    for controller, root, file in (("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("", "/sys/fs/cgroup", "memory.max")):
        if controller in own:
            folder = pathlib.Path(root + own[controller])
            yield from ((place, file) for place in (folder, folder.parent, pathlib.Path(root)))


def enter(group):
    return lambda: (group / "cgroup.procs").write_text(str(os.getpid()))


def memory_group(limit):
    """A group of processes with so much memory (cgroups v1 or v2), or nothing where this process may not make one."""
    for place, file in places_of_groups():
        group = place / f"trireme-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if (group / file).exists():
                (group / file).write_text(str(limit))
                subprocess.run(["true"], check=True, preexec_fn=enter(group))
                return group
        group.rmdir()
    return None


def held(r):
    """Bytes that the processes of the run hold and no file on a disk backs."""
    kib = 0
    for pid in r.processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
            kib += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:", "SwapPss:")))
    return kib * 1024


def measured(r, out, timeout, settings, **options):
    """A run that must succeed, what it planned, and the most that it held at once."""
    process, most, deadline = r.start(r.command(out, **settings), **options), 0, time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < deadline:
        most = max(most, held(r))
        time.sleep(0.02)
    result = r.finish(process, timeout=1)
    ring.require(result.code == 0, f"the run {out} ends", str(result))
    return result, int(re.search(r"memory   (\d+) MiB a rank planned", result.out)[1]) * MIB, most


def more_than_memory(r):
    """State of several times the memory that the kernel allows, and what the run holds."""
    layers, limit, steps = (14, 768 * MIB, 20) if ring.SLOW else (3, 448 * MIB, 2)
    model = ring.LLAMA | {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": layers, "num_attention_heads": 8, "num_key_value_heads": 8}
    settings = {"model": model, "precision": "bf16-mixed", "train__global_batch_size": 4, "train__micro_batch_size": 4, "train__max_steps": steps,
                "train__log_interval": 1, "launch__threads_per_rank": 2}
    plain = r.run(r.command("in memory", **settings), timeout=1500)
    ring.require(plain.code == 0, "the run in memory ends", str(plain))
    group = memory_group(limit)
    if group is None:
        print("        this process may not make a group with little memory: the run is measured, not limited", flush=True)
    try:
        result, planned, most = measured(r, "limited", 1500, settings | DISK, **({"preexec_fn": enter(group)} if group else {}))
    finally:
        time.sleep(0.5)
        if group:
            group.rmdir()
    on_disk = int(re.search(r"(\d+) MiB on disk", result.out)[1]) * MIB
    equals(r, f"{on_disk // MIB} MiB on disk, {limit // MIB} MiB of memory", r.folder / "limited", r.folder / "in memory", steps)
    ring.check(not ring.SLOW or on_disk >= 4 * limit, f"{on_disk / limit:.1f} times the limit rests on the disk")
    _, tiny_plan, tiny_most = measured(r, "tiny", 120, settings | DISK | {"model": ring.LLAMA, "train__max_steps": 100})
    expected = planned + tiny_most - tiny_plan
    ring.check(most < limit and abs(most / expected - 1) <= HELD_OFF,
               f"{most / MIB:.0f} MiB held at most: {planned // MIB} planned and {(tiny_most - tiny_plan) / MIB:.0f} of the program, {100 * (most / expected - 1):+.1f} %")


ring.judges("numpy")
with ring.Ring(sys.argv[1]) as r:
    if sys.argv[2:] != ["memory"]:
        plain = placements(r)
        unlike_lists(r)
        refusals(r)
        tells(r)
        unlike_figures(r)
        kills(r, plain)
    more_than_memory(r)
