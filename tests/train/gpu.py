"""A run on a GPU: the losses of the CPU's run, checkpoints that either goes on from, the plan that was printed.

gpu.py TRIREME [PROBE]. Without a GPU only what is refused there is judged, which is told before a GPU is looked for.
"""

import json
import pathlib
import signal
import sys
import time

import ring


def refused(r, sentence, expected, **settings):
    result = r.run(r.command("refused", **settings))
    ring.check(result.code == 2 and expected in result.text, sentence, str(result))
    ring.check(not (r.folder / "refused").exists(), f"{sentence}: nothing is written")


LORA = {"lora__r": 4, "lora__dropout": 0}
REFUSED = [
    ("shared memory between GPUs", "backend shm cannot read a GPU's memory", {"devices": 2, "comm__backend": "shm"}),
    ("compressed messages", "messages between GPUs are not compressed", {"devices": 2, "comm__compression": "bf16"}),
    ("encrypted messages", "messages between GPUs are not encrypted", {"devices": 2, "comm__tls": "true"}),
    ("poison", "a GPU's memory cannot be poisoned", {"engine__poison": "true"}),
    ("graphs of ranks that meet inside units", "engine.cuda_graph needs mesh.tp 1 and mesh.cp 1",
     {"devices": 2, "mesh__tp": 2, "engine__cuda_graph": "true"}),
    ("float16", "precision 16-mixed is not built for GPUs yet", {"precision": "16-mixed"}),
    ("weights of two bytes", "precision bf16-true is not built for GPUs yet", {"precision": "bf16-true"}),
    ("gradients in other dtypes", "a GPU's gradients travel in the dtype of its units", {"precision": "bf16-mixed", "precision__reduce": "fp32"}),
    ("moments of 8 bits", "the optimizer AdamW8bit computes on processors only", {"optimizer": "AdamW8bit"}),
    ("Muon", "the optimizer Muon computes on processors only", {"optimizer": "Muon"}),
    ("moments on a disk", "a GPU's values leave to host memory, not to a disk", {"offload__optimizer": "disk"}),
    ("what fits with a disk alone", "GPUs cannot use a disk, and ", {"offload__fit": "1700KiB"}),
    ("sample replies", "sample replies are written on processors only", {"eval__max_new_tokens": 8}),
    ("heads of 320", "a GPU's are of at most 256", {"model__head_dim": 320}),
    ("dropout", "dropout (0.1 of attention weights) is computed on the CPU only", {"model__attention_dropout": 0.1}),
    ("noise on embeddings", "noise on embeddings is computed on the CPU only", {"objective__neftune_alpha": 5}),
    ("label smoothing", "label smoothing and z-loss (objective.*) compute on processors only", {"objective__label_smoothing": 0.1}),
    ("the z-loss", "label smoothing and z-loss (objective.*) compute on processors only", {"objective__z_loss": 1e-4}),
    ("the exact GELU", "the exact GELU or ReLU compute on the CPU only", {"model__model_type": "gpt_neox", "model__num_key_value_heads": 4}),
    ("norms over all heads", "norms over all heads compute on the CPU only", {"model__model_type": "olmo2"}),
    ("a Free Transformer", "a Free Transformer computes on processors only", {"free__latent_bits": 6}),
    ("dropout of adapters", "dropout of adapters is computed on the CPU only", LORA | {"lora__dropout": 0.1}),
    ("DoRA", "magnitudes of adapters (DoRA) are computed on the CPU only", LORA | {"lora__dora": "true"}),
    ("an adapter of the embedding", "an adapter of the embedding is computed on the CPU only", LORA | {"lora__target_modules": "[embed_tokens]"}),
    ("a base in few bits", "weights in blocks are multiplied on processors only", LORA | {"quantize": "q8_0"}),
]


def is_refused(r, has_gpu):
    for what, sentence, settings in REFUSED:
        refused(r, f"{what}: refused on a GPU", sentence, accelerator="cuda", **settings)
    for words in (["bench", "gemm"], ["bench", "generate"], ["generate", "nothing"], ["evaluate", "nothing"]):
        result = r.run([r.program, *words, "--accelerator", "cuda"])
        ring.check(result.code == 2 and "computes on the CPU only" in result.text, f"{' '.join(words)}: refused on a GPU", str(result))
    others_are_refused(r)
    refused(r, "graphs on a processor", "processors have no CUDA graphs", engine__cuda_graph="true")
    if not has_gpu:
        refused(r, "a machine without a GPU is told", "needs an NVIDIA GPU, and this machine has none", accelerator="cuda")


def others_are_refused(r):
    """Other kinds of learning."""
    write_lines(r.folder / "labels.jsonl", [{"text": f"a text {i}", "label": "ab"[i % 2]} for i in range(40)])
    write_lines(r.folder / "pairs.jsonl", [{"prompt": f"say {i}", "chosen": "yes", "rejected": "no"} for i in range(40)])
    write_lines(r.folder / "prompts.jsonl", [{"prompt": f"{i} + 1 =", "answer": str(i + 1)} for i in range(40)])
    data = {"accelerator": "cuda", "data": "JSON"}
    refused(r, "labels of texts: refused on a GPU", "a model that classifies texts computes on processors only", **data, task="classify",
            data__train_data_path=r.folder / "labels.jsonl")
    refused(r, "pairs of replies: refused on a GPU", "learning from pairs (dpo.*) computes on processors only", **data, task="preferences",
            data__train_data_path=r.folder / "pairs.jsonl", data__packing="none", train__max_seq_length=64)
    result = r.run([r.program, "grpo", "llama-5m", "--accelerator", "cuda", "--grpo.prompts", r.folder / "prompts.jsonl", "--reward.functions", "[exact]"])
    ring.check(result.code == 2 and "learning from rewards computes on processors only" in result.text, "rewards: refused on a GPU", str(result))


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


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


def launches_graphs(r):
    """A step launched as CUDA graphs: the bits of single launches, with several micro-batches, checkpoints and evaluations between."""
    for precision in ("32-true", "bf16-mixed"):
        settings = {"accelerator": "cuda", "precision": precision, "train__micro_batch_size": 4, "train__save_interval": 5, "eval__interval": 4}
        goal = ring.tensors(r.train(f"single-{precision}", **settings) / "step-00000010")
        result = r.run(r.command(f"graphs-{precision}", **settings, engine__cuda_graph="true"))
        ring.require(result.code == 0, f"{precision}: a run of CUDA graphs succeeds", str(result))
        end = ring.tensors(r.folder / f"graphs-{precision}" / "step-00000010")
        ring.check(all(end[n].tobytes() == goal[n].tobytes() for n in goal), f"{precision}: ten steps as CUDA graphs have the bits of single launches")
        ring.check("cannot be a CUDA graph" not in result.text, f"{precision}: every part became a graph", str(result))


def holds_an_odd_vocabulary(r):
    """A GPU's tables have rows of padding, which are in no file."""
    odd = ring.GPT2 | {"vocab_size": 259}
    cpu, gpu = (r.train(f"odd-{where}", model=odd, accelerator=where, train__save_interval=5) for where in ("cpu", "cuda"))
    worst = worst_difference(ring.metrics(gpu), ring.metrics(cpu))
    ring.check(worst <= 1e-5, f"a vocabulary of 259: losses of ten steps within {worst:.1e} of the CPU's")
    shapes = [{name: value.shape for name, value in ring.tensors(run / "step-00000010").items()} for run in (cpu, gpu)]
    ring.check(shapes[0] == shapes[1], "and its checkpoint has the CPU's tensors")
    rest = r.train("odd-rest", model=odd, devices=2, resume=gpu / "step-00000005")
    worst = worst_difference(ring.metrics(rest), {step: ring.metrics(gpu)[step] for step in range(6, 11)})
    ring.check(worst <= 1e-5, f"from which two ranks on the CPU go on: losses within {worst:.1e}")


def tunes(r):
    """Conversations, with all weights and with adapters beside a frozen base, whose checkpoint holds the base."""
    write_lines(r.folder / "chat.jsonl", [{"messages": [{"role": "user", "content": f"word {i}?"}, {"role": "assistant", "content": "a" * (3 + i % 9)}]}
                                          for i in range(80)])
    base = r.train("base", model=ring.LLAMA | {"max_position_embeddings": 320}, accelerator="cuda", train__max_steps=2) / "step-00000002"
    chat = ["--data", "JSON", "--data.train_data_path", r.folder / "chat.jsonl", "--data.chat_template", "alpaca", "--train.max_seq_length", 320,
            "--train.global_batch_size", 8, "--train.micro_batch_size", 2, "--train.max_steps", 6, "--precision", "32-true", "--devices", 1,
            "--eval.final_validation", "true", "--launch.threads_per_rank", 1]
    adapters = ["--lora.r", 4, "--lora.dropout", 0, "--lora.init", "random", "--lora.head", "true", "--checkpoint.base", "copy"]
    for subcommand, words in (("finetune_full", []), ("finetune_lora", adapters)):
        losses = {}
        for where in ("cpu", "cuda"):
            result = r.run([str(word) for word in [r.program, subcommand, base, "--out_dir", f"{subcommand}-{where}", "--accelerator", where, *chat, *words]])
            ring.require(result.code == 0, f"{subcommand} on {where} succeeds", str(result))
            losses[where] = ring.metrics(r.folder / f"{subcommand}-{where}")
        worst = worst_difference(losses["cuda"], losses["cpu"])
        ring.check(worst <= 1e-5, f"{subcommand} of conversations: losses within {worst:.1e} of the CPU's")
    result = r.run([r.program, "generate", "finetune_lora-cuda", "--prompt", "word", "--max_new_tokens", "4", "--temperature", "0"])
    ring.check(result.code == 0, "a processor writes text with what the GPU has learned", str(result))


def rests_in_host_memory(r):
    """Moments, masters and gradients of the GPU in page-locked memory: the bits of a run without, also behind a resume."""
    settings = {"accelerator": "cuda", "precision": "bf16-mixed", "train__max_steps": 12, "train__save_interval": 6}
    away = {"offload__optimizer": "cpu", "offload__master": "cpu", "offload__gradients": "cpu"}
    plain, rests = r.train("stays", **settings), r.train("rests", **settings, **away, save__mode="async")
    ring.check([row["loss"] for row in ring.metrics(rests).values()] == [row["loss"] for row in ring.metrics(plain).values()],
               "state in host memory: the losses of a run without")
    goal = ring.tensors(plain / "step-00000012")
    for what, run in (("a run with state in host memory", rests), ("one that goes on from it", r.train("goes-on", **settings, **away, resume=rests / "step-00000006"))):
        end = ring.tensors(run / "step-00000012")
        ring.check(all(end[n].tobytes() == goal[n].tobytes() for n in goal), f"{what} ends in the same bits")


def is_measured(r):
    home = {"env": ring.environment(XDG_CONFIG_HOME=str(r.folder))}
    for words in (["train", "llama-5m", "--bench.operations", "true"], ["calibrate", "--bench.quick", "true", "--hardware", str(r.folder / "trireme/gpu.yaml")]):
        result = r.run([r.program, "bench", *words, "--accelerator", "cuda", "--out_dir", "bench"], **home)
        ring.check(result.code == 0, f"bench {words[0]} measures a GPU", str(result))
    result = r.run(r.command("profiled", accelerator="cuda", train__max_steps=13, profile="true", profile__steps=8,
                             profile__schedule="timeline.svg", predict="true"), **home)
    ring.check(result.code == 0 and (r.folder / "profiled/profile.json").exists(), "--profile and --predict measure a run on a GPU", str(result))


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
        launches_graphs(r)
        holds_an_odd_vocabulary(r)
        tunes(r)
        rests_in_host_memory(r)
        is_measured(r)
        stops_when_asked(r)
        keeps_to_the_plan(r)


main()
