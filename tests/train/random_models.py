"""Random models beside transformers: `evaluate`, `generate` and one step of `pretrain` find what it finds, or refuse.

random_models.py TRIREME MODEL_PROBE [COUNT [FIRST]]            models of any family, right and wrong ones, in float32
random_models.py TRIREME MODEL_PROBE FAMILY,... COUNT [FIRST]   right ones, in float64, with closer bounds
Case i is drawn from the seed (SEED, i) or (SEED, FAMILY, i), so one case is seen again with COUNT 1 and FIRST i. A sample of both; with
TRIREME_SLOW=1, 700 of the first and 40 of each family.
"""

import collections
import concurrent.futures
import copy
import json
import logging
import os
import random
import re
import shutil
import sys
import typing

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import random_shapes
import ring
import tiny_models

torch, transformers, safetensors = ring.judges("torch", "transformers", "safetensors.torch")

SEED = 19
WINDOW, DRAWN, RATE = 24, 10, 0.5
TIE = 1e-3  # of the logits' standard deviation
TEXT = "the sea was calm and Anne walked to a window of her house where Mr. Knightley stood, na\u00efve".encode()
STEP = ["--train.global_batch_size", 1, "--train.micro_batch_size", 1, "--train.max_steps", 1, "--train.lr_warmup_steps", 0,
        "--train.lr_decay", "constant", "--optimizer", "SGD", "--optimizer.momentum", 0, "--optimizer.weight_decay", 0,
        "--optimizer.lr", RATE, "--train.min_lr", 0, "--train.max_norm", "null", "--eval.final_validation", "false",
        "--train.max_seq_length", WINDOW, "--launch.threads_per_rank", 1,
        "--model.attention_dropout", 0, "--model.residual_dropout", 0, "--model.embedding_dropout", 0]
# A family in the quick sample, each once.
SAMPLE = ("phi3", "olmo2", "smollm3", "gpt_neox", "qwen2_vl")
# What transformers refuses to build, and Trireme computes all the same, as the numbers say.
ALONE = (r"hidden size .* is not a multiple of the number of attention", r"Field '\w+' expected float, got int",
         r"Field '\w+' with value -?\d+ doesn't match any type in \(<class 'float'>")


class Bounds(typing.NamedTuple):
    """How near to transformers: losses relatively, a step's changes relatively to the largest change of a tensor."""
    precision: str
    dtype: torch.dtype
    loss: float
    update: float


# transformers computes norms and the softmax of scores in float32, whatever the model's dtype is.
NARROW, WIDE = Bounds("32-true", torch.float32, 2e-5, 2e-3), Bounds("64-true", torch.float64, 1e-6, 1e-4)


def make(case, number, folder):
    """A folder as transformers writes it, then as the case's changes leave it."""
    config = transformers.AutoConfig.for_model(case.kind, **case.config)
    model = auto(case.kind).from_config(config, attn_implementation="eager")
    tiny_models.redraw(model, f"random {SEED} {number}")
    model.to(getattr(torch, case.dtype)).save_pretrained(folder, max_shard_size=case.shard_bytes)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(case.config.get("text_config", case.config)["vocab_size"]))
    for _, change in case.changes:
        change_folder(folder, change)
    return folder


def auto(kind):
    """The class that opens a folder of this kind: language models, and models that see and write."""
    return getattr(transformers, "AutoModelForImageTextToText" if kind in ("mistral3", "qwen2_vl") else "AutoModelForCausalLM")


def change_folder(folder, change):
    files = sorted(folder.glob("model*.safetensors"))
    tensors = {}
    for path in files:
        try:
            tensors |= safetensors.load_file(path)
        except Exception:  # an earlier change has cut it
            return
    before = dict(tensors)
    after = change(folder, tensors)
    if after is None or after.keys() == before.keys() and all(after[n] is before[n] for n in after):
        return
    for path in files:
        path.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    safetensors.save_file(after, folder / "model.safetensors", metadata={"format": "pt"})


def load(folder, kind, dtype):
    """transformers' model, or why there is none."""
    try:
        model, report = auto(kind).from_pretrained(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
        bad = {k: sorted(map(str, v))[:3] for k, v in report.items() if v}
        if bad:
            return None, f"does not fit: {bad}"
        if not model(torch.tensor([list(TEXT[:WINDOW])])).logits.isfinite().all():
            return None, "computes numbers that are not finite"
        return model.eval(), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def loss_of(model, ids, window):
    total = 0.0
    for begin in range(0, len(ids) - 1, window):
        y = ids[begin + 1:begin + window + 1]
        total += torch.nn.functional.cross_entropy(model(ids[None, begin:begin + len(y)]).logits[0], y, reduction="sum")
    return total / (len(ids) - 1)


def greedy(model, ids, count):
    """Tokens, and how far the second likeliest was behind each, in standard deviations."""
    gaps = []
    with torch.no_grad():
        for _ in range(count):
            logits = model(ids[None]).logits[0, -1]
            first, second = logits.topk(2).values
            gaps.append(((first - second) / logits.std()).item())
            ids = torch.cat([ids, logits.argmax()[None]])
    return ids.tolist(), gaps


def shown(ids):
    return b"".join(bytes([i]) if i < 256 else f"<{i}>".encode() for i in ids).decode(errors="replace")


def plain(text):
    """What Python reads of a pipe, and of bytes that are no text."""
    return re.sub("\ufffd+", "\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


class Commands:
    """Runs the three commands on a folder."""

    def __init__(self, r):
        self.r, self.text, self.batch = r, r.folder / "judged.txt", r.folder / "batch.txt"
        self.text.write_bytes(TEXT)
        self.batch.write_bytes(TEXT[:WINDOW + 1])
        self.pool = concurrent.futures.ThreadPoolExecutor(2)

    def __call__(self, folder, bounds):
        out = folder.with_name(folder.name + "-out")
        words = {"evaluate": self.evaluation(folder, bounds),
                 "generate": ["generate", folder, "--prompt", "the sea", "--temperature", 0, "--max_new_tokens", DRAWN, "--precision", bounds.precision],
                 "pretrain": ["pretrain", folder, "--data", "TextFiles", "--data.train_data_path", self.batch, "--data.val_data_path",
                              self.batch, "--out_dir", out, *STEP, "--precision", bounds.precision]}
        runs = {what: self.pool.submit(self.run, w) for what, w in words.items()}
        return out, {what: run.result() for what, run in runs.items()}

    def run(self, words):
        return self.r.run([self.r.program, *map(str, words)])

    def evaluation(self, folder, bounds):
        return ["evaluate", folder, "--text", self.text, "--max_seq_length", WINDOW, "--evaluate.json", f"{folder}.json", "--precision", bounds.precision]


def evaluated(model, folder, bounds, what):
    """Whether evaluate's report is transformers' too."""
    report = json.loads(folder.with_name(folder.name + ".json").read_text())["perplexity"]
    with torch.no_grad():
        loss = loss_of(model, torch.tensor(list(TEXT)), report["window"]).item()
    off = abs(report["loss"] / loss - 1)
    furthest[bounds] = max(furthest[bounds], off)
    return "" if off <= bounds.loss else f"{what}: evaluate finds the loss {report['loss']:.9f}, transformers {loss:.9f}"


def compare(commands, case, folder, model, out, runs, bounds):
    """What differs, as a sentence; empty when nothing does."""
    ids = torch.tensor(list(TEXT))
    if different := evaluated(model, folder, bounds, "as it was made"):
        return different
    wanted, gaps = greedy(model, ids[:7], DRAWN)
    if plain(runs["generate"].out) != plain(shown(wanted) + "\n") and min(gaps) > TIE:
        return f"generate writes {runs['generate'].out!r}, transformers {shown(wanted)!r}"
    loss = loss_of(model, ids[:WINDOW + 1], WINDOW)
    loss.backward()
    ours = ring.metrics(out)[1]["loss"]
    if not abs(ours / loss.item() - 1) <= bounds.loss:
        return f"pretrain's first loss is {ours:.9f}, transformers' {loss.item():.9f}"
    saved = {}
    for path in (out / "step-00000001").glob("optimizer*.safetensors"):
        saved |= safetensors.load_file(path)
    masters = {name.removesuffix(".master"): value for name, value in saved.items() if name.endswith(".master")}
    return compare_step(model, masters, bounds) or reopened(commands, case, out / "step-00000001", masters, bounds)


def found_in(tensors, name):
    """A parameter of transformers' under its name in our files."""
    names = (name.replace("model.language_model.", "model."), name.removeprefix("transformer."), name.replace("lm_head.", "embed_out."))
    return next((tensors[n] for n in names if n in tensors), None)


def compare_step(model, masters, bounds):
    largest = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)
    # Weights after the step have their rounding: in float32 here too, as they are saved.
    rounding = 1e-6 if bounds is NARROW else 0
    unsure = None
    for name, p in model.named_parameters():
        if p.grad is None:
            continue  # of the vision tower
        ours = found_in(masters, name)
        if ours is None:
            return f"pretrain did not save {name}"
        step, wanted = (ours - p.detach()) / -RATE, p.grad
        scale = max(wanted.abs().max().item(), 1e-3 * largest)
        off = (step - wanted).abs().max().item() / scale
        if off <= bounds.update + rounding * p.detach().abs().max().item() / RATE / scale:
            continue
        unsure = unsure or moved_by_rounding(model)
        if not off <= unsure[name] / scale:
            return f"one step moves {name} otherwise than transformers, by {off:.1e} of the largest change"
        steep[bounds] += 1
    return ""


def moved_by_rounding(model):
    """How far transformers' own gradients move when float32 rounds the weights, at most: in a few models that is more than the bounds."""
    source, ids, most = torch.Generator().manual_seed(SEED), torch.tensor(list(TEXT[:WINDOW + 1])), collections.defaultdict(float)
    for _ in range(8):
        nudged = copy.deepcopy(model)
        nudged.zero_grad()
        with torch.no_grad():
            for p in nudged.parameters():
                p.mul_(1 + 2**-24 * torch.randn(p.shape, generator=source, dtype=p.dtype))
        loss_of(nudged, ids, WINDOW).backward()
        for (name, p), q in zip(model.named_parameters(), nudged.parameters()):
            if p.grad is not None:
                most[name] = max(most[name], (q.grad - p.grad).abs().max().item())
    return most


def reopened(commands, case, saved, masters, bounds):
    """The checkpoint in transformers: all weights under its names, the values of the masters, and the loss that evaluate finds."""
    result = commands.run(commands.evaluation(saved, bounds))
    if result.code != 0:
        return f"evaluate does not open what pretrain saved: {result}"
    model, why = load(saved, json.loads((saved / "config.json").read_text())["model_type"], bounds.dtype)
    if model is None:
        return f"transformers does not open what pretrain saved: {why}"
    for name, p in model.named_parameters():
        ours = found_in(masters, name)
        # No further off than PyTorch's rounding, which rounds float64 to two bytes in two steps.
        if ours is None or ((p - ours).abs() > (ours.to(getattr(torch, case.dtype)) - ours).abs()).any():
            return f"the weights that pretrain saved are not those of the step: {name}"
    return evaluated(model, saved, bounds, "saved after a step")


def judge(case, folder, commands, bounds):
    """(what came of it, what is to be said of it)"""
    out, runs = commands(folder, bounds)
    model, why = load(folder, case.kind, bounds.dtype)
    refused = [what for what, run in runs.items() if run.code != 0]
    for what in refused:
        run = runs[what]
        if run.code != 2 or run.err.count("error:") != 1:
            return "WRONG", f"{what} ends with exit code {run.code}\n{run}"
    if refused and len(refused) < len(runs):
        return "WRONG", f"{' and '.join(refused)} refuse, the others do not: {runs[refused[0]].err}"
    if refused:
        said = runs["evaluate"].err.strip()
        if model is not None and not case.changes:
            return "WRONG", f"a right model is refused: {said}"
        return ("refused here alone" if model is not None else "refused by both"), said
    if model is None:
        if any(re.search(pattern, why, re.S) for pattern in ALONE):
            return "computed here alone", why
        return "WRONG", f"transformers does not compute it, Trireme does\n{why}"
    different = compare(commands, case, folder, model, out, runs, bounds)
    return ("WRONG", different) if different else ("equal", "")


def run_all(r, what, cases, bounds):
    """Judges (number, case) one by one; how many came to what end."""
    found, wrong = collections.Counter(), []
    for number, case in cases:
        folder = r.folder / f"model-{number}".replace(" ", "-")
        make(case, number, folder)
        end, said = judge(case, folder, commands, bounds)
        found[end] += 1
        if end == "WRONG":
            wrong.append(f"{number}: {case.name}\n  {json.dumps(case.config)}\n  {said}")
            print("WRONG", wrong[-1], flush=True)
        elif os.environ.get("VERBOSE"):
            print(f"{number}: {case.name}: {end} {said}", flush=True)
        for path in (folder, folder.with_name(folder.name + "-out")):
            shutil.rmtree(path, ignore_errors=True)
    ring.require(not wrong, f"{what} are as transformers computes them, or refused", f"{len(wrong)} are not")
    return found


def any_models(count, first):
    return [(number, random_shapes.draw(random.Random(f"{SEED} {number}"))) for number in range(first, first + count)]


def right_models(kind, count, first):
    numbers = [f"{kind} {i}" for i in range(first, first + count)]
    return [(number, random_shapes.draw_right(random.Random(f"{SEED} {number}"), kind)) for number in numbers]


def judge_any(r, count, first):
    found = run_all(r, f"{count} random models", any_models(count, first), NARROW)
    ring.check(found["equal"] >= count // 4, f"{count} random models (seed {SEED}): " + ", ".join(f"{n} {end}" for end, n in found.most_common()))


def judge_right(r, kinds, count, first):
    for kind in kinds:
        found = run_all(r, f"{count} of {kind}", right_models(kind, count, first), WIDE)
        ring.check(found["equal"] == count, f"{kind}: {count} random models equal transformers', losses within {furthest[WIDE]:.0e}; "
                   f"{steep[WIDE]} gradients of models that rounding moves further than the bound", str(found))
        furthest[WIDE] = steep[WIDE] = 0


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.CRITICAL)
    commands, furthest, steep = Commands(r), collections.defaultdict(float), collections.Counter()
    words = sys.argv[3:]
    numbers = [int(word) for word in words if word.isdigit()]
    if words and not words[0].isdigit():
        judge_right(r, random_shapes.FAMILIES if words[0] == "all" else words[0].split(","), numbers[0], *(numbers[1:] or [0]))
    elif words:
        judge_any(r, numbers[0], *(numbers[1:] or [0]))
    else:
        judge_any(r, *((700, 0) if ring.SLOW else (14, 16)))
        judge_right(r, *((random_shapes.FAMILIES, 40, 0) if ring.SLOW else (SAMPLE, 1, 0)))
