"""Every subcommand of trireme bench runs, writes JSON whose figures make sense, and refuses bad input in one sentence.

commands.py TRIREME
Runs with --quick: figures are not judged, but nothing may exceed its limit by more than a busy machine explains.
"""

import json
import pathlib
import re
import shutil
import signal
import sys
import xml.etree.ElementTree

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(FOLDER.parent / "train"))
import ring  # noqa: E402

TINY = ["--model.hidden_size", "64", "--model.num_hidden_layers", "2", "--model.intermediate_size", "96",
        "--model.num_attention_heads", "4", "--model.num_key_value_heads", "2", "--model.max_position_embeddings", "64",
        "--precision", "32-true"]
ROW = {"name", "shape", "median_seconds", "best_seconds", "spread", "samples", "rate", "unit"}
HEAD = ["format", "version", "kind", "command", "date", "machine", "processor", "cores", "libtorch", "trireme", "limits",
        "rows"]
MOST_OF_A_LIMIT = 1.5  # bytes counted twice would show; two cores that share a memory bus with others would not
ATTEMPTS = 3  # other work may slow the limit down and not the row


def bench(r, *words, timeout=120):
    return r.run([r.program, "bench", *map(str, words)], timeout=timeout)


def excesses(report):
    return [f"{row['name']} {row['shape']}: {row['fraction']:.3f}" for row in report["rows"]
            if "fraction" in row and not 0 < row["fraction"] <= MOST_OF_A_LIMIT]


def measures(r, kind, *words, attempts=ATTEMPTS):
    """The report of a quick run; its form is checked, and its fractions, again where the machine was disturbed."""
    path = r.folder / f"{kind}.json"
    for attempt in range(attempts):
        path.unlink(missing_ok=True)
        result = bench(r, kind, *words, "--quick", "--out_dir", r.folder / kind, "--json", path)
        ring.require(result.code == 0, f"bench {kind} --quick succeeds", str(result))
        report = json.loads(path.read_text())
        if not excesses(report):
            break
    ring.require(list(report) == HEAD, f"bench {kind}: keys of the report", str(list(report)))
    ring.require((report["format"], report["version"], report["kind"]) == ("trireme bench", 1, kind), f"bench {kind}: format")
    ring.require(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", report["date"]), f"bench {kind}: date", report["date"])
    ring.require(report["rows"] and all(ROW <= set(row) for row in report["rows"]), f"bench {kind}: keys of every row")
    names = [(row["name"], row["shape"]) for row in report["rows"]]
    ring.require(len(set(names)) == len(names), f"bench {kind}: name and shape tell rows apart", str(names))
    for row in report["rows"]:
        ring.require(0 < row["best_seconds"] <= row["median_seconds"] and row["spread"] >= 0 and row["samples"] >= 1,
                     f"bench {kind}: times of {row['name']}", str(row))
        ring.require(row["name"] in result.out, f"bench {kind}: the table shows {row['name']}", result.out)
    ring.require(not excesses(report), f"bench {kind}: shares are in (0, {MOST_OF_A_LIMIT}]", str(excesses(report)))
    shares = [row["fraction"] for row in report["rows"] if "fraction" in row]
    ring.check(shares, f"bench {kind}: {len(names)} rows, shares {min(shares):.4f} to {max(shares):.2f}, {result.seconds:.1f} s")
    return report


def refuses(r, words, *expected):
    result = bench(r, *words)
    what = "bench " + " ".join(map(str, words)).replace(f"{r.folder}/", "")
    ring.require(result.code == 2, f"{what}: exit code 2", str(result))
    ring.require(not result.out, f"{what}: nothing else is printed", result.out)
    ring.require(all(word in result.err for word in expected), f"{what}: the message says {expected}", str(result))
    ring.require(len(result.err.strip().splitlines()) <= 3, f"{what}: one message", str(result))
    ring.check(True, f"{what}: {result.err.strip()}")


def declared_operations():
    text = (ROOT / "trireme/ops/ops.h").read_text()
    return set(re.findall(r"^void (\w+)\(", text, re.M))


def teaches(r):
    listed = bench(r)
    ring.require(listed.code == 2, "trireme bench alone: exit code 2", str(listed))
    names = ["train", "ops", "gemm", "generate", "collectives", "checkpoint", "data", "scaling", "calibrate", "compare"]
    ring.check(all(f"\n  {name} " in listed.out and f"\n  trireme bench {name}" in listed.out for name in names),
               "trireme bench alone lists what it measures, each with an example", listed.out)
    for name in names:
        result = bench(r, name, "--help")
        ring.require(result.code == 0 and len(result.out.splitlines()) > 5 and f"trireme bench {name}" in result.out,
                     f"bench {name} --help teaches", str(result))
    ring.check(True, "every subcommand's --help teaches")


# What each subcommand reads of bench.*; --help lists it, and what it does not list is refused.
READS = {"train": "warmup steps json operations", "ops": "threads json quick", "gemm": "threads json quick", "generate": "threads json quick",
         "collectives": "json quick", "checkpoint": "json quick", "data": "threads json quick",
         "scaling": "ranks warmup steps json quick picture", "calibrate": "hardware quick", "compare": ""}
VALUES = {"warmup": 1, "steps": 1, "json": "x.json", "operations": "true", "threads": 1, "quick": "true", "ranks": "1,2", "picture": "x.svg", "hardware": "x.yaml"}


def takes_what_help_lists(r):
    for name, reads in READS.items():
        listed = re.findall(r"^  --bench\.(\w+)", bench(r, name, "--help").out, re.M)
        ring.require(sorted(listed) == sorted(reads.split()), f"bench {name} --help lists what it reads", str(listed))
        for key in sorted(set(VALUES) - set(listed)) if reads else []:
            way_out = "give launch.threads_per_rank" if key == "threads" and name != "calibrate" else "leave it out"
            refuses(r, [name, *([] if name in ("collectives", "calibrate") else ["llama-5m"]), f"--{key}", VALUES[key]],
                    f"trireme bench {name} does not read bench.{key} (command line)", way_out, f"it reads bench.{reads.split()[0]}")
    for name, words in {"ops": ["llama-5m", "--optimizer.lr", 1], "gemm": ["llama-5m", "--lora.r", 8], "generate": ["llama-5m", "--train.micro_batch_size", 4],
                        "collectives": ["--train.max_steps", 3]}.items():
        refuses(r, [name, *words], f"{words[-2][2:]} belongs to training", f"trireme bench {name} trains nothing", "leave it out")
    refuses(r, ["gemm", "llama-5m", "--quantize_head", "q8_0"], "trireme bench gemm does not read quantize_head", "bench generate reads it")
    refuses(r, ["generate", "llama-5m", "--precision", "fp8-mixed"], "fp8-mixed rounds numbers in training only", "bf16-mixed")


def scaling(r):
    words = ["scaling", "llama-5m", *TINY, "--ranks", "1,2", "--quick", "--out_dir", r.folder / "scaling",
             "--json", r.folder / "scaling.json"]
    result = bench(r, *words)
    if result.code == 2 and 'no key "parts"' in result.err:
        ring.check("train.json" in result.err, "bench scaling names the key that bench train does not write")
        return
    ring.require(result.code == 0, "bench scaling succeeds", str(result))
    report = json.loads((r.folder / "scaling.json").read_text())
    ring.check([row["fraction"] > 0 for row in report["rows"]] == [True, True] and report["rows"][0]["fraction"] == 1,
               "bench scaling: two rows, the first is the measure", str(report["rows"]))
    values = report["rows"][1]["values"]
    ring.check("efficiency %" in values and any(key.startswith("lost to ") for key in values), "bench scaling: losses by cause",
               str(values))
    picture = xml.etree.ElementTree.parse(r.folder / "scaling" / "scaling.svg").getroot()
    ring.check(picture.tag.endswith("svg") and "2 ranks" in "".join(picture.itertext()), "bench scaling: a picture")


def classifies(r):
    """Targets of a classification head are its labels, and its loss is that of a text."""
    words = ["llama-5m", *TINY, "--model.num_labels", "3"]
    path = r.folder / "labels.json"
    result = bench(r, "train", *words, "--task", "classify", "--steps", "1", "--warmup", "1", "--out_dir", r.folder / "labels", "--json", path)
    ring.require(result.code == 0, "bench train --task classify succeeds", str(result))
    losses = json.loads(path.read_text())["losses"]
    ring.check(0.3 < losses[0] < 4, "its loss is about that of three labels", str(losses))
    for kind in ("train", "scaling"):
        refuses(r, [kind, *words, "--out_dir", r.folder / "refused"], "a model with labels (model.num_labels) classifies texts: give --task classify")
    for more in (words, ["llama-5m", "--task", "preferences"]):
        refuses(r, ["data", *more], "bench data loads texts that a model continues; leave task out")


def collectives_under_mpirun(r):
    if not shutil.which("mpirun"):
        print("mpirun left out: it is not installed")
        return
    alone = r.folder / "alone" / "trireme"  # without the libraries that lie beside it
    alone.parent.mkdir()
    shutil.copy(r.program, alone)
    programs = [(alone, {"shm", "gloo"})] + ([] if r.why_no_mpi() else [(r.program, {"shm", "gloo", "mpi"})])
    for program, expected in programs:
        path = r.folder / "mpirun.json"
        result = r.run([*ring.MPIRUN, "-n", "2", str(program), "bench", "collectives", "--quick", "--out_dir", str(r.folder / "mpirun"), "--json", str(path)])
        ring.require(result.code == 0, "bench collectives under mpirun", str(result))
        timed = {backend for row in json.loads(path.read_text())["rows"] for backend in ("shm", "gloo", "mpi") if f" {backend}," in row["shape"]}
        ring.require(("leaves mpi out: " in result.err) == ("mpi" not in expected), "what is left out is said", str(result))
        ring.check(timed == expected, f"bench collectives under mpirun times {', '.join(sorted(timed))}")


def stall_bytes(report):
    row, = [row for row in report["rows"] if row["name"].endswith("the stall")]
    return row["rate"] * row["median_seconds"]


def counts_what_windows_leave(r):
    """Five of six blocks of gemma3_270m see 512 keys: here both."""
    sequence, window, blocks, heads, head_dim, width, mlp, vocabulary = 2048, 512, 2, 16, 64, 64, 96, 256
    shape = {"hidden_size": width, "num_hidden_layers": blocks, "intermediate_size": mlp, "num_attention_heads": heads, "num_key_value_heads": 1,
             "head_dim": head_dim, "vocab_size": vocabulary, "max_position_embeddings": sequence}
    words = [word for key, value in shape.items() for word in (f"--model.{key}", value)]
    result = bench(r, "train", "gemma3_270m", *words, "--precision", "32-true", "--train.micro_batch_size", "1", "--steps", "1", "--warmup", "1",
                   "--out_dir", r.folder / "windows")
    ring.require(result.code == 0, "bench train with windows succeeds", str(result))
    products = blocks * (2 * width * heads * head_dim + 2 * width * head_dim + 3 * width * mlp) + vocabulary * width
    flops = 6 * products + 12 * blocks * heads * head_dim * window * (1 - window / (2 * sequence))
    ring.check(f"= {flops / 1e6:.0f} MFLOP a token" in result.out, f"bench train counts the {window} keys of a window", result.out)


def judges_parts_where_ranks_do_the_same(r):
    words = ["train", "llama-5m", *TINY, "--steps", "1", "--warmup", "1", "--out_dir", r.folder / "parts", "--devices", "2"]
    even, stages = bench(r, *words), bench(r, *words, "--mesh.pp", "2", "--train.global_batch_size", "4")
    ring.require(even.code == 0 and stages.code == 0, "bench train with 2 ranks succeeds", f"{even}\n{stages}")
    ring.check(re.search(r"matrix products .* at [\d.]+ % of peak", even.out), "bench train: products beside the peak", even.out)
    ring.check(not re.search(r" at [\d.]+ % of peak", stages.out), "bench train: not where a rank has a stage of its own", stages.out)


def takes_a_run(r):
    out = r.train("of-a-run", train__max_steps=1)
    data = ["--data", "TextFiles", "--data.train_data_path", str(r.text), "--data.tokenizer", "byte"]
    for topic, *more in (["gemm", "--quick"], ["ops", "--quick"], ["generate", "--quick"], ["data", "--quick", *data], ["train", "--steps", "1", "--warmup", "1"]):
        rows = [] if topic == "generate" else ["--train.micro_batch_size", "1", "--train.max_seq_length", "32"]
        result = bench(r, topic, out, *more, *rows)
        ring.check(result.code == 0, f"bench {topic} takes the newest checkpoint of a run's folder", str(result))
    result = r.run([r.program, "data", "ledger", str(out), "--step", "1", *data, "--train.max_seq_length", "32", "--train.global_batch_size", "2",
                    "--train.micro_batch_size", "1"])
    ring.check(result.code == 0 and "samples 0 to 1" in result.out, "so does data ledger", str(result))


def compares(r):
    gemm, other = r.folder / "gemm.json", r.folder / "gemm-slow.json"
    report = json.loads(gemm.read_text())
    report["rows"][0]["median_seconds"] *= 2 * (1 + report["rows"][0]["spread"])
    other.write_text(json.dumps(report))
    result = bench(r, "compare", gemm, other)
    ring.check(result.code == 0 and "0 faster, 1 slower" in result.out, "bench compare marks the row that became slower", str(result))
    train = r.folder / "train.json"
    result = bench(r, "train", "llama-5m", *TINY, "--steps", "2", "--warmup", "1", "--out_dir", r.folder / "train", "--json", train)
    ring.require(result.code == 0, "bench train succeeds", str(result))
    measured = json.loads(train.read_text())
    parts = sum(seconds for name, seconds in measured["parts"].items() if name != "communication_hidden")
    ring.check(abs(parts / measured["median_seconds"] - 1) < 0.02, "where a step's time goes adds up to the step within 2 %",
               f"{parts} of {measured['median_seconds']}")
    result = bench(r, "compare", train, train)
    ring.check(re.search(r"^before   \d{4}-.*, trireme \d", result.out, re.M), "and says when and where it was measured", str(result))
    old = r.folder / "old.json"
    old.write_text(json.dumps({key: value for key, value in measured.items() if key not in ("date", "machine", "processor", "cores", "libtorch", "trireme")}))
    ring.check(bench(r, "compare", old, old).out.startswith("what "), "an older result, which does not say it, has no empty headings")
    result = bench(r, "compare", train, train)
    ring.check(result.code == 0 and "0 faster, 0 slower" in result.out and "step" in result.out, "bench compare takes bench train's JSON",
               str(result))
    refuses(r, ["compare", gemm, train], "bench gemm", "bench train")
    refuses(r, ["compare", gemm], "two results")
    refuses(r, ["compare", gemm, r.folder / "nowhere.json"], "nowhere.json")
    (r.folder / "text.json").write_text("step")
    refuses(r, ["compare", gemm, r.folder / "text.json"], "text.json", "no benchmark's result")


def checkpoints_are_removed_when_stopped(r):
    """Of one process and of two ranks; the model is large enough that a signal comes in the middle of it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for ranks in (1, 2):
            out = r.folder / f"stopped-{number.name}-{ranks}"
            process = r.start([r.program, "bench", "checkpoint", "llama-32m", "--train.micro_batch_size", "1", "--train.max_seq_length", "64", "--devices", str(ranks), "--out_dir", str(out)])
            ring.wait_for(lambda: any(True for _ in out.glob("checkpoint-*/*")) or process.poll() is not None, "bench checkpoint writes")
            process.send_signal(number)
            result = r.finish(process)
            ring.check(result.code == 75 and not list(out.glob("checkpoint-*")), f"bench checkpoint, {ranks} of --devices: {number.name} leaves nothing, exit code 75", f"{result} {list(out.glob('*'))}")


with ring.Ring(sys.argv[1]) as r:
    teaches(r)
    takes_what_help_lists(r)
    refuses(r, ["gem"], "gem", "did you mean gemm?")
    refuses(r, ["gemm", "lama-32m"], "lama-32m", "llama-32m")
    refuses(r, ["ops", "--threads", "0"], "bench.threads", "at least 1")
    refuses(r, ["scaling", "llama-5m", "--ranks", "two"], "bench.ranks", "two")
    refuses(r, ["scaling", "llama-5m", "--train.global_batch_size", "8"], "train.global_batch_size", "train.micro_batch_size")
    refuses(r, ["collectives", "--devices", "1"], "--devices 2")
    refuses(r, ["collectives", "--comm.backend", "mpi"], "mpirun")
    refuses(r, ["data", "llama-5m", "--data", "TextFiles", "--data.train_data_path", "nowhere.txt"], "nowhere.txt")
    refuses(r, ["checkpoint", "llama-5m", "--train.max_seq_length", "9999"], "9999", "max_position_embeddings")

    takes_a_run(r)
    measures(r, "gemm", "llama-5m", *TINY)
    texts = measures(r, "generate", "llama-5m", *TINY)["rows"]
    ring.check(all("iB of weights" in row["shape"] and " 0.0 GiB" not in row["shape"] for row in texts), "bench generate: a small model's weights have a size", str(texts))
    ring.check(len(texts) == 4 and all(row["values"]["tokens/s"] > 0 for row in texts), "bench generate: 1, 8 and 32 texts, and a prompt", str(texts))
    report = measures(r, "ops", "llama-5m", *TINY)
    timed = {row["name"] for row in report["rows"]}
    missing = declared_operations() - timed
    ring.check(not missing, "bench ops times every function of ops.h", str(missing))
    memory = [row for row in report["rows"] if " in memory" in row["shape"]]  # or its cache, where that holds a quick run's values
    ring.check(len(memory) >= 24 and all(row["unit"] == "GB/s" for row in memory), f"bench ops: {len(memory)} operations beyond the caches")
    report = measures(r, "collectives", "--devices", 2)
    backends = {backend for row in report["rows"] for backend in ("shm", "gloo") if backend in row["shape"]}
    names = {row["name"] for row in report["rows"]}
    ring.check(backends == {"shm", "gloo"} and names == {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                                                       "gather", "scatter", "all_to_all", "send_receive", "barrier"}, "bench collectives: both backends, every call")
    factors = {row["name"]: row["values"]["busbw GB/s"] / row["values"]["algbw GB/s"] for row in report["rows"] if "values" in row}
    ring.check(all(abs(factors[name] - want) < 1e-9 for name, want in
                   {"all_reduce": 1, "reduce_scatter": 0.5, "all_gather": 0.5, "broadcast": 1, "reduce": 1, "gather": 0.5,
                    "scatter": 0.5, "send_receive": 1}.items()),
               "bench collectives: busbw as nccl-tests counts it", str(factors))
    collectives_under_mpirun(r)
    copied = {name: stall_bytes(measures(r, "checkpoint", "llama-5m", *TINY, "--optimizer", name)) for name in ("AdamW", "Lion")}
    ring.check(abs(copied["Lion"] / copied["AdamW"] - 2 / 3) < 1e-6, "bench checkpoint: the stall copies what the optimizer keeps",
               str(copied))
    ring.check(not list((r.folder / "checkpoint").glob("checkpoint-*")), "bench checkpoint removes what it wrote")
    checkpoints_are_removed_when_stopped(r)
    report = measures(r, "data", "llama-5m", *TINY, "--data", "TextFiles", "--data.train_data_path", r.text)
    ring.check({row["unit"] for row in report["rows"]} == {"tokens/s"} and len(report["rows"]) == 3, "bench data: loaders and a step")
    scaling(r)
    classifies(r)
    counts_what_windows_leave(r)
    judges_parts_where_ranks_do_the_same(r)
    compares(r)
    r.require_nothing_is_left("collectives", "all of it")
