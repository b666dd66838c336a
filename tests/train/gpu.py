"""A run on a GPU: the losses of the CPU's run, checkpoints that either goes on from, the plan that was printed.

gpu.py TRIREME [PROBE]. Without a GPU only what is refused there is judged.
"""

import pathlib
import signal
import sys
import time

import ring


def refused(r, sentence, expected, **settings):
    result = r.run(r.command("refused", **settings))
    ring.check(result.code == 2 and expected in result.text, sentence, str(result))
    ring.check(not (r.folder / "refused").exists(), f"{sentence}: nothing is written")


def is_refused(r, has_gpu):
    gpu = {"accelerator": "cuda"}
    refused(r, "shared memory between GPUs is refused", "backend shm cannot read a GPU's memory", **gpu, devices=2, comm__backend="shm")
    refused(r, "poison on a GPU is refused", "a GPU's memory cannot be poisoned", **gpu, engine__poison="true")
    result = r.run([r.program, "bench", "gemm", "--accelerator", "cuda"])
    ring.check(result.code == 2 and "computes on the CPU only" in result.text, "bench gemm on a GPU is refused", str(result))
    if not has_gpu:
        refused(r, "a machine without a GPU is told", "needs an NVIDIA GPU, and this machine has none", **gpu)


def worst_difference(have, want):
    return max(abs(have[step]["loss"] - want[step]["loss"]) / want[step]["loss"] for step in want)


def equals_the_cpu(r):
    for model, name in ((ring.LLAMA, "llama"), (ring.GPT2, "gpt2")):
        for precision, bound in (("32-true", 1e-5), ("bf16-mixed", 5e-3)):
            runs = [r.train(f"{name}-{precision}-{where}", model=model, accelerator=where, precision=precision) for where in ("cpu", "cuda")]
            cpu, gpu = (ring.metrics(run) for run in runs)
            worst = worst_difference(gpu, cpu)
            ring.check(sorted(gpu) == sorted(cpu) and worst <= bound, f"{name}, {precision}: losses of ten steps within {worst:.1e} of the CPU's")


def goes_on_elsewhere(r):
    unbroken = r.train("unbroken", accelerator="cuda", train__max_steps=12, train__save_interval=6)
    half = unbroken / "step-00000006"
    again = r.train("again", accelerator="cuda", train__max_steps=12, resume=half)
    rows = ring.metrics(unbroken)
    ring.check(ring.metrics(again)[12]["loss"] == rows[12]["loss"], "a run that goes on on the GPU gives the unbroken run's loss, bit for bit")
    end, goal = (ring.tensors(run / "step-00000012") for run in (again, unbroken))
    ring.check(all(end[n].tobytes() == goal[n].tobytes() for n in goal), "and ends in its bits")
    on_cpu = r.train("on-cpu", devices=2, train__max_steps=12, resume=half)
    worst = worst_difference(ring.metrics(on_cpu), {step: rows[step] for step in range(7, 13)})
    ring.check(worst <= 1e-4, f"two ranks on the CPU go on from the GPU's checkpoint: losses within {worst:.1e}")
    back = r.train("back", accelerator="cuda", train__max_steps=14, resume=on_cpu / "step-00000012")
    ring.check(sorted(ring.metrics(back)) == [13, 14], "and the GPU from theirs")
    beside = r.train("beside", accelerator="cuda", train__max_steps=12, train__save_interval=3, save__mode="async")
    ring.check(ring.tensors(beside / "step-00000012").keys() == goal.keys() and
               all(v.tobytes() == goal[n].tobytes() for n, v in ring.tensors(beside / "step-00000012").items()), "saves beside training change no bit")


def stops_when_asked(r):
    run = r.start(r.command("stopped", accelerator="cuda", train__max_steps=100000))
    ring.wait_for(lambda: (r.folder / "stopped" / "metrics.jsonl").exists(), "a first step")
    time.sleep(1)
    run.send_signal(signal.SIGTERM)
    result = r.finish(run)
    ring.check(result.code == 75 and ring.step_folders(r.folder / "stopped"), "a run on the GPU that is asked to stop saves and gives 75", str(result))


def keeps_to_the_plan(r):
    result = r.run(r.command("planned", accelerator="cuda", train__max_steps=2))
    line = next((line for line in result.out.splitlines() if line.startswith("memory")), "")
    explained = r.run([word if word != "pretrain" else "explain" for word in r.command("explained", accelerator="cuda")][:2] + ["memory"] +
                      r.command("explained", accelerator="cuda")[2:])
    ring.check(result.code == 0 and "MiB a rank planned" in line, f"the run says what it planned: {line}", str(result))
    ring.check(explained.code == 0, "explain memory plans it without touching the GPU", str(explained))
    too_many = r.run(r.command("too-many", accelerator="cuda", devices=64))
    ring.check(too_many.code == 2 and "64 ranks need a GPU each, and this machine has" in too_many.text, "more ranks than GPUs are refused", str(too_many))


def main():
    has_gpu = pathlib.Path("/dev/nvidia0").exists()
    with ring.Ring(sys.argv[1]) as r:
        is_refused(r, has_gpu)
        if not has_gpu:
            return
        equals_the_cpu(r)
        goes_on_elsewhere(r)
        stops_when_asked(r)
        keeps_to_the_plan(r)


main()
