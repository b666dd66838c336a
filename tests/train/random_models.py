"""Random models, right and wrong ones, beside transformers: `evaluate`, `generate` and one step of `pretrain` find what it finds, or refuse.

random_models.py TRIREME MODEL_PROBE [COUNT [FIRST]]
Case i is drawn from the seed (SEED, i), so one case is seen again with COUNT 1 and FIRST i. A sample; 700, about 40 of each family, with TRIREME_SLOW=1.
"""

import collections
import concurrent.futures
import json
import logging
import os
import random
import re
import shutil
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import random_shapes
import ring
import tiny_models

torch, transformers, safetensors = ring.judges("torch", "transformers", "safetensors.torch")

SEED = 19
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 700 if ring.SLOW else 20
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 0 if ring.SLOW or len(sys.argv) > 3 else 16
WINDOW, DRAWN, RATE = 24, 10, 0.5
LOSS, UPDATE, TIE = 2e-5, 2e-3, 1e-3  # relative; of the largest change of a tensor; of the logits' standard deviation
TEXT = "the sea was calm and Anne walked to a window of her house where Mr. Knightley stood, na\u00efve".encode()
STEP = ["--train.global_batch_size", 1, "--train.micro_batch_size", 1, "--train.max_steps", 1, "--train.lr_warmup_steps", 0,
        "--train.lr_decay", "constant", "--optimizer", "SGD", "--optimizer.momentum", 0, "--optimizer.weight_decay", 0,
        "--optimizer.lr", RATE, "--train.min_lr", 0, "--train.max_norm", "null", "--eval.final_validation", "false",
        "--train.max_seq_length", WINDOW, "--precision", "32-true", "--launch.threads_per_rank", 1]
# What transformers refuses to build, and Trireme computes all the same, as the numbers say.
ALONE = (r"hidden size .* is not a multiple of the number of attention", r"Field '\w+' expected float, got int",
         r"Field '\w+' with value -?\d+ doesn't match any type in \(<class 'float'>")


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


def load(folder, kind):
    """transformers' model in float32, or why there is none."""
    try:
        model, report = auto(kind).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
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

    def __call__(self, folder):
        out = folder.with_name(folder.name + "-out")
        words = {"evaluate": ["evaluate", folder, "--text", self.text, "--max_seq_length", WINDOW, "--evaluate.json", f"{out}.json"],
                 "generate": ["generate", folder, "--prompt", "the sea", "--temperature", 0, "--max_new_tokens", DRAWN],
                 "pretrain": ["pretrain", folder, "--data", "TextFiles", "--data.train_data_path", self.batch, "--data.val_data_path",
                              self.batch, "--out_dir", out, *STEP]}
        runs = {what: self.pool.submit(self.r.run, [self.r.program, *map(str, w)]) for what, w in words.items()}
        return out, {what: run.result() for what, run in runs.items()}


def compare(model, out, runs):
    """What differs, as a sentence; empty when nothing does."""
    ids = torch.tensor(list(TEXT))
    report = json.loads(out.with_name(out.name + ".json").read_text())["perplexity"]
    with torch.no_grad():
        loss = loss_of(model, ids, report["window"]).item()
    if not abs(report["loss"] / loss - 1) <= LOSS:
        return f"evaluate finds the loss {report['loss']:.6f}, transformers {loss:.6f}"
    wanted, gaps = greedy(model, ids[:7], DRAWN)
    if plain(runs["generate"].out) != plain(shown(wanted) + "\n") and min(gaps) > TIE:
        return f"generate writes {runs['generate'].out!r}, transformers {shown(wanted)!r}"
    loss = loss_of(model, ids[:WINDOW + 1], WINDOW)
    loss.backward()
    ours = ring.metrics(out)[1]["loss"]
    if not abs(ours / loss.item() - 1) <= LOSS:
        return f"pretrain's first loss is {ours:.6f}, transformers' {loss.item():.6f}"
    saved = {}
    for path in (out / "step-00000001").glob("optimizer*.safetensors"):
        saved |= safetensors.load_file(path)
    return compare_step(model, {name.removesuffix(".master"): value for name, value in saved.items()})


def compare_step(model, masters):
    largest = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)
    for name, p in model.named_parameters():
        if p.grad is None:
            continue  # of the vision tower
        names = (name.replace("model.language_model.", "model."), name.removeprefix("transformer."), name.replace("lm_head.", "embed_out."))
        ours = next((masters[n] for n in names if n in masters), None)
        if ours is None:
            return f"pretrain did not save {name}"
        step, wanted = (ours - p.detach()) / -RATE, p.grad
        off = (step - wanted).abs().max().item() / max(wanted.abs().max().item(), 1e-3 * largest)
        if not off <= UPDATE + 1e-6 * p.detach().abs().max().item() / RATE / max(wanted.abs().max().item(), 1e-3 * largest):
            return f"one step moves {name} otherwise than transformers, by {off:.1e} of the largest change"
    return ""


def judge(case, folder, commands):
    """(what came of it, what is to be said of it)"""
    out, runs = commands(folder)
    model, why = load(folder, case.kind)
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
    different = compare(model, out, runs)
    return ("WRONG", different) if different else ("equal", "")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.CRITICAL)
    commands, found, wrong = Commands(r), collections.Counter(), []
    for number in range(FIRST, FIRST + COUNT):
        case = random_shapes.draw(random.Random(f"{SEED} {number}"))
        folder = r.folder / f"model-{number}"
        make(case, number, folder)
        what, said = judge(case, folder, commands)
        found[what] += 1
        if what == "WRONG":
            wrong.append(f"{number}: {case.name}\n  {json.dumps(case.config)}\n  {said}")
            print("WRONG", wrong[-1], flush=True)
        elif os.environ.get("VERBOSE"):
            print(f"{number}: {case.name}: {what} {said}", flush=True)
        for path in (folder, folder.with_name(folder.name + "-out")):
            shutil.rmtree(path, ignore_errors=True)
    ring.require(not wrong, f"{COUNT} random models are as transformers computes them, or refused", f"{len(wrong)} are not")
    ring.check(found["equal"] >= COUNT // 4, f"{COUNT} random models (seed {SEED}): " + ", ".join(f"{n} {what}" for what, n in found.most_common()))
