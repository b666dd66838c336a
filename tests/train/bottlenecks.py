"""--profile names a bottleneck that was made, its figures add up, and following its advice helps.

bottlenecks.py TRIREME
"""

import json
import os
import subprocess
import sys

import namespaces
import ring

SLOW = os.environ.get("TRIREME_SLOW") == "1"
MODEL = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
         "vocab_size": 256, "max_position_embeddings": 256}
GOOD = {"train__max_seq_length": 256, "train__micro_batch_size": 4, "train__global_batch_size": 16, "train__max_steps": 13, "profile": "true",
        "profile__steps": 8, "eval__interval": 1000}


def profiled(r, out, **settings):
    result = r.run(r.command(out, model=MODEL, **(GOOD | settings)), timeout=240)
    ring.require(result.code == 0, f"{out} runs", str(result))
    report = json.loads((r.folder / out / "profile.json").read_text())
    step, parts = report["step_seconds"], sum(report["phases"].values())
    ring.check(abs(parts - step) <= 0.02 * step, f"{out}: phases add up to the step within 2 %", f"{parts} of {step}")
    ring.check((r.folder / out / "profile.txt").read_text() in result.out, f"{out}: the report that was printed is in profile.txt", str(result))
    return report


def names_first(report, expected, out):
    """Beside other tests, only that it is named: they take cores, too."""
    causes = [finding["cause"] for finding in report["findings"]]
    ring.check(expected in causes[:1 if SLOW else None], f"{out}: {expected} is named{' first' if SLOW else ''}", json.dumps(report["findings"], indent=1))
    return report["findings"][0] if causes else {"share": 0}


def helps(before, after, phase):
    """Steps themselves vary with the machine's other work, so the phase is compared."""
    lost, still = before["phases"][phase], after["phases"][phase]
    ring.check(still <= 0.5 * lost, f"{phase}: the advice wins at least half of what was lost", f"{still:.4f} of {lost:.4f} s a step")


def lost(report, cause):
    """Seconds a token that a cause takes; 0 if it is not found any more."""
    return sum(f["share"] for f in report["findings"] if f["cause"] == cause) / report["tokens_per_second"]


def advice_helps(r, before, out, cause, **settings):
    """With the advice followed, at least half of what the cause took is won: of its own time, and of the time of a token."""
    after = profiled(r, out, **settings)
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
    short = r.run(r.command("short", model=MODEL, **(GOOD | {"train__max_steps": 3})))
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
            ring.require(namespaces.wait_for_all(jobs, 200) == [0, 0], f"{out} runs on two hosts")
            return json.loads((r.folder / out / "profile.json").read_text())

        before = together("link")
        names_first(before, "communication", "link")
        after = together("larger-steps", train__global_batch_size=64)
    ring.check(lost(after, "communication") <= 0.5 * lost(before, "communication"), "communication: the advice wins at least half of what was lost",
               f"{before['findings']}\n{after['findings']}")


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("times")
    is_complete(r)
    memory_is_the_kernels(r)
    saves(r)
    if SLOW:  # the others need a machine that does nothing else
        evaluation(r)
        recomputation(r)
        few_tokens(r)
        unequal_stages(r)
        too_many_threads(r)
        neighbour(r)
        slow_link(r)
