"""--profile names a bottleneck that was made, its figures add up, and following its advice helps.

bottlenecks.py TRIREME
"""

import contextlib
import json
import os
import subprocess
import sys

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


def is_complete(r):
    report = profiled(r, "plain", devices=2)
    ring.check(report["steps"] == 8 and report["first_step"] == 4, "eight steps are measured, from the fourth on", json.dumps(report))
    ring.check([row["rank"] for row in report["ranks"]] == [0, 1], "every rank is measured", json.dumps(report["ranks"]))
    trace = json.loads((r.folder / "plain/profile.trace.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    ring.check({event["pid"] for event in events if event.get("ph") == "X"} == {0, 1}, "the trace has both ranks")
    short = r.run(r.command("short", model=MODEL, **(GOOD | {"train__max_steps": 3})))
    ring.check(short.code == 0 and "too few steps to measure" in short.out, "a run of three steps says that they warm up", str(short))
    cut = profiled(r, "cut", train__max_steps=6)
    ring.check(cut["steps"] == 3, "a window that the run cuts short is reported at the end", json.dumps(cut))
    refused = r.run([r.program, "bench", "train", "llama-5m", "--profile"])
    ring.check(refused.code == 2 and "bench times its steps anyway" in refused.text, "bench refuses it", str(refused))


def saves(r):
    before = profiled(r, "saves", train__save_interval=1)
    names_first(before, "saves", "saves")
    helps(before, profiled(r, "fewer-saves", train__save_interval=10), "saves")


def evaluation(r):
    before = profiled(r, "evaluation", eval__interval=1, eval__max_iters=16)
    names_first(before, "evaluation", "evaluation")
    helps(before, profiled(r, "less-evaluation", eval__interval=10, eval__max_iters=16), "evaluation")


def recomputation(r):
    names_first(profiled(r, "recompute", recompute="full"), "recompute", "recompute")


def few_tokens(r):
    names_first(profiled(r, "few", train__max_seq_length=32, train__micro_batch_size=1, train__global_batch_size=2, devices=2), "small micro-batch", "few tokens")


def unequal_stages(r):
    report = profiled(r, "stages", devices=2, mesh__pp=2, train__global_batch_size=32, pipeline__split="[5, 1]")
    names_first(report, "stages", "stages")


def too_many_threads(r):
    if os.cpu_count() > 4:
        return
    names_first(profiled(r, "threads", devices=2, launch__threads_per_rank=2 * os.cpu_count(), launch__oversubscribe="true"), "threads", "threads")


@contextlib.contextmanager
def busy_core():
    """Two busy loops on the core of the last rank."""
    core = max(os.sched_getaffinity(0))
    loops = [subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def neighbour(r):
    """The last rank computes longer, and the other waits."""
    with busy_core():
        report = profiled(r, "neighbour", devices=2)
    finding = names_first(report, "slow rank", "neighbour")
    ring.check("another program" in finding["advice"], "neighbour: the advice names another program", json.dumps(report, indent=1))


def is_named_while_it_runs(r):
    """A rank beside two busy loops is named after 20 steps, once; without them none is."""
    with busy_core():
        crowded = r.run(r.command("crowded", model=MODEL, **(GOOD | {"devices": 2, "train__max_steps": 45, "profile": "false"})))
    ring.check(crowded.code == 0 and crowded.out.count("slow     rank 1 computed") == 1, "a slow rank is named once", str(crowded))


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("times")
    is_complete(r)
    saves(r)
    if SLOW:  # the others need a machine that does nothing else
        evaluation(r)
        recomputation(r)
        few_tokens(r)
        unequal_stages(r)
        too_many_threads(r)
        neighbour(r)
        is_named_while_it_runs(r)
