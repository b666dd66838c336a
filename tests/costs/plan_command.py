"""trireme plan, bench calibrate and --predict as a user meets them: figures, refusals in one sentence, and the page docs/planning.md.

plan_command.py TRIREME
"""

import csv
import json
import os
import pathlib
import re
import shlex
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(FOLDER.parent / "train"))
import ring  # noqa: E402

TINY = ["llama-5m", *(f"--model.{key}={value}" for key, value in ring.LLAMA.items()), "--model.vocab_size=256"]
SMALL = ["llama-5m", "--train.max_seq_length", "64", "--train.micro_batch_size", "4"]


def plan(r, *words, **environment):
    return r.run([r.program, "plan", *map(str, words)], env=ring.environment(**environment), timeout=120)


def figures(r, *words):
    path = r.folder / "plan.json"
    result = plan(r, *words, "--json", path)
    ring.require(result.code == 0, f"plan {' '.join(map(str, words))} succeeds", str(result))
    return json.loads(path.read_text()), result.out


def processors(r):
    """A file of hardware whose ranks are processors."""
    path = r.folder / "cores.yaml"
    path.write_text("name: cores\nmemory: 16\nmemory_rate: 20\npeak: {fp32: 0.1}\nhost: {memory: 16}\nshares_cores: true\n")
    return path


def money_and_time(r):
    found, text = figures(r, *SMALL, "--cluster", "2x4xA100-80", "--tokens", "1e9", "--price", "3", "--explain")
    ring.check(found["ranks"] == 8 and found["memory_bytes"] < found["room_bytes"] and "; fits:" in text, "8 ranks on two machines fit", text)
    ring.check(abs(sum(found["causes_seconds"].values()) / found["step_seconds"] - 1) < 1e-6, "the step is the sum of its causes")
    again = figures(r, *SMALL, "--cluster", "2x4xA100-80", "--tokens", "1B", "--price", "3", "--explain")[1]
    ring.check(again == text, "1B tokens are 1e9", again)
    hours = 1e9 / found["tokens_per_second"] / 3600
    cost = float(re.search(r"cost ([\d.,]+) USD", text).group(1).replace(",", ""))
    ring.check(abs(cost / (hours * 8 * 3) - 1) < 0.01, f"{cost} USD are the hours of 8 devices at 3 USD", text)
    ring.check(all(word in text for word in ("16 N =", "18 N =", "s b h (34 + 5 a s / h)", "6 N D", "Chinchilla", "ring of 8", "ZeRO")), "the arithmetic is printed", text)


def adds_up(r):
    """Rows of memory are the whole, and sums that no whole number holds are printed as powers of ten."""
    for words in (["llama-3-8b", "--cluster", "8xH100"], ["llama-2-7b", "--cluster", "2xRTX-4090", "--lora.r", "8"]):
        _, text = figures(r, *words)
        whole = float(re.search(r"^memory +([\d.]+) GB", text, re.M).group(1))
        rows = [float(row) for row in re.findall(r"^  .* ([\d.]+) GB$", text, re.M)]
        ring.check(abs(sum(rows) - whole) <= 0.005 * (len(rows) + 1) + 0.005 and "\n  others " in text, f"{len(rows)} rows of memory add up to {whole} GB", text)
    _, text = figures(r, *SMALL, "--cluster", "8xA100-40", "--tokens", "1e30", "--explain")
    ring.check("tokens   1e+30 tokens take " in text and re.search(r"cost [\d.]+e\+\d+ USD", text), "a cost of 1e30 tokens is a number", text)
    _, text = figures(r, "llama-3-8b", "--cluster", "8xH100", "--recompute", "full")
    ring.check(re.search(r"^peak +[\d.]+ % of 989.4 TFLOP/s a rank by the model's own operations, [\d.]+ % with recomputation$", text, re.M), "the peak is named once", text)


def says_what_to_try(r):
    """Where it does not fit, the next steps; examples of help do fit."""
    _, text = figures(r, "llama-3-8b", "--cluster", "8xH100")
    tried = "try      --train.micro_batch_size 1, --recompute full, --offload.optimizer cpu, --offload.parameters cpu, --mesh.tp 8, adapters (--lora.r 8 --lora.dropout 0), shorter sequences (--train.max_seq_length) or more devices (--cluster)\n"
    ring.check("does NOT fit" in text and tried in text, "a plan that does not fit says what to try", text)
    _, text = figures(r, "llama-3-70b", "--cluster", "8xA100-40", "--train.micro_batch_size", "1", "--recompute", "full", "--strategy", "no_shard", "--lora.r", "8")
    tried = re.search(r"^try      (.*)$", text, re.M)
    ring.check(tried and tried[1].startswith("--strategy full_shard, ") and "micro_batch" not in tried[1] and "lora" not in tried[1], "what is done already is not named", text)
    _, text = figures(r, "llama-3-8b", "--cluster", "1xA10", "--train.micro_batch_size", "1", "--recompute", "full", "--offload.optimizer", "cpu", "--offload.parameters", "cpu")
    tried = re.search(r"^try      (.*)$", text, re.M)
    ring.check(tried and "offload" not in tried[1] and "mesh" not in tried[1], "nor is what one device cannot do", text)
    for what, least in (("micro_batch", "train.micro_batch_size fits, not even 1"), ("sequence", "train.max_seq_length fits, not even 256")):
        _, text = figures(r, "llama-3-70b", "--cluster", "8xA100-40", "--fit", what)
        ring.check(f"fit      no {least}; try " in text and "fits is" not in text and "\ntry " not in text, f"--fit {what} says that nothing fits, and what to try", text)
        ring.check(("shorter sequences" in text) == (what == "micro_batch"), f"shorter sequences are no advice where none fits: {what}", text)
    pages = r.run([r.program, "plan", "--help"]).out + r.run([r.program, "--help"]).out
    examples = [line.split() for line in re.findall(r"trireme plan (\S+ --cluster .*)$", pages, re.M) if "this" not in line]
    ring.require(len(examples) == 4, "help has examples", str(examples))
    for words in examples:
        result = plan(r, *words)
        ring.check(result.code == 0 and "; fits: " in result.out, f"help's example fits: plan {' '.join(words)}", str(result))


def explains_adapters_and_rings(r):
    """By hand: frozen weights need neither gradients nor states, and a ring has the link of its own ranks."""
    _, text = figures(r, *SMALL, "--cluster", "2x4xA100-80", "--lora.r", "8", "--tokens", "1e9", "--explain")
    ring.check(all(word in text for word in ("6 x trained + 4 x frozen = ", "; times D = ", "16 x trained over 8 ranks")) and "Chinchilla" not in text, "adapters count what is trained", text)
    trained = float(re.search(r"adapters      ([\d.]+) K are trained", text).group(1)) * 1e3
    sent = float(re.search(r"\(N - 1\) / N x ([\d.e-]+) GB", text).group(1)) * 1e9
    ring.check(abs(sent / (2 * trained) - 1) < 0.01, "gradients of the trained parameters travel", text)
    for more, rate in (([], "/ 100 GB/s"), (["--mesh.tp", "4"], "/ 25 GB/s"), (["--mesh.pp", "2"], "/ 300 GB/s")):
        _, text = figures(r, *SMALL, "--cluster", "2x4xA100-80", *more, "--explain")
        [line] = [row for row in text.splitlines() if row.startswith("  all-reduce")]
        ring.check(rate in line, f"the ring with {more} is of its ranks' link", line)


def explains_a_rank_of_a_mesh(r):
    """Lines of a rank say what it has of a model that other axes divide: stages, matrices, tokens."""
    def by_hand(*mesh):
        text = figures(r, *SMALL, "--cluster", "2x4xA100-80", *mesh, "--explain")[1]
        stage0 = re.search(r"^  ZeRO .* stage 0 ([\d.e-]+) GB", text, re.M)
        layer = re.search(r"a layer of GPT = ([\d.e-]+) GB", text)
        tokens = re.search(r"; here (\d+)$", text, re.M)
        return [float(found.group(1)) for found in (stage0, layer, tokens)], text
    (states, layer, tokens), text = by_hand()
    ring.check("18 N = " in text and "what Trireme does in bf16-mixed with AdamW\n" in text, "18 bytes are those of a format and an optimizer", text)
    for mesh, parts in ((["--mesh.tp", "2"], (2, None, 1)), (["--mesh.pp", "2"], (2, 1, 1)), (["--mesh.cp", "2"], (1, 2, 2))):
        found, text = by_hand(*mesh)
        for own, whole, part, what in zip(found, (states, layer, tokens), parts, ("states", "activations", "tokens")):
            ring.check(part is None or abs(own * part / whole - 1) < 0.01, f"{what} of a rank with {mesh}", text)


def fits(r):
    """What --fit finds fits, and one more does not."""
    words = ["llama-3.2-1b", "--cluster", "1xA10", "--train.max_seq_length", "2048", "--recompute", "full"]
    _, text = figures(r, *words, "--fit", "micro_batch")
    most = int(re.search(r"train.micro_batch_size that fits is (\d+)", text).group(1))
    for size, expected in ((most, True), (most + 1, False)):
        found, _ = figures(r, *words, "--train.micro_batch_size", size, "--train.global_batch_size", size)
        ring.check((found["memory_bytes"] <= found["room_bytes"]) == expected, f"a micro-batch of {size} {'fits' if expected else 'does not fit'}")
    found, text = figures(r, *SMALL, "--cluster", "2xA10", "--train.global_batch_size", "12", "--fit", "micro_batch")
    ring.check("train.micro_batch_size that fits is 6; more would leave ranks idle\n" in text and "a step   12 sequences of 64 tokens, 6 at a time" in text, "--fit keeps the user's global batch", text)
    for batch, told in (([], "4,096, the largest that is looked at"), (["--train.global_batch_size", "12"], "12: a step has no more")):
        _, text = figures(r, *TINY, "--cluster", "1xH100", *batch, "--fit", "micro_batch")
        ring.check(f"train.micro_batch_size that fits is {told}\n" in text, f"where a search ends at no memory, it says so: {told}", text)
    _, text = figures(r, "llama-5m", "--cluster", "1xA10")
    ring.check(", 4 at a time on each rank" in text, "a plan has pretrain's default of train.micro_batch_size", text)
    result = plan(r, "llama-5m", "--model.max_position_embeddings", 128, "--cluster", "1xA10", "--fit", "sequence")
    ring.check(result.code == 0 and "train.max_seq_length that fits is 128\n" in result.out, "of a model with few positions the longest sequence is found", str(result))


def fits_past_refused_values(r):
    """What rules refuse, or offload.fit, ends no search: pieces of mesh.cp, whole rounds of a pipeline, memory that is given."""
    card = r.folder / "card.yaml"
    card.write_text("name: card\nmemory: 0.12\nreserved: 0.01\nmemory_rate: 1000\npeak: {fp32: 20, bf16: 100}\n"
                    "inside: {rate: 50, latency: 5}\nbetween: {rate: 10, latency: 10}\nhost: {memory: 2, rate: 20}\n")
    priced = r.folder / "priced.yaml"
    priced.write_text(card.read_text() + "price: {hour: 1}\n")
    for words in (["llama-3-8b", "--cluster", "8xH100", "--train.max_seq_length", "2048", "--mesh.pp", "4", "--pipeline.schedule", "interleaved_1f1b", "--recompute", "full",
                   "--fit", "micro_batch"],
                  ["llama-5m", "--cluster", f"3x{card}", "--model.max_position_embeddings", "3072", "--mesh.cp", "3", "--train.micro_batch_size", "1", "--fit", "sequence"],
                  ["llama-5m", "--cluster", f"1x{card}", "--train.max_seq_length", "256", "--offload.fit", "80MiB", "--offload.host", "1GiB", "--fit", "micro_batch"]):
        found, text = figures(r, *words)
        value = re.search(r"that fits is ([\d,]+)(?:; more would leave stages of the pipeline idle)?\n", text)
        ring.check(value and found["memory_bytes"] <= found["room_bytes"], f"--fit finds {value and value[1]}: {' '.join(words)}", text)
        ring.check("--mesh.cp" not in words or int(value[1].replace(",", "")) % 6 == 0, "a sequence in pieces for three ranks", text)
    ring.check("USD a device and hour (an example)\n" in figures(r, *SMALL, "--cluster", f"1x{priced}")[1], "a price without a date is an example")
    _, text = figures(r, "llama-5m", "--model.max_position_embeddings", "700", "--cluster", "1xA10", "--fit", "sequence")
    ring.check("train.max_seq_length that fits is 700\n" in text, "the model's end is looked at", text)
    told = plan(r, "llama-5m", "--cluster", f"1x{card}", "--train.max_seq_length", "256", "--offload.fit", "8MiB", "--offload.host", "1GiB", "--fit", "micro_batch")
    ring.check(told.code == 2 and "offload.fit 8.00 MiB: a rank needs " in told.err, "where even the least is refused, the refusal is told", str(told))


def keeps_stages_busy(r):
    """--fit micro_batch leaves each stage of a pipeline a micro-batch, with the default batch and with a given one."""
    for batch, most in (([], 8), (["--train.global_batch_size", 48], 6)):
        found, text = figures(r, "llama-5m", "--cluster", "8xH100", "--mesh.pp", 4, *batch, "--fit", "micro_batch")
        ring.check(f"train.micro_batch_size that fits is {most}; more would leave stages of the pipeline idle\n" in text and not any("fills with" in w for w in found["warnings"]),
                   f"a pipeline of 4 stages takes micro-batches of {most} {batch}", text)


def tells_its_batch(r):
    """A global batch that a run would not have is said, on the screen and in the JSON."""
    note = "note     train.global_batch_size is {} here, in whole micro-batches of {} on {} data-parallel ranks; a run has 64, unless you give it --train.global_batch_size {}, too\n"
    for words, size, micro, ranks in ((["--cluster", "1x7xH100"], 56, 4, 7), (["--cluster", "8xH100", "--train.micro_batch_size", 100], 800, 100, 8),
                                      (["--cluster", "2xA10", "--train.max_seq_length", 256, "--fit", "micro_batch"], None, None, 2)):
        found, text = figures(r, "llama-5m", *words)
        micro = micro or int(re.search(r"fits is ([\d,]+)", text)[1].replace(",", ""))
        size = size or 2 * micro
        ring.check(found["global_batch_size"] == size and note.format(size, micro, ranks, size) in text, f"the batch of a plan is told: {words}", text)
    for words in (["--cluster", "8xH100"], ["--cluster", "1x7xH100", "--train.global_batch_size", 56]):
        _, text = figures(r, "llama-5m", *words)
        ring.check("note     train.global_batch_size" not in text, f"a batch that a run has is not: {words}", text)


def huge_batches(r):
    """A micro-batch that no memory holds is planned in no time and no memory; its time is not predicted."""
    for words in (["llama-5m", "--train.micro_batch_size", "1e9"], ["llama-3.2-1b", "--train.micro_batch_size", "100000", "--train.max_seq_length", "2048"]):
        found, text = figures(r, *words, "--cluster", "8xH100")
        ring.check("does NOT fit" in text and "\ntry " in text and "\nstep     not predicted: micro-batches of " in text and found["fits"] is False
                   and found["step_seconds"] is None and found["causes_seconds"] is None, f"no time is predicted: {words}", text)
    result = plan(r, "llama-3-8b", "--cluster", "8xH100", "--train.micro_batch_size", "1e9")
    ring.check(result.code == 2 and "error: a micro-batch of 8,192,000,000,000 tokens is beyond any memory" in result.err, "what no number counts is refused", str(result))


def tells_whether_it_runs(r):
    """JSON has what the screen says: whether it fits, whether a run is refused, warnings."""
    found, _ = figures(r, *SMALL, "--cluster", "8xH100")
    ring.check(found["fits"] is True and found["refused"] is None and found["warnings"] == [], "a plan that fits and runs", str(found))
    for words, why in ((["--cluster", "1xMI300X"], "Trireme has no kernels for MI300X"), (["--cluster", "1xV100"], "Trireme has no kernels for V100"),
                       (["--cluster", "1xA10", "--precision", "fp8-mixed"], "A10 multiplies no numbers of 8 bits")):
        found, text = figures(r, *SMALL, *words)
        ring.check(why in found["refused"] and f"note     a run is refused today: {why}" in text, f"a run that is refused: {words}", text)
    unknown = r.folder / "unknown.yaml"
    unknown.write_text("name: unknown\nmemory_rate: 1000\npeak: {fp32: 20, bf16: 100}\nhost: {rate: 20}\n")
    found, _ = figures(r, *SMALL, "--train.global_batch_size", 6, "--train.micro_batch_size", 2, "--cluster", f"1x{unknown}")
    ring.check(found["fits"] is None, "what the hardware's file does not say is null", str(found))
    result = plan(r, *SMALL, "--cluster", f"1x{unknown}", "--precision", "64-true")
    ring.check(result.code == 2 and "the hardware unknown has no peak.fp64" in result.err, "float64 without a peak is refused", str(result))
    result = plan(r, *SMALL, "--cluster", "1xH100", "--offload.optimizer", "disk")
    ring.check(result.code == 2 and "a GPU's values leave to host memory, not to a disk" in result.err, "a disk of GPUs is refused with the way out", str(result))


def explains_generation(r):
    """explain generate counts generate.max_new_tokens, and refuses GPUs as generate does."""
    def shown(*words):
        return r.run([r.program, "explain", "generate", *map(str, words)], env=ring.environment())
    told = [shown("llama-32m", "--model.max_position_embeddings", 4096, "--generate.max_new_tokens", n).out for n in (100, 3000)]
    ring.check("counted for texts of 612 tokens, of which 512 are a prompt's" in told[0] and "counted for texts of 3,512 tokens" in told[1], "new tokens count", str(told))
    result, run = shown("llama-5m", "--accelerator", "cuda"), r.run([r.program, "generate", "llama-5m", "--prompt", "a", "--accelerator", "cuda"], env=ring.environment())
    ring.check(result.code == 2 and result.err == run.err and "trireme generate computes on the CPU only" in result.err, "GPUs are refused as generate refuses them", f"{result} {run}")
    result = r.run([r.program, "explain", "memory", *SMALL, "--offload.optimizer", "disk", "--offload.path", "/dev/shm"], env=ring.environment())
    ring.check(result.code == 2 and "offload.path /dev/shm lies in memory" in result.err, "explain memory refuses a disk that is memory", str(result))
    result = r.run([r.program, "explain", "memory", *TINY, "--devices", "3"], env=ring.environment())
    count = figures(r, *TINY, "--cluster", "1xH100")[0]["parameters"]
    ring.check(f"P = {count / 1e6:.2f} M parameters of its stages" in result.out, f"P is {count} parameters", str(result))


def counts_host_memory(r):
    """What devices offload has to fit their machine: the verdict, the figures and --fit say so."""
    words = ["llama-3-8b", "--cluster", "1xRTX-4090", "--train.max_seq_length", "2048", "--train.micro_batch_size", "1", "--recompute", "full"]
    words += [word for kind in ("optimizer", "master", "gradients", "parameters", "activations") for word in (f"--offload.{kind}", "cpu")]
    found, text = figures(r, *words)
    ring.check(found["host_bytes"] > 128e9 and found["host_room_bytes"] == 128e9 and found["disk_bytes"] == 0 and found["memory_bytes"] < found["room_bytes"],
               "the machine's memory is too small, not the device's", str(found))
    ring.check("; does NOT fit: offload.* takes " in text and f"host     {found['host_bytes'] / 1e9:.2f} GB of a machine's memory for offload.*; it has 128.0 GB\n" in text and "; fits" not in text
               and "\ntry " in text, "the plan says so", text)
    _, text = figures(r, *words, "--fit", "micro_batch")
    ring.check("fit      no train.micro_batch_size fits, not even 1; try " in text, "and --fit finds nothing", text)


def fits_by_offloading(r):
    """What fits no memory is refused by every command; GPUs are told how much host memory fits."""
    too_little = [*SMALL, "--devices", "1", "--precision", "bf16-mixed", "--offload.fit", "8MiB", "--offload.host", "1GiB"]
    shown = r.run([r.program, "explain", "memory", *too_little], env=ring.environment())
    ring.check(shown.code == 2 and shown.out.startswith("what leaves") and "nothing fits in 8.00 MiB" in shown.out and "error: offload.fit 8.00 MiB: a rank needs " in shown.err,
               "explain memory shows what was tried, and refuses", str(shown))
    words = [*SMALL, "--cluster", "1xH100"]
    whole, _ = figures(r, *words)
    words += ["--offload.fit", int(whole["memory_bytes"]) - 1_000_000]
    told = plan(r, *words)
    ring.require(told.code == 2 and "GPUs cannot use a disk" in told.err, "a GPU's values leave to no disk", str(told))
    host = re.search(r"offload.host (\d+MiB) fits", told.err).group(1)
    found, _ = figures(r, *words, "--offload.host", host)
    ring.check(found["memory_bytes"] <= words[-1] and 0 < found["host_bytes"] <= int(host[:-3]) << 20, f"{host} of host memory fit", str(found))


def says_what_gpus_refuse(r):
    """A plan on GPUs has adapters' default dropout, which a run there refuses: it is said; and one device communicates nothing."""
    words = [*SMALL, "--cluster", "1xA10", "--lora.r", "8"]
    note = "note     a run is refused today: dropout of adapters is computed on the CPU only; set lora.dropout 0"
    _, text = figures(r, *words)
    ring.check(note in text, "adapters' dropout is said to be refused", text)
    shown = r.run([r.program, "explain", "schedule", *SMALL, "--lora.r", "8", "--hardware", "a10"], env=ring.environment())
    ring.check(shown.code == 0 and note.replace("note     ", "note       ") in shown.out, "explain schedule by hardware says it, too", str(shown))
    for topic in ("memory", "schedule", "config"):
        for more, sentence in ((["--lora.r", "8"], note[len("note     a run is refused today: "):]), (["--precision", "bf16-mixed", "--offload.optimizer", "disk"], "leave to host memory, not to a disk")):
            shown = r.run([r.program, "explain", topic, *SMALL, "--accelerator", "cuda", *more], env=ring.environment())
            ring.check(shown.code == 2 and sentence in shown.err, f"explain {topic} refuses what no GPU computes: {' '.join(more)}", str(shown))
    found, text = figures(r, *words, "--lora.dropout", "0", "--train.global_batch_size", "16")
    ring.check("a run is refused" not in text, "without dropout nothing is refused", text)
    ring.check(found["causes_seconds"]["communication"] == 0 and "communication" not in text, "one device communicates nothing", text)


def counts_what_is_computed(r):
    """Micro-batches that do not divide among ranks: the arithmetic is that of the batch, and who idles is said."""
    words = ["llama-5m", "--train.max_seq_length", "64", "--train.micro_batch_size", "2", "--train.global_batch_size", "8"]
    (one, _), (three, text) = figures(r, *words, "--cluster", "1x1xA10"), figures(r, *words, "--cluster", "1x3xA10")
    ring.check(abs(three["model_flops"] / one["model_flops"] - 1) < 1e-9, "three ranks compute as much as one", f"{one} {three}")
    ring.check("warn     2 of 3 data-parallel ranks idle in the last of 2 micro-batches a step" in text, "a plan warns of idle ranks", text)
    result = r.run([r.program, "explain", "mesh", *words, "--devices", "3"], env=ring.environment())
    ring.check("; at most 2 micro-batches a step on each of 3 data-parallel ranks" in result.out, "explain mesh says at most", str(result))


def takes_what_hardware_says(r):
    """Cards without bfloat16 plan in 32 bits, and explain schedule takes a card as plan does."""
    _, text = figures(r, *SMALL, "--cluster", "8xV100")
    ring.check(", 32-true\n" in text and "note     V100 has no bfloat16, and 16-mixed is not built for GPUs yet: precision is 32-true" in text, "a card without bfloat16 is planned", text)
    result = plan(r, *SMALL, "--cluster", "8xV100", "--precision", "16-mixed")
    ring.check(result.code == 2 and "precision 16-mixed is not built for GPUs yet" in result.err, "a format that the user gives is refused", str(result))
    found, _ = figures(r, *SMALL, "--cluster", "8xH100", "--mesh.pp", "2")
    result = r.run([r.program, "explain", "schedule", *SMALL, "--devices", "8", "--mesh.pp", "2", "--hardware", "h100"], env=ring.environment())
    step = float(re.search(r"^step +([\d.]+) ms, predicted for h100", result.out, re.M).group(1))
    ring.check(abs(step / (1e3 * found["step_seconds"]) - 1) < 1e-3, "explain schedule predicts the step that plan does", f"{found} {result}")


def answers_are_left_out(r):
    """A step of task rewards has no answers in its time, which is said."""
    for task, lengths in (("rewards", ["--grpo.max_prompt_length", 64, "--grpo.max_completion_length", 64]), ("language", [])):
        _, text = figures(r, "llama-5m", "--task", task, *lengths, "--cluster", f"1x{processors(r)}")
        ring.check(("note     the step is what learns from answers; the time of writing them is not predicted\n" in text) == (task == "rewards"), f"a plan of task {task}", text)
    for cluster, named in (([], "8xH100"), (["--cluster", "1xA10"], "1xA10")):
        result = plan(r, "llama-5m", "--task", "rewards", *cluster)
        told = f"the cluster {named} has GPUs, and learning from rewards computes on processors only; name processors, such as --cluster 2xthis"
        ring.check(result.code == 2 and told in result.err, f"rewards on the GPUs of {named} are refused with the way out", str(result))
    rewards = ["llama-5m", "--task", "rewards", "--grpo.max_prompt_length", 64, "--grpo.max_completion_length", 64, "--grpo.batch_size", 6, "--cluster", f"2x{processors(r)}"]
    for fit in ([], ["--fit", "micro_batch"]):
        _, text = figures(r, *rewards, *fit)
        ring.check("a step   12 sequences of 128 tokens" in text, f"the rows of answers are a run's, whatever divides them {fit}", text)


def counts_what_lies_beside_the_plan(r):
    """The reference of answers, and the copy of the weights that writes sample replies."""
    rewards = ["llama-5m", "--task", "rewards", "--grpo.max_prompt_length", 64, "--grpo.max_completion_length", 64, "--precision", "bf16-mixed"]
    needs = {}
    for beta in (0, 0.1):
        found, text = figures(r, *rewards, "--grpo.beta", beta, "--cluster", f"1x{processors(r)}")
        needs[beta] = found
        shown = r.run([r.program, "explain", "memory", *map(str, rewards), "--grpo.beta", str(beta)], env=ring.environment())
        dry = r.run([r.program, "grpo", *map(str, rewards[:1] + rewards[3:]), "--grpo.beta", str(beta), "--grpo.prompts", "p.jsonl", "--dry_run"], env=ring.environment())
        for result in (shown, dry):
            ring.check(result.code == 0 and (" a rank for the reference (grpo.beta)\n" in result.out) == (beta > 0), f"its memory is told with grpo.beta {beta}", str(result))
        ring.check("  of a rank" not in text, "of one rank on a machine, the rows are the machine's", text)
        ring.check(sum(found["memory"].values()) == found["memory_bytes"], f"the rows are the whole with grpo.beta {beta}", str(found))
    kept = needs[0.1]["memory"]["reference (grpo.beta)"]
    ring.check(abs(kept / (6 * needs[0]["parameters"]) - 1) < 0.01 and "reference (grpo.beta)" not in needs[0]["memory"], f"a reference takes {kept} bytes of a plan", str(needs))
    (one, _), (two, text) = (figures(r, *SMALL, "--cluster", f"2x{processors(r)}", *words) for words in ([], ["--eval.max_new_tokens", 8]))
    ring.check(two["memory_bytes"] - one["memory_bytes"] > 2 * one["parameters"] and "replies  up to " in text, "sample replies take a copy of the weights", f"{one} {text}")
    ring.check("\n  of a rank:\n" in text, "rows that are not the machine's say whose they are", text)
    shown = r.run([r.program, "explain", "memory", *SMALL, "--eval.max_new_tokens", "8"], env=ring.environment())
    ring.check(shown.code == 0 and re.search(r"^beside the plan: up to .* of rank 0 for sample replies", shown.out, re.M), "explain memory tells of them", str(shown))
    shown = r.run([r.program, "explain", "memory", *SMALL, "--devices", "2", "--accelerator", "cuda"], env=ring.environment())
    ring.check(shown.code == 0 and "outside the plan: what driver and libraries take of the GPU" in shown.out
               and not any(word in shown.out for word in ("thread", "shm", "share memory", "scratch for matrix")), "of GPUs nothing is said that is of processors", str(shown))


def names_the_hardware(r):
    """What GPUs do not compute is put down to the hardware that brings them, and to no accelerator that nobody gave."""
    told = "has GPUs, and {} on processors only{}; name processors, such as "
    for words, who, which in ((["--model.num_labels", 2, "--task", "classify"], "a model that classifies texts computes", ""),
                              (["--task", "preferences"], "learning from pairs (dpo.*) computes", ""),
                              (["--free.latent_bits", 6], "a Free Transformer computes", ""),
                              (["--lora.r", 8, "--quantize", "bnb.nf4"], "weights in blocks are multiplied", " (quantize bnb.nf4)")):
        for more in ([], ["--fit", "micro_batch"]):
            result = plan(r, *SMALL, *words, *more)
            ring.check(result.code == 2 and "the cluster 8xH100 " + told.format(who, which) + "--cluster 2xthis" in result.err and "accelerator" not in result.err,
                       f"plan names the cluster: {words} {more}", str(result))
        result = r.run([r.program, "explain", "schedule", *map(str, SMALL + words), "--hardware", "h100"], env=ring.environment())
        ring.check(result.code == 2 and "the hardware h100 " + told.format(who, which) + "--hardware this" in result.err, f"and explain schedule the hardware: {words}", str(result))


def typed_hardware_counts(r):
    """A typed cluster counts more than a file's ranks, which count more than the default; a typed count is the most."""
    cores, file, ds = processors(r), r.folder / "file.yaml", r.folder / "ds.json"
    file.write_text("devices: 4\naccelerator: cuda\n")
    _, text = figures(r, *SMALL, "--config", file, "--cluster", "1xA100-80")
    ring.check("ranks    1 on 1 machine of A100-80" in text and f"note     devices 4 ({file}:1) gives way to --cluster 1xA100-80\n" in text, "a file's devices give way to a typed cluster", text)
    _, text = figures(r, *SMALL, "--config", file, "--cluster", f"1x{cores}")
    ring.check("ranks    1 on 1 machine of cores" in text and f"note     accelerator cuda ({file}:2) gives way to --cluster 1x{cores}\n" in text, "and so does its accelerator", text)
    for words, ranks in (([], 4), (["--cluster", "1xA100-80", "--devices", 2], 2), (["--devices", 2], 2)):
        _, text = figures(r, *SMALL, "--config", file, *words)
        ring.check(f"ranks    {ranks} on 1 machine" in text and "gives way" not in text, f"{ranks} ranks: {words}", text)
    ds.write_text(json.dumps({"train_batch_size": 64, "gradient_accumulation_steps": 1}))
    for words, size in (([], 8), (["--cluster", "2x8xA10"], 4), (["--cluster", "1xA10"], 64), (["--cluster", "1x8xA10", "--devices", 4], 16), (["--devices", 2], 32)):
        _, text = figures(r, "llama-5m", "--train.max_seq_length", 64, "--config", ds, *words)
        ring.check(f"a step   64 sequences of 64 tokens, {size} at a time on each rank\n" in text, f"DeepSpeed's file is read for the cluster's ranks: {words}", text)
    file.write_text("accelerator: cpu\n")
    for words, told in ((["--cluster", f"2x{cores}", "--accelerator", "cuda"], f"--cluster 2x{cores} names processors, and accelerator is cuda (command line); leave accelerator out, or name GPUs"),
                        (["--cluster", "2xH100", "--accelerator", "cpu"], "--cluster 2xH100 names GPUs, and accelerator is cpu (command line); leave accelerator out, or name processors, such as --cluster 2xthis"),
                        (["--config", file], f"the default --cluster 8xH100 names GPUs, and accelerator is cpu ({file}:1)")):
        result = plan(r, *SMALL, *words)
        ring.check(result.code == 2 and told in result.err, f"hardware and accelerator that contradict each other are refused: {words}", str(result))


def long_times_are_read(r):
    result = r.run([r.program, "explain", "schedule", "llama-3-8b", "--devices", "2"], env=ring.environment(), timeout=120)
    ring.check(re.search(r"^step +\d+d\d\dh, predicted for", result.out, re.M) and "e+0" not in result.out, "a step of days has days, not 1e8 ms", str(result))


def every_stage(r):
    """The memory is that of the stage which needs the most, to the byte."""
    words = ["llama-32m", "--mesh.pp", "4", "--pipeline.schedule", "zb_h1", "--train.global_batch_size", "16", "--train.micro_batch_size", "1",
             "--precision", "bf16-mixed"]
    found, text = figures(r, *words, "--cluster", "4xH100")
    peaks = []
    for rank in range(4):
        result = r.run([r.program, "explain", "memory", *words, "--devices", "4", "--accelerator", "cuda", "--rank", str(rank)], env=ring.environment())
        peaks.append(int(re.search(r"^ +(\d+) bytes: ", result.out, re.MULTILINE)[1]))
    stage = peaks.index(max(peaks))
    ring.check(stage > 0 and found["memory_bytes"] == max(peaks) and found["memory_stage"] == stage and f"a device of stage {stage + 1} of 4, which needs the most" in text,
               f"of 4 stages the one that needs the most counts: number {stage + 1}", f"{peaks} {found} {text}")


def judges_published_memory(r):
    """What eager.py counts for other systems is what docs/planning.md says of it, and the program counts the same parameters."""
    judge, path = ROOT / "benchmarks/published/judge", r.folder / "memory.json"
    result = r.run([sys.executable, judge, "--memory", "--trireme", r.program, "--every", "12", "--json", path], env=ring.environment(), timeout=300)
    ring.require(result.code == 0 and "rows: the memory is off by" in result.out and "worst: " in result.out, "judge --memory compares rows", str(result))
    rows = json.loads(path.read_text())
    ring.check(len(rows) > 5 and all(row["counted"] > 0 for row in rows) and any((row["own"] or 0) > 0 for row in rows), f"{len(rows)} rows have figures", str(rows))
    sys.path.insert(0, str(judge.parent))
    import eager

    off, page, table = {}, (ROOT / "docs/planning.md").read_text(), (judge.parent / "memory.md").read_text()
    with open(judge.parent / "runs.csv") as file:
        for row in csv.DictReader(file):
            told = row["peak_mem_gb_per_gpu"]
            if not told or eager.left_out(row):
                continue
            system = eager.SYSTEMS[eager.system_of(row)]
            counted = sum(eager.peak(row).values()) / system.unit
            if told != "OOM":
                off[row["id"]] = counted / float(told) - 1
            line = next((line for line in table.splitlines() if line.startswith(f"| {row['id']} |")), "")
            ring.check(f"| {told} | {counted:.2f} |" in line, f"memory.md has row {row['id']}", f"{line}: {counted:.2f}")
    median = 100 * statistics.median(map(abs, off.values()))
    ring.check(f"{len(off)} rows are off by {median:.1f} % in the median" in page and median < 8, f"the page says {median:.1f} % of {len(off)} rows")


def refuses(r):
    for words, expected in ((["llama-5m", "--cluster", "8xH101"], "the hardware H101 is not known (did you mean h100?)"),
                            (["llama-5m", "--cluster", "0xH100"], "a count of 0"),
                            (["llama-5m", "--tokens", "0.5"], "tokens wants a count from 1 on, such as 15e12 or 15T, not '0.5'"),
                            (["llama-5m", "--price", "0"], "price must be above 0"),
                            (["llama-5m", "--cluster", "8xH100", "--mesh.tp", "3"], "but 8 ranks start"),
                            (["llama-5m", "--fit", "everything"], "fit wants"),
                            (["llama-9000b"], "llama-9000b")):
        result = plan(r, *words)
        ring.require(result.code == 2 and not result.out and expected in result.err, f"plan {' '.join(words)} is refused", str(result))
    wrong = r.folder / "wrong.yaml"
    wrong.write_text("name: mine\nmemory: 80GB\nmemory_rate: 1000\npeak: {fp32: 10}\n")
    result = plan(r, "llama-5m", "--cluster", f"2x{wrong}")
    ring.check(result.code == 2 and "wrong.yaml:2: memory: 80GB" in result.err, "a wrong unit in a file is shown with its line", str(result))
    result = plan(r, "llama-5m", "--cluster", "2xthis", XDG_CONFIG_HOME=str(r.folder / "empty"))
    ring.check(result.code == 2 and "run trireme bench calibrate" in result.err, "a machine that was not measured is told how to be", str(result))


def calibrates_only_where_it_can_write(r):
    """Before it measures anything."""
    blocked = r.folder / "no-folder"
    blocked.write_text("")
    result = r.run([r.program, "bench", "calibrate", "--out_dir", str(r.folder / "not-begun")],
                   env=ring.environment(XDG_CONFIG_HOME=str(blocked)), timeout=60)
    ring.check(result.code == 2 and f"cannot write {blocked}/trireme/hardware.yaml" in result.err and "--hardware" in result.err
               and not (r.folder / "not-begun").exists(), "bench calibrate refuses a place that it cannot write at once", str(result))


def calibrates_and_predicts(r):
    home = r.folder / "config"
    env = ring.environment(XDG_CONFIG_HOME=str(home))
    file = home / "trireme/hardware.yaml"
    quick = [r.program, "bench", "calibrate", "--quick", "--out_dir", str(r.folder / "calibrate")]
    refused = r.run(quick, env=env, timeout=60)
    ring.check(refused.code == 2 and "--quick only checks the benchmark" in refused.err and "--hardware" in refused.err and not home.exists(),
               "bench calibrate --quick keeps away from this machine's figures", str(refused))
    file.parent.mkdir(parents=True)
    result = r.run([*quick, "--hardware", str(file)], env=env, timeout=400)
    ring.require(result.code == 0 and str(file) in result.out and file.exists(), "bench calibrate writes this machine's file", str(result))
    ring.check(re.search(r"plan MODEL --cluster \d+xthis; trireme pretrain ... --predict$", result.out, re.M), "and says who reads it", result.out)
    other = r.folder / "mine.yaml"
    named = r.run([r.program, "bench", "calibrate", "--quick", "--hardware", str(other), "--out_dir", str(r.folder / "calibrate")], env=env, timeout=400)
    cluster = re.search(r"trireme plan MODEL --cluster (\S+)$", named.out, re.M)
    ring.require(named.code == 0 and cluster and cluster.group(1).endswith(f"x{other}"), "a file that is named is the hardware of plans", str(named))
    found = plan(r, *SMALL, "--cluster", cluster.group(1))
    ring.check(found.code == 0, "which read it so", str(found))
    rows = [line.split()[1:] for line in file.read_text().splitlines() if line.startswith("    - ")]
    names = {row[0] for row in rows}
    ring.check({"product_nt", "product_nn", "product_tn", "attention_forward", "attention_backward", "optimizer_step", "rms_norm_backward",
                "layer_norm_forward", "move"} <= names, f"it has {len(names)} kinds of rows", str(names))
    moved = {row[1]: 1e-9 * int(row[2]) / float(row[3]) for row in rows if row[0] == "move"}
    ring.check("1" in moved and all(0.05 < rate < 100 for rate in moved.values()), "what ranks move, also one alone, moves at the rate of a memory", f"{moved} GB/s")
    disk = {key: float(rate) for key, rate in re.findall(r"^  ((?:read_|write_)?rate): ([\d.e+-]+)$", file.read_text().split("\ndisk:\n")[1], re.M)[:3]}
    ring.check(len(disk) == 3 and (all(disk.values()) or not any(disk.values())), "the disk has a rate for both ways at once and one for each alone", str(disk))
    text = r.folder / "text.txt"
    text.write_text("It is a truth universally acknowledged. " * 400)
    words = [*SMALL, "--data", "TextFiles", "--data.train_data_path", str(text), "--train.global_batch_size", "8", "--train.max_steps", "5", "--devices", "2"]
    result = r.run([r.program, "pretrain", *words, "--predict", "--out_dir", str(r.folder / "out")], env=env, timeout=200)
    ring.require(result.code == 0 and "\npredict  " in result.out and "matrix products" in result.out, "--predict predicts and compares", str(result))
    rows = re.findall(r"^ {9}(\S.*?) +([\d.]+) ms +([\d.]+) ms(?: +([+-][\d.]+) %)?$", result.out, re.M)
    step = next(float(row[2]) for row in rows if row[0] == "step")
    ring.check(len(rows) > 8 and not re.search(r"ms[+-]", result.out) and all(bool(share) == (float(took) > 0.01 * step)
               for _, _, took, share in rows if abs(float(took) - 0.01 * step) > 0.01), "its table tells how far what takes a hundredth of a step or more is off", result.out)
    ring.check(re.search(r"^memory   .*\n         outside the plan: .*\npredict  ", result.out, re.M), "the prediction stands behind what memory says", result.out)
    dry = r.run([r.program, "pretrain", *words, "--predict", "--dry_run", "--out_dir", str(r.folder / "dry")], env=env)
    ring.check(dry.code == 0 and re.search(r"^predict  [\d.]+ ms a step, ", dry.out, re.M), "--dry_run --predict predicts", str(dry))
    both = json.loads((r.folder / "out/prediction.json").read_text())
    in_actions = sum(row["measured"] for row in both["actions"].values())
    ring.check(0.8 < in_actions / both["measured_seconds"]["step"] < 1.1, "what actions took, with waiting for their end, makes up the step", str(both))
    ring.check(both["predicted_seconds"]["step"] > 0 and both["measured_seconds"]["step"] > 0 and both["planned_bytes"] > 0, "prediction.json has both", str(both))
    resumed, named = plan(r, "--resume", r.folder / "out", "--cluster", "1xA10"), plan(r, r.folder / "out", "--cluster", "1xA10")
    ring.check(resumed.code == 0 and "a step   8 sequences of 64 tokens, 4 at a time on each rank" in resumed.out and named.code == 0,
               "plan takes over the settings of a run, or the model of its newest checkpoint", f"{resumed}\n{named}")
    shown = r.run([r.program, "explain", "schedule", *SMALL, "--devices", "2", "--hardware", "this"], env=env)
    ring.check(shown.code == 0 and "predicted for this" in shown.out, "explain schedule takes the same figures", str(shown))
    planned = r.run([r.program, "plan", *SMALL, "--cluster", "2xthis", "--json", str(r.folder / "this.json")], env=env)
    ring.check(planned.code == 0 and json.loads((r.folder / "this.json").read_text())["ranks"] == 2, "plan takes them, too", str(planned))
    result = r.run([r.program, "pretrain", *words, "--predict", "--out_dir", str(r.folder / "none")], env=ring.environment(XDG_CONFIG_HOME=str(r.folder / "empty")))
    ring.check(result.code == 2 and not (r.folder / "none").exists() and "bench calibrate" in result.err, "without a file --predict is refused before anything is written", str(result))
    result = r.run([r.program, "pretrain", *words, "--predict", "--offload.optimizer", "disk", "--out_dir", str(r.folder / "none")],
                   env=ring.environment(XDG_CONFIG_HOME=str(without_disk(r))))
    ring.check(result.code == 2 and not (r.folder / "none").exists() and "the hardware this has no disk.rate" in result.err, "and so it is with a file that lacks what the step needs", str(result))


def without_disk(r):
    """A folder of settings with a file of this machine that knows no disk."""
    home = r.folder / "without-disk"
    (home / "trireme").mkdir(parents=True)
    (home / "trireme/hardware.yaml").write_text("name: this\nmemory_rate: 10\npeak: {fp32: 0.1}\nshares_cores: true\n")
    return home


def page(r):
    """Every `trireme plan` and `explain memory` in these pages runs, and prints the lines that follow it there."""
    checked = sum(commands_of(r, name) for name in ("docs/planning.md", "docs/offload.md"))
    ring.require(checked >= 4, "the pages have commands")


def commands_of(r, name):
    lines = (ROOT / name).read_text().splitlines()
    checked = 0
    for at, line in enumerate(lines):
        if not line.startswith(("    trireme plan ", "    trireme explain memory ")) or "xthis" in line:
            continue
        result = r.run([r.program, *shlex.split(line)[1:], *(["--launch.threads_per_rank", "2"] if "explain" in line else [])],
                       env=ring.environment(XDG_CONFIG_HOME=str(r.folder / "empty")))
        ring.require(result.code == 0, f"{line.strip()} succeeds", str(result))
        printed = {" ".join(row.split()) for row in result.out.splitlines()}
        block = []
        for row in lines[at + 2:]:
            if not row.startswith("    "):
                break
            block.append(" ".join(row.split()))
        missing = [row for row in block if row not in printed and row != "..."]
        ring.check(not missing, f"{name}: {len(block)} lines of {line.strip()}", f"{missing}\n{result.out}")
        checked += 1
    return checked


with ring.Ring(sys.argv[1]) as r:
    money_and_time(r)
    adds_up(r)
    says_what_to_try(r)
    explains_adapters_and_rings(r)
    explains_a_rank_of_a_mesh(r)
    fits(r)
    fits_past_refused_values(r)
    keeps_stages_busy(r)
    tells_its_batch(r)
    huge_batches(r)
    tells_whether_it_runs(r)
    explains_generation(r)
    counts_host_memory(r)
    fits_by_offloading(r)
    says_what_gpus_refuse(r)
    counts_what_is_computed(r)
    takes_what_hardware_says(r)
    answers_are_left_out(r)
    counts_what_lies_beside_the_plan(r)
    names_the_hardware(r)
    typed_hardware_counts(r)
    long_times_are_read(r)
    every_stage(r)
    refuses(r)
    judges_published_memory(r)
    page(r)
    calibrates_only_where_it_can_write(r)
    calibrates_and_predicts(r)
