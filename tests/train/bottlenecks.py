"""--profile names a bottleneck that was made, its figures add up, and following its advice helps.

bottlenecks.py TRIREME SLOW_LOADER_LIBRARY [CASE ...]
Quick: saves. TRIREME_SLOW=1, on a machine that does nothing else: twelve bottlenecks and a neighbour, each named first.
Those that want the kernel's help (a slow link, a slow disk, swapping, a throttled rank) want root.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import cgroups
import namespaces
import ring

SLOW = os.environ.get("TRIREME_SLOW") == "1"
MODEL = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
         "vocab_size": 256, "max_position_embeddings": 256}
GOOD = {"train__max_seq_length": 256, "train__micro_batch_size": 4, "train__global_batch_size": 16, "train__max_steps": 13, "profile": "true",
        "profile__steps": 8, "eval__interval": 1000}


def profiled(r, out, **settings):
    return report_of(r, out, r.run(r.command(out, model=MODEL, **(GOOD | settings)), timeout=240))


def report_of(r, out, result):
    ring.require(result.code == 0, f"{out} runs", str(result))
    report = json.loads((r.folder / out / "profile.json").read_text())
    step, parts = report["step_seconds"], sum(report["phases"].values())
    ring.check(abs(parts - step) <= 0.02 * step, f"{out}: phases add up to the step within 2 %", f"{parts} of {step}")
    ring.check((r.folder / out / "profile.txt").read_text() in result.out, f"{out}: the report that was printed is in profile.txt", str(result))
    return report


def names_first(report, expected, out):
    """Beside other tests, only that it is named: they take cores, too. Returns what is said of it."""
    found = [finding for finding in report["findings"][:1 if SLOW else None] if finding["cause"] == expected]
    ring.check(found, f"{out}: {expected} is named{' first' if SLOW else ''}", json.dumps(report["findings"], indent=1))
    return found[0]


def helps(before, after, phase):
    """Steps themselves vary with the machine's other work, so the phase is compared."""
    lost, still = before["phases"][phase], after["phases"][phase]
    ring.check(still <= 0.5 * lost, f"{phase}: the advice wins at least half of what was lost", f"{still:.4f} of {lost:.4f} s a step")


def lost(report, cause):
    """Seconds a token that a cause takes; 0 if it is not found any more."""
    return sum(f["share"] for f in report["findings"] if f["cause"] == cause) / report["tokens_per_second"]


def advice_helps(r, before, out, cause, **settings):
    """With the advice followed, at least half of what the cause took is won: of its own time, and of the time of a token."""
    won_half(before, profiled(r, out, **settings), cause)


def won_half(before, after, cause):
    won = 1 / before["tokens_per_second"] - 1 / after["tokens_per_second"]
    ring.check(lost(after, cause) <= 0.5 * lost(before, cause), f"{cause}: the advice wins at least half of what was lost",
               f"{before['findings']}\n{after['findings']}")
    print(f"        {1e6 * lost(before, cause):.1f} us a token were lost, {1e6 * won:.1f} are won")


def is_complete(r):
    report = profiled(r, "plain", devices=2)
    ring.check(report["steps"] == 8 and report["first_step"] == 4, "eight steps are measured, from the fourth on", json.dumps(report))
    ring.check([row["rank"] for row in report["ranks"]] == [0, 1], "every rank is measured", json.dumps(report["ranks"]))
    trace = json.loads((r.folder / "plain/profile.trace.json").read_text())
    is_a_trace(trace["traceEvents"] if isinstance(trace, dict) else trace, report)
    short = r.run(r.command("short", model=MODEL, **(GOOD | {"train__max_steps": 3, "profile__schedule": str(r.folder / "short.svg")})))
    before, peak, _ = short.out.partition("\npeak ")
    ring.check(peak and "profile measures from step 4 of a start, and this one has 3 steps; train longer, or leave profile out" in before
               and "profile.schedule draws" not in short.out and (r.folder / "short.svg").exists(), "it is said at the start; the third step is drawn", str(short))
    shorter = r.run(r.command("shorter", model=MODEL, **(GOOD | {"train__max_steps": 2, "profile": "false", "profile__steps": None, "profile__schedule": str(r.folder / "no.svg")})))
    ring.check(shorter.code == 0 and "profile.schedule draws step 3 of a start, and this one has 2 steps" in shorter.out and not (r.folder / "no.svg").exists(),
               "a run of two steps says that it draws none", str(shorter))
    ring.check(short.code == 0 and "too few steps to measure" in short.out, "a run of three steps says that they warm up", str(short))
    cut = profiled(r, "cut", train__max_steps=6)
    ring.check(cut["steps"] == 3, "a window that the run cuts short is reported at the end", json.dumps(cut))
    refused = r.run([r.program, "bench", "train", "llama-5m", "--profile"])
    ring.check(refused.code == 2 and "bench times its steps anyway" in refused.text, "bench refuses it", str(refused))


def is_a_trace(events, report):
    """As the Trace Event Format wants it, which Perfetto reads: complete events with numbers, and names of rows."""
    spans = [event for event in events if event["ph"] == "X"]
    ring.check({event["pid"] for event in spans} == {0, 1}, "the trace has both ranks")
    for event in spans:
        ring.require(isinstance(event["name"], str) and isinstance(event["tid"], int) and event["ts"] >= 0 and event["dur"] >= 0, "an event is complete", str(event))
    named = {(event["name"], event["pid"]) for event in events if event["ph"] == "M"}
    ring.check({("process_name", 0), ("process_name", 1)} <= named and {event["ph"] for event in events} <= {"X", "M", "s", "f"}, "its rows have names", str(named))
    for rank in (0, 1):
        end = max(event["ts"] + event["dur"] for event in spans if event["pid"] == rank)
        ring.check(end / 1e6 < 10 * report["step_seconds"], f"rank {rank}'s row is a step long", f"{end} us of {report['step_seconds']} s")


def memory_is_the_kernels(r):
    """What the report says is resident, and what /proc says right after it."""
    process = r.start(r.command("memory", model=MODEL, **(GOOD | {"devices": 2, "train__max_steps": 100000})))
    ring.wait_for(lambda: (r.folder / "memory/profile.json").exists(), "a report", timeout=200)
    for row, pid in zip(json.loads((r.folder / "memory/profile.json").read_text())["ranks"], r.ranks(2)):
        [kib] = [int(line.split()[1]) for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Rss:")]
        ring.check(abs(row["resident_bytes"] - 1024 * kib) <= 0.02 * 1024 * kib, f"rank {row['rank']}: resident memory is the kernel's", f"{row} {kib} KiB")
    process.terminate()
    r.finish(process)


def saves(r):
    before = profiled(r, "saves", train__save_interval=1)
    names_first(before, "saves", "saves")
    helps(before, profiled(r, "fewer-saves", train__save_interval=10), "saves")


def evaluation(r):
    before = profiled(r, "evaluation", eval__interval=1, eval__max_iters=16)
    names_first(before, "evaluation", "evaluation")
    advice_helps(r, before, "less-evaluation", "evaluation", eval__interval=10, eval__max_iters=16)


def recomputation(r):
    before = profiled(r, "recompute", recompute="full")
    names_first(before, "recompute", "recompute")
    advice_helps(r, before, "kept", "recompute", recompute="none")


def few_tokens(r):
    before = profiled(r, "few", train__max_seq_length=32, train__micro_batch_size=1, train__global_batch_size=2, devices=2)
    names_first(before, "small micro-batch", "few")
    advice_helps(r, before, "more", "small micro-batch", train__max_seq_length=32, train__micro_batch_size=8, train__global_batch_size=16, devices=2)


def unequal_stages(r):
    report = profiled(r, "stages", devices=2, mesh__pp=2, train__global_batch_size=32, pipeline__split="[5, 1]")
    names_first(report, "stages", "stages")
    advice_helps(r, report, "equal-stages", "stages", devices=2, mesh__pp=2, train__global_batch_size=32, pipeline__split="[3, 3]")


def too_many_threads(r):
    if os.cpu_count() > 4:
        return
    before = profiled(r, "threads", devices=2, launch__threads_per_rank=2 * os.cpu_count(), launch__oversubscribe="true")
    names_first(before, "threads", "threads")
    advice_helps(r, before, "fewer-threads", "threads", devices=2, launch__threads_per_rank=1)


def neighbour(r):
    """The last rank computes longer, and the other waits."""
    with ring.busy_core():
        report = profiled(r, "neighbour", devices=2)
    finding = names_first(report, "slow rank", "neighbour")
    ring.check("another program" in finding["advice"], "neighbour: the advice names another program", json.dumps(report, indent=1))
    advice_helps(r, report, "alone", "slow rank", devices=2)


def while_it_runs(r, out, command, disturb):
    """The report of a run for which disturb() is called after its first step; it returns what undoes it."""
    process = r.start(command)
    ring.wait_for(lambda: (r.folder / out / "metrics.jsonl").exists() and ring.metrics(r.folder / out), "a first step")
    undo = disturb()
    try:
        return report_of(r, out, r.finish(process, timeout=400))
    finally:
        undo()


def throttled_rank(r):
    """A CPU quota of 70 % of a core, for the last of two ranks."""
    if why := cgroups.why_not("cpu"):
        return print(f"left out: a throttled rank ({why})")
    reports = []
    for out, share in (("throttled", 0.7), ("not-throttled", 2)):
        with cgroups.group("cpu") as group:
            cgroups.limit_cpu(group, share)

            def throttle():
                cgroups.tell(group[0] / "cgroup.procs", r.ranks(2)[1])
                return lambda: None

            reports.append(while_it_runs(r, out, r.command(out, model=MODEL, **(GOOD | {"devices": 2})), throttle))
    finding = names_first(reports[0], "slow rank", "throttled")
    ring.check("raise cpu.max" in finding["advice"], "throttled: the advice names the quota", json.dumps(reports[0], indent=1))
    won_half(*reports, "slow rank")


def unpinned_ranks(r):
    """A kernel that does not balance its cores (isolcpus=), which this script plays: threads that may run on all cores
    stay on the first one."""
    cores = os.sched_getaffinity(0)
    if len(cores) != 2:
        return print(f"left out: unpinned ranks (made for two cores, there are {len(cores)})")

    def keep_on_one_core():
        ranks, end = r.ranks(2), threading.Event()

        def keep():
            while not end.wait(0.02):
                for task in (task for pid in ranks for task in pathlib.Path(f"/proc/{pid}/task").glob("*")):
                    with contextlib.suppress(OSError):
                        if os.sched_getaffinity(int(task.name)) == cores:
                            os.sched_setaffinity(int(task.name), {min(cores)})

        thread = threading.Thread(target=keep)
        thread.start()
        return lambda: (end.set(), thread.join())

    reports = [while_it_runs(r, out, r.command(out, model=MODEL, **(GOOD | {"devices": 2, "launch__pin": pin})), keep_on_one_core)
               for out, pin in (("unpinned", "false"), ("pinned", "true"))]
    finding = names_first(reports[0], "pinning", "unpinned")
    ring.check("--launch.pin true" in finding["advice"], "unpinned: the advice pins them", str(finding))
    won_half(*reports, "pinning")


def set_of(r, name, text):
    """A tokenized set of this text, in a folder of its own."""
    file, prefix = r.folder / name, r.folder / f"{name}-set" / "tokens"
    if not prefix.parent.exists():
        file.write_text(text)
        prefix.parent.mkdir()
        result = r.run([r.program, "data", "tokenize", str(file), "--data.tokenizer", "byte", "--output", str(prefix)])
        ring.require(result.code == 0, "a text is tokenized", str(result))
        file.unlink()
    return prefix


def long_set(r):
    """Its samples lie far from each other."""
    sentence = "the sea was calm and Anne walked to a window of her house\n"
    return set_of(r, "long.txt", sentence * ((48 << 20) // len(sentence)))


def slow_loader(r):
    """Each page of the data arrives 10 ms late, and nothing is read ahead. Then each page of a mask, which says what is
    learned, and which a step counts before it begins."""
    tokens = long_set(r)
    userfaultfd, user_mode_only = 323, 1  # x86-64's number
    probe = ctypes.CDLL(None).syscall(userfaultfd, user_mode_only)
    if probe < 0:
        return print("left out: a slow loader (the kernel has no userfaultfd for this user)")
    os.close(probe)

    def run(out, tokens, slow, workers):
        command = r.command(out, model=MODEL, **(GOOD | {"data__train_data_path": tokens, "data__num_workers": workers}))
        slowly = ring.environment(LD_PRELOAD=r.slow_loader, SLOW_LOADER=str(tokens.with_suffix(slow)))
        return report_of(r, out, r.run(command, timeout=240, env=slowly))

    reports = [run(out, tokens, ".bin", workers) for out, workers in (("loader", 0), ("workers", 1))]
    finding = names_first(reports[0], "data", "loader")
    ring.check("--data.num_workers 1" in finding["advice"], "loader: the advice prepares batches beside training", str(finding))
    won_half(*reports, "data")
    chat = json.dumps({"instruction": "Was the sea calm?", "output": "It was, and Anne walked to a window of her house. " * 3}) + "\n"
    names_first(run("masks", set_of(r, "chat.jsonl", chat * 20_000), ".mask", 1), "data", "masks")


def slow_disk(r):
    """A disk of 30 reads a second."""
    tokens = long_set(r)
    if why := cgroups.why_not("blkio"):
        return print(f"left out: a slow disk ({why})")
    with contextlib.ExitStack() as stack:
        try:
            device = stack.enter_context(cgroups.loop_device(r.folder, 2 * sum(file.stat().st_size for file in tokens.parent.iterdir()) >> 20))
            cgroups.run("mke2fs", "-q", device)
            with cgroups.mounted(device, r.folder / "disk") as folder:
                cgroups.run("cp", "-r", str(tokens.parent), str(folder))
            folder = stack.enter_context(cgroups.mounted(device, r.folder / "disk"))  # nothing of it is in memory
            group = stack.enter_context(cgroups.group("blkio"))
            cgroups.limit_reads(group, device, 30)
        except (OSError, subprocess.CalledProcessError) as error:
            return print(f"left out: a slow disk ({error}; {getattr(error, 'stderr', '')})")
        command = r.command("disk", model=MODEL, **(GOOD | {"data__train_data_path": folder / tokens.parent.name / tokens.name, "out_dir": r.folder / "disk-run"}))
        before = report_of(r, "disk-run", r.run(cgroups.inside(group[0], command), timeout=240))
    finding = names_first(before, "disk", "disk")
    ring.check("copy the data to a local disk" in finding["advice"], "disk: the advice takes another disk", str(finding))
    after = profiled(r, "other-disk", data__train_data_path=tokens)
    won_half(before, after, "disk")


def anonymous_mebibytes(pid):
    [kib] = [int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon:")]
    return kib >> 10


def swapping(r):
    """Half of the memory that the run has at first; the rest is in swap space, and not all of it at rest there."""
    if why := cgroups.why_not("memory"):
        return print(f"left out: swapping ({why})")
    limits = []  # the first run's, for both
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(cgroups.swap_space(r.folder, 2048))
        except (OSError, subprocess.CalledProcessError) as error:
            return print(f"left out: swapping ({error}; {getattr(error, 'stderr', '')})")

        def run(out, **settings):
            with cgroups.group("memory") as group:
                def limit():
                    [rank] = r.processes()
                    limits.append(anonymous_mebibytes(rank) // 2)
                    os.kill(rank, signal.SIGSTOP)  # the kernel takes no page that is used at the moment
                    cgroups.limit_memory(group, limits[0])
                    os.kill(rank, signal.SIGCONT)
                    return lambda: None

                return while_it_runs(r, out, cgroups.inside(group[0], r.command(out, model=MODEL, **(GOOD | settings))), limit)

        before = run("swapping", train__micro_batch_size=16)
        names_first(before, "swapping", "swapping")
        won_half(before, run("less-memory", train__micro_batch_size=4), "swapping")


def slow_link(r):
    """Two hosts on a cable of 20 Mbit/s."""
    if why := namespaces.why_not():
        return print(f"left out: a slow link ({why})")
    addresses, port = ["10.77.34.1", "10.77.34.2"], 29734
    with namespaces.namespaces(2) as names, namespaces.cable(names, addresses) as ends:
        for name, end in zip(names, ends):
            namespaces.slow_down(name, end, "20mbit")

        def together(out, **settings):
            jobs = []
            for node, name in enumerate(names):
                command = r.command(out, model=MODEL, **(GOOD | {"num_nodes": 2, "launch__node_rank": node, "launch__master_addr": addresses[0],
                                                                 "launch__master_port": port, "devices": 1} | settings))
                jobs.append(subprocess.Popen(["ip", "netns", "exec", name, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                             cwd=r.folder, env=ring.environment(TRIREME_HOST_ID=name)))
            ring.require(namespaces.wait_for_all(jobs, 400) == [0, 0], f"{out} runs on two hosts")
            return json.loads((r.folder / out / "profile.json").read_text())

        before = together("link")
        finding = names_first(before, "communication", "link")
        ring.check("--train.micro_batch_size" in finding["advice"], "link: gradients are sent for each micro-batch, so the advice is a larger one", str(finding))
        after = together("larger-micro-batches", train__micro_batch_size=16, train__global_batch_size=64)
    won_half(before, after, "communication")


ALONE = [evaluation, recomputation, few_tokens, unequal_stages, too_many_threads, neighbour, throttled_rank, unpinned_ranks, slow_link, swapping, slow_loader,
         slow_disk]

with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("times")
    r.slow_loader = os.path.abspath(sys.argv[2])
    if asked := sys.argv[3:]:
        ALONE = [case for case in ALONE if case.__name__ in asked]
    else:
        is_complete(r)
        memory_is_the_kernels(r)
        saves(r)
    if SLOW:  # these need a machine that does nothing else
        for case in ALONE:
            case(r)
