"""Models that classify texts beside PyTorch's nn.TransformerEncoder and transformers: logits, losses, gradients, files; padding; a task.

classification.py TRIREME MODEL_PROBE [COUNT [FIRST]]
Case i of the random models is drawn from the seed (SEED, i). A sample; 40 of each kind with TRIREME_SLOW=1.
"""

import json
import os
import random
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import ring
import tiny_models

torch, transformers, safetensors, tokenizers = ring.judges("torch", "transformers", "safetensors.torch", "tokenizers")

SEED = 25
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 40 if ring.SLOW else 1
FIRST = int(sys.argv[4]) if len(sys.argv) > 4 else 0
STEP = ["--train.max_steps", 1, "--train.lr_warmup_steps", 0, "--train.lr_decay", "constant", "--optimizer", "SGD", "--optimizer.momentum", 0,
        "--optimizer.weight_decay", 0, "--optimizer.lr", 1, "--train.min_lr", 0, "--train.max_norm", "null", "--eval.final_validation", "false",
        "--precision", "64-true", "--launch.threads_per_rank", 1]
LABELS = ["blue", "green", "red"]
WORDS = ring.WORDS
EXACT = 1e-9  # float64, relative to the largest element


def texts_of(draw, count, longest):
    return [{"text": " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 8)))[:longest], "label": draw.choice(LABELS)} for _ in range(count)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def program(r, *words, code=0):
    result = r.run([r.program, *map(str, words)])
    ring.require(result.code == code, f"trireme {' '.join(map(str, words))} ends with {code}", str(result))
    return result


def batch_of(rows):
    """Token ids, and a mask that is True at padding."""
    ids = [list(row["text"].encode()) for row in rows]
    longest = max(map(len, ids))
    mask = torch.tensor([[False] * len(i) + [True] * (longest - len(i)) for i in ids])
    return torch.tensor([i + [0] * (longest - len(i)) for i in ids]), mask


def predict(r, folder, data, out, *more):
    program(r, "evaluate", folder, "--classify", data, "--predictions", out, "--evaluate.json", f"{out}.json", *more)
    return torch.tensor([json.loads(line)["logits"] for line in out.read_bytes().splitlines()], dtype=torch.float64)


def masters(folder):
    """The weights in float64, as the optimizer keeps them."""
    tensors = {}
    for file in folder.glob("optimizer-*.safetensors"):
        tensors |= {name.removesuffix(".master"): t for name, t in safetensors.load_file(file).items() if name.endswith(".master")}
    return tensors


def require_close(got, want, what, tolerance=EXACT):
    distance = (got - want).abs().max().item() / max(want.abs().max().item(), 1e-12)
    ring.require(distance < tolerance, what, f"differs by {distance:.2g} of its largest element")


class Plain(torch.nn.Module):
    """An encoder of PyTorch's own layers, with the names that a folder of model_type encoder has."""

    def __init__(self, c):
        super().__init__()
        width, pre = c["hidden_size"], c["norm_placement"] == "pre"
        layer = torch.nn.TransformerEncoderLayer(width, c["num_attention_heads"], c["intermediate_size"], 0.0, c["hidden_act"],
                                                 c["layer_norm_eps"], batch_first=True, norm_first=pre)
        norm = torch.nn.LayerNorm(width, c["layer_norm_eps"]) if pre else None
        self.embeddings = torch.nn.ModuleDict({"tokens": torch.nn.Embedding(c["vocab_size"], width),
                                               "positions": torch.nn.Embedding(c["max_position_embeddings"], width)})
        self.encoder = torch.nn.TransformerEncoder(layer, c["num_hidden_layers"], norm, enable_nested_tensor=False)
        self.classifier = torch.nn.Linear(width, len(LABELS))
        self.pooling = c["pooling"]

    def forward(self, ids, mask):
        x = self.embeddings["tokens"](ids) + self.embeddings["positions"](torch.arange(ids.shape[1]))
        x = self.encoder(x, src_key_padding_mask=mask)
        if self.pooling == "cls":
            return self.classifier(x[:, 0])
        seen = (~mask).unsqueeze(2)
        if self.pooling == "last":
            return self.classifier(x[torch.arange(len(ids)), seen.sum(1).squeeze(1) - 1])
        return self.classifier((x * seen).sum(1) / seen.sum(1))


def apart(tensors):
    """PyTorch's names -> ours: q, k and v are three matrices in files."""
    named = {}
    for name, tensor in tensors.items():
        kind = "weight" if name.endswith("in_proj_weight") else "bias" if name.endswith("in_proj_bias") else None
        if kind:
            for part, piece in zip("qkv", tensor.chunk(3)):
                named[name.replace(f"in_proj_{kind}", f"{part}_proj.{kind}")] = piece.clone()
        else:
            named[name] = tensor.clone()
    return named


def check_training(r, name, folder, model, logits_of, names, rows, data, more=(), tolerance=EXACT):
    """Logits, the loss and the gradients of one batch, in float64."""
    before = names({n: p.detach() for n, p in model.named_parameters()})
    loss = torch.nn.functional.cross_entropy(logits_of(rows), torch.tensor([LABELS.index(row["label"]) for row in rows]))
    loss.backward()
    if ring.SLOW or not isinstance(model, Plain):
        require_close(predict(r, folder, data, r.folder / "logits.jsonl", "--precision", "64-true"), logits_of(rows).detach(), f"{name}: logits", tolerance)
    out = r.folder / "out"
    program(r, "finetune_full", folder, "--task", "classify", "--data", "JSON", "--data.json_path", data, "--data.val_data_path", data,
            "--train.global_batch_size", len(rows), "--out_dir", out, "--overwrite", "true", *STEP, *more)
    got = json.loads((out / "metrics.jsonl").read_bytes().splitlines()[-1])["loss"]
    ring.require(abs(got - loss.item()) < tolerance * loss.item(), f"{name}: the loss", f"{got} and {loss.item()}")
    after = masters(next(out.glob("step-*")))
    gradients = names({n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()})
    ring.require(after.keys() == before.keys(), f"{name}: the saved tensors", str(after.keys() ^ before.keys()))
    # Keys' biases change no attention: their gradients are rounding.
    largest = max(g.abs().max().item() for g in gradients.values())
    for n, gradient in gradients.items():
        distance = (before[n] - after[n] - gradient).abs().max().item()
        ring.require(distance < 10 * tolerance * max(gradient.abs().max().item(), 1e-3 * largest), f"{name}: the gradient of {n}", f"{distance} of {largest}")
    return out


def redraw(model, draw):
    torch.manual_seed(draw.randrange(1 << 30))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * (1.5 / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.3) + (1 if p.dim() == 1 else 0) * p)


def plain_case(r, number, placement, activation):
    draw = random.Random(f"{SEED} {number} {placement} {activation}")
    heads = draw.choice([1, 2, 3])
    c = {"architectures": ["TriremeEncoderForSequenceClassification"], "model_type": "encoder", "vocab_size": 256, "hidden_size": heads * draw.choice([8, 12]),
         "intermediate_size": draw.choice([24, 40]), "num_hidden_layers": draw.choice([1, 2, 3]), "num_attention_heads": heads,
         "max_position_embeddings": 80, "layer_norm_eps": 1e-5, "hidden_act": activation, "norm_placement": placement,
         "pooling": draw.choice(["mean", "cls", "last"]), "id2label": dict(enumerate(LABELS))}
    model = Plain(c).double()
    redraw(model, draw)
    folder = r.folder / "plain"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c))
    safetensors.save_file({n: t.contiguous() for n, t in apart(model.state_dict()).items()}, folder / "model.safetensors")
    rows = texts_of(draw, draw.choice([3, 4, 6]), 70)
    data = write(r.folder / "plain.jsonl", rows)
    more = draw.choice([[], ["--recompute", "full"], ["--train.micro_batch_size", 1], ["--devices", 3, "--train.micro_batch_size", 1]])
    check_training(r, f"{placement}-norm {activation} {number}", folder, model, lambda rows: model(*batch_of(rows)), apart, rows, data,
                   ["--train.max_seq_length", 72, *more])


KINDS = {
    "bert": lambda d: transformers.BertConfig(hidden_size=32, num_attention_heads=4, intermediate_size=40, type_vocab_size=2),
    "roberta": lambda d: transformers.RobertaConfig(hidden_size=32, num_attention_heads=2, intermediate_size=40, type_vocab_size=1),
    "distilbert": lambda d: transformers.DistilBertConfig(dim=32, n_heads=4, hidden_dim=40),
    "llama": lambda d: transformers.LlamaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40),
    "gpt2": lambda d: transformers.GPT2Config(n_embd=32, n_head=4, n_inner=40),
    "qwen2": lambda d: transformers.Qwen2Config(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40),
    "gpt_neox": lambda d: transformers.GPTNeoXConfig(hidden_size=32, num_attention_heads=2, intermediate_size=40),
}


def family_case(r, number, kind):
    draw = random.Random(f"{SEED} {number} {kind}")
    config = KINDS[kind](draw)
    own = {"vocab_size": 260, "num_hidden_layers": draw.choice([1, 2]), "n_layers": 2, "n_layer": 2, "max_position_embeddings": 90, "n_positions": 90,
           "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config.update({k: v for k, v in own.items() if k in config.to_dict()} | {
        "id2label": dict(enumerate(LABELS)), "label2id": {l: i for i, l in enumerate(LABELS)}, "pad_token_id": 1 if kind == "roberta" else 259})
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * own["num_hidden_layers"]
    if kind in ("bert", "roberta"):
        config.hidden_act = draw.choice(["gelu", "relu", "gelu_new"])
    for key in ("dropout", "attention_dropout", "seq_classif_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "classifier_dropout", "hidden_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    config.bos_token_id = config.eos_token_id = None
    model = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").double()
    redraw(model, draw)
    pad = config.pad_token_id

    def logits_of(rows):
        ids, mask = batch_of(rows)
        return model.eval()(ids.masked_fill(mask, pad), attention_mask=(~mask).long()).logits

    folder = r.folder / kind
    model.save_pretrained(folder)
    rows = texts_of(draw, 4, 70)
    data = write(r.folder / f"{kind}.jsonl", rows)
    # transformers computes the norms and rotations of its decoders in float32.
    out = check_training(r, f"{kind} {number}", folder, model, logits_of, lambda tensors: {n: t.clone() for n, t in tensors.items()}, rows, data,
                         tolerance=EXACT if kind in ("bert", "roberta", "distilbert") else 1e-5)
    # What we save, transformers opens, and computes the same.
    saved = next(out.glob("step-*"))
    reopened, report = transformers.AutoModelForSequenceClassification.from_pretrained(saved, dtype=torch.float32, output_loading_info=True)
    bad = {k: v for k, v in report.items() if v}
    ring.require(not bad and reopened.config.id2label == dict(enumerate(LABELS)), f"{kind}: transformers opens what is saved", f"{bad} {reopened.config.id2label}")
    ids, mask = batch_of(rows)
    want = reopened.eval()(ids.masked_fill(mask, pad), attention_mask=(~mask).long()).logits.double().detach()
    require_close(predict(r, saved, data, r.folder / "again.jsonl", "--precision", "32-true"), want, f"{kind}: logits of the saved model", 1e-5)


def check_padding_token(r):
    """transformers refuses batches of a decoder that names no token for padding: the tokenizer's is named."""
    config = transformers.LlamaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40, vocab_size=263,
                                      num_hidden_layers=1, max_position_embeddings=90, bos_token_id=None, eos_token_id=None)
    rows = texts_of(random.Random(f"{SEED} padding token"), 40, 70)
    data = write(r.folder / "pads.jsonl", rows)
    folder = r.folder / "pads"
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(263, ("<end>", "<pad>")))
    for named, want in (("<pad>", 257), (None, None)):
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"} | ({"pad_token": named} if named else {})))
        out = r.folder / "pads-out"
        result = program(r, "finetune_full", folder, "--task", "classify", "--data", "JSON", "--data.json_path", data, "--train.max_steps", 1,
                         "--train.global_batch_size", 4, "--out_dir", out, "--overwrite", "true")
        saved = next(out.glob("step-*"))
        got = json.loads((saved / "config.json").read_text()).get("pad_token_id")
        ring.require(got == want and ("names a token for padding" in result.out) == (want is None), f"pad_token {named}: {got}", str(result))
        if want:
            model = transformers.AutoModelForSequenceClassification.from_pretrained(saved)
            ids, mask = batch_of(rows)
            logits = model(ids.masked_fill(mask, want), attention_mask=(~mask).long()).logits
            ring.require(len(logits) == len(rows), "transformers takes several texts at once", str(logits.shape))
    ring.check(True, "a classifying decoder names the tokenizer's token for padding, or its start says that there is none")


def check_padding_at_ends(r):
    """A decoder is judged at the last token that is no padding, also where a text or its tokenizer ends with one."""
    config = transformers.LlamaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40, vocab_size=263, num_labels=3,
                                      num_hidden_layers=2, max_position_embeddings=90, bos_token_id=None, eos_token_id=257, pad_token_id=257)
    folder = r.folder / "pads-behind"
    torch.manual_seed(SEED % 1000)
    model = transformers.LlamaForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    tokens = json.loads(tiny_models.tokenizer_json(263, ("<end>", "<pad>")))
    behind = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<pad>", "type_id": 0}}], "pair": [],
              "special_tokens": {"<pad>": {"id": "<pad>", "ids": [257], "tokens": ["<pad>"]}}}
    rows = [{"text": text} for text in ("the sea", "a<pad>b", "land<pad><pad>")]
    data = write(r.folder / "pads-behind.jsonl", rows)
    for processor in (None, behind):
        (folder / "tokenizer.json").write_text(json.dumps(tokens | {"post_processor": processor}))
        read = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = [read.encode(row["text"]).ids for row in rows]
        want = torch.cat([model(torch.tensor([one])).logits for one in ids]).detach().double()
        got = predict(r, folder, data, r.folder / "pads-behind.out", "--precision", "32-true")
        require_close(got, want, f"texts that end with padding, of {ids}", 1e-5)
    ring.check(True, "a text's padding at its end is not what a decoder is judged at")


def check_starts(r):
    """From a model without a head, with other names, and from nothing."""
    draw = random.Random(SEED)
    config = transformers.BertConfig(hidden_size=32, num_attention_heads=4, intermediate_size=40, num_hidden_layers=2, vocab_size=260, max_position_embeddings=90)
    data = write(r.folder / "starts.jsonl", texts_of(draw, 40, 70))
    step = ["--task", "classify", "--data", "JSON", "--data.json_path", data, "--train.max_steps", 1, "--train.global_batch_size", 4]
    for name, model in {"BertModel": transformers.BertModel(config), "BertForMaskedLM": transformers.BertForMaskedLM(config),
                        "an early BertModel": transformers.BertModel(config)}.items():
        if name == "BertModel" and not ring.SLOW:  # the early one has the same names
            continue
        redraw(model, draw)
        folder, out = r.folder / "headless", r.folder / "headless-out"
        model.save_pretrained(folder)
        if name.startswith("an early"):
            tensors = safetensors.load_file(folder / "model.safetensors")
            old = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t for n, t in tensors.items()}
            safetensors.save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
        result = program(r, "finetune_full", folder, *step, "--out_dir", out, "--overwrite", "true", "--optimizer.lr", 1e-30, "--precision", "32-true")
        ring.require("head     new" in result.out, f"{name}: the new head is said", result.out)
        ring.require("attention_probs_dropout_prob are passed over" in result.out.replace("\n", " "), "dropout of the folder is said to be left out", result.out)
        opened, report = transformers.AutoModelForSequenceClassification.from_pretrained(next(out.glob("step-*")), output_loading_info=True)
        body = opened.bert.state_dict()
        kept = {n.removeprefix("bert."): t for n, t in model.state_dict().items() if not n.startswith("cls.")}
        ring.require(not any(report.values()) and all(torch.equal(body[n], t) for n, t in kept.items()), f"{name}: keeps its weights", str(report))
    for words in (["bert-tiny"], ["llama-5m", "--model.bidirectional", "true", "--model.norm_placement", "post", "--model.hidden_act", "relu"]) if ring.SLOW else (["bert-tiny"],):
        program(r, "finetune_full", *words, "--model.num_hidden_layers", 1, *step, "--out_dir", r.folder / "new", "--overwrite", "true")
    # The labels' order is their meaning: with another one, the head is new. Labels without names get some.
    unnamed = [f"LABEL_{i}" for i in range(3)]
    for old, is_new in ((LABELS, True), (unnamed, False)) if ring.SLOW else ((LABELS, True),):
        model = transformers.BertForSequenceClassification(transformers.BertConfig(**{**config.to_dict(), "id2label": dict(enumerate(old))}))
        redraw(model, draw)
        model.save_pretrained(r.folder / "renamed")
        result = program(r, "finetune_full", r.folder / "renamed", *step, "--model.labels", "[red, green, blue]", "--out_dir", r.folder / "renamed-out",
                         "--overwrite", "true", "--optimizer.lr", 1e-30, "--precision", "32-true")
        saved = safetensors.load_file(next((r.folder / "renamed-out").glob("step-*")) / "model.safetensors")
        kept = {n: torch.equal(saved[n], t) for n, t in model.state_dict().items() if n in saved}
        ring.require(is_new == ("head     new" in result.out) and all(same != (is_new and n == "classifier.weight") for n, same in kept.items() if n != "classifier.bias"),
                     f"a head for {old} gets the labels red, green, blue", f"{result.out}\n{kept}")
    (r.folder / "renamed/model.safetensors").rename(r.folder / "renamed/pytorch_model.bin")
    result = program(r, "finetune_full", r.folder / "renamed", *step, "--out_dir", r.folder / "renamed-out", "--overwrite", "true", code=2)
    ring.require("which only trireme convert reads" in result.err, "weights that are not read are not replaced by new ones", result.err)
    ring.check(True, "training starts from models without a head, old names of norms, other labels, and from nothing")


def check_padding(r):
    """The same texts, beside longer ones and with more room behind them."""
    model = r.folder / "bert"
    rows = texts_of(random.Random(f"{SEED} padding"), 6, 20)
    logits = []
    for more in [], [{"text": "x" * 80}]:
        data = write(r.folder / "padding.jsonl", rows + more)
        logits.append(predict(r, model, data, r.folder / "padding.out", "--precision", "32-true")[:len(rows)])
    ring.require(torch.equal(*logits), "texts beside longer ones have the same logits, to the bit")
    losses = []
    for length in (24, 88):
        data = write(r.folder / "padding.jsonl", rows)
        out = r.folder / "padding-out"
        program(r, "finetune_full", model, "--task", "classify", "--data", "JSON", "--data.json_path", data, "--data.val_data_path", data,
                "--train.max_seq_length", length, "--train.global_batch_size", 6, "--train.micro_batch_size", 2, "--out_dir", out, "--overwrite", "true",
                *(w if w != "64-true" else "32-true" for w in STEP))
        weights = safetensors.load_file(next(out.glob("step-*")) / "model.safetensors")
        losses.append((json.loads((out / "metrics.jsonl").read_bytes().splitlines()[-1])["loss"], weights))
    for loss, weights in losses[1:]:
        ring.require(loss == losses[0][0], "more padding changes no bit of the loss", f"{loss} and {losses[0][0]}")
        for n, t in weights.items():  # a longer row is summed in other parts
            require_close(t, losses[0][1][n], f"more padding leaves {n} as it is, but for rounding", 2e-6)
    ring.check(True, "padding changes nothing: logits and losses to the bit")


def task_rows(count, seed):
    """Which of two words comes first decides: no single word does."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = [draw.choice("abcdefgh") for _ in range(draw.randint(2, 6))]
        first, second = sorted(draw.sample(range(len(words) + 2), 2))
        order = draw.choice([("x", "y"), ("y", "x")])
        words.insert(first, order[0])
        words.insert(second, order[1])
        rows.append({"text": "".join(words), "label": "x first" if order[0] == "x" else "y first"})
    return rows


def check_task(r):
    data = write(r.folder / "task.jsonl", task_rows(4000, 1))
    held_out = write(r.folder / "held_out.jsonl", task_rows(400, 2))
    out = r.folder / "task"
    result = program(r, "finetune_full", "bert-tiny", "--task", "classify", "--data", "JSON", "--data.json_path", data, "--data.val_data_path", held_out,
                     "--model.vocab_size", 256, "--model.hidden_size", 32, "--model.intermediate_size", 64, "--model.num_attention_heads", 2,
                     "--train.max_seq_length", 16, "--train.global_batch_size", 64, "--train.micro_batch_size", 16, "--train.max_steps", 200,
                     "--optimizer.lr", 4e-3, "--devices", 2, "--out_dir", out, "--eval.interval", 100, "--launch.threads_per_rank", 1, "--precision", "32-true")
    last = json.loads((out / "metrics.jsonl").read_bytes().splitlines()[-1])
    accuracy, f1 = last["measures"]["val_accuracy"], last["measures"]["val_macro_f1"]
    ring.require(accuracy >= 0.95 and f1 >= 0.95 and "val acc" in result.out, "a small task learns to 0.95 held out", f"{last}\n{result}")
    ring.require("none is longer than 16 tokens; order seed" in result.out, "no text is cut", result.out)
    report = r.folder / "report.json"
    program(r, "evaluate", out, "--classify", held_out, "--evaluate.json", report)
    for words, told in ((["--quantize", "q8_0"], "labels are predicted with all bits"), (["--adapter", out], "by a model without an adapter")):
        refused = r.run([r.program, "evaluate", str(out), "--classify", str(held_out), *map(str, words)])
        ring.check(refused.code == 2 and told in refused.err, f"evaluate --classify refuses {words[0]}", str(refused))
    again = json.loads(report.read_text())["classify"]
    ring.require(abs(again["accuracy"] - accuracy) < 1e-9 and abs(again["macro_f1"] - f1) < 1e-9 and abs(again["loss"] - last["val_loss"]) < 1e-5,
                 "trireme evaluate finds the same", f"{again} {last}")
    ring.check(True, f"a small task is learned to {accuracy:.3f} held out on two ranks, in {result.seconds:.1f} s")
    # It goes on where it was, with the labels that it has.
    program(r, "pretrain", "--resume", out, "--train.max_steps", 202, "--launch.threads_per_rank", 1)
    config = json.loads((out / "step-00000202" / "config.json").read_text())
    ring.require(config["id2label"] == {"0": "x first", "1": "y first"}, "the labels' names are in every checkpoint", str(config))
    result = program(r, "pretrain", "--resume", out, "--train.max_steps", 204, "--model.labels", "[y first, x first]", "--data.on_change", "restart", code=2)
    ring.require("has a head for the labels x first, y first, and model.labels are y first, x first" in result.err, "a resumed run keeps its labels", result.err)
    other = write(r.folder / "other.jsonl", [*task_rows(100, 3), {"text": "ab", "label": "neither"}])
    result = program(r, "pretrain", "--resume", out, "--train.max_steps", 204, "--data.train_data_path", other, "--data.on_change", "restart", code=2)
    ring.check("the label 'neither' is none of the 2 of the model's head (x first, y first)" in result.err, "a label that the head lacks is refused at a resume", result.err)


def check_refusals(r):
    rows = texts_of(random.Random(3), 30, 60)
    good = write(r.folder / "good.jsonl", rows)
    cores = r.folder / "cores.yaml"
    cores.write_text("name: cores\nmemory: 16\nmemory_rate: 20\npeak: {fp32: 0.1}\nhost: {memory: 16}\nshares_cores: true\n")
    program(r, "finetune_full", "bert-tiny", "--dry_run", "--train.max_steps", 1, "--data.json_path", "none.jsonl", "--task", "classify", "--model.num_labels", 3)
    program(r, "explain", "memory", "bert-tiny", "--task", "classify", "--model.num_labels", 3)
    for words in (["explain", "memory"], ["plan", "--cluster", f"1x{cores}"]):
        named = [*words, "--model", "bert-tiny", "--task", "classify", "--data", "JSON", "--data.json_path", "none.jsonl"]
        program(r, *named, "--model.num_labels", 3)
        result = program(r, *named, code=2)
        ring.require("none.jsonl" in result.err and "or say how many labels there are: --model.num_labels 2" in result.err, f"{words[0]} counts labels, or is told", result.err)
    for words in (["explain", "memory"], ["explain", "schedule"], ["explain", "config"], ["plan", "--cluster", f"1x{cores}"], ["plan"], ["bench", "train"],
                  ["pretrain", "--train.max_steps", 1, "--dry_run"]):
        result = program(r, *words, "--model", "bert-tiny", "--model.num_labels", 3, code=2)
        ring.require("a model with labels (model.num_labels) classifies texts: give --task classify" in result.err, f"{words} wants the task of a model with labels", result.err)
    program(r, "explain", "config", "--model", "bert-tiny", "--model.num_labels", 3, "--task", "classify")
    named = ["finetune_full", "bert-tiny", "--task", "classify", "--train.max_steps", 1, "--data", "JSON", "--data.json_path"]
    result = program(r, *named, "none.jsonl", "--dry_run", code=2)
    ring.require("none.jsonl" in result.err and "or say how many labels there are: --model.num_labels 2" in result.err, "and so does a dry run", result.err)
    result = program(r, *named, "none.jsonl", code=2)
    ring.require("none.jsonl" in result.err and "or say how many" not in result.err, "a run needs its data", result.err)
    result = program(r, *named, good, "--dry_run")
    ring.require("neither weights nor data were read, except for labels" in result.out, "a dry run says that it has counted labels", result.out)
    result = program(r, "explain", "memory", "bert-tiny", "--task", "classify", code=2)
    ring.require("the labels are in the data, and no data are named; give model.num_labels" in result.err, "explain says what is missing", result.err)
    result = program(r, "finetune_full", "bert-tiny", "--task", "classify", "--model.num_labels", 3, "--train.max_steps", 1, "--out_dir", r.folder / "none", code=2)
    ring.require("data.train_data_path" in result.err and not (r.folder / "none").exists(), "a run still wants data", result.err)
    cases = [
        ([], [*rows, {"text": "no label"}], "good.jsonl:31: there is no \"label\""),
        ([], [*rows, {"label": "red"}], "good.jsonl:31: there is no text under \"text\""),
        ([], [*rows, {"text": "a", "label": 1.5}], "its \"label\" is neither a text nor a whole number"),
        ([], [*rows, {"text": "", "label": "red"}], "good.jsonl:31: the text is empty"),
        ([], [{"text": "a", "label": "red"}] * 20, "all texts have the label 'red'"),
        (["--model.num_labels", 2], rows, "model.num_labels is 2, but the data have 3 labels (blue, green, red)"),
        (["--model.labels", "[red, blue]"], rows, "the label 'green' is none of the 2"),
        (["--data.append_eos", "false"], rows, "data.append_eos has no meaning with task classify"),
        (["--data.packing", "best_fit"], rows, "data.packing has no meaning with task classify"),
        (["--devices", 2, "--mesh.cp", 2], rows, "mesh.cp=2 divides sequences"),
        (["--lora.r", 4], rows, "adapters (lora.*) are not built for task classify"),
        (["--train.max_seq_length", 1000], rows, "exceeds the model's 512 positions"),
        (["--model.bidirectional", "false"], rows, "model.bidirectional is false"),
        (["--model.pooling", "mean"], rows, "model.pooling is for models of type encoder"),
    ]
    for words, data, sentence in cases if ring.SLOW else cases[::3]:
        write(good, data)
        result = program(r, "finetune_full", "bert-tiny", "--task", "classify", "--data", "JSON", "--data.json_path", good, "--train.max_steps", 1,
                         "--out_dir", r.folder / "refused", *words, code=2)
        ring.require(sentence in result.err, f"refused: {sentence}", result.err)
        ring.require(not list((r.folder / "refused").glob("step-*")), "nothing is written")
    result = program(r, "pretrain", "bert-tiny", "--data", "TextFiles", "--data.train_data_path", r.text, "--train.max_steps", 1, "--out_dir", r.folder / "refused", code=2)
    ring.require("cannot learn to continue a text" in result.err, "BERT does not continue texts", result.err)
    write(good, rows)
    for command, words in (("generate", ["--prompt", "a"]), ("evaluate", ["--text", r.text])):
        result = program(r, command, r.folder / "bert", *words, code=2)
        ring.require("classifies texts and writes none" in result.err, f"{command} is refused", result.err)
    result = program(r, "finetune_full", "bert-tiny", "--task", "classify", "--data", "JSON", "--data.json_path", good, "--train.max_steps", 1,
                     "--train.global_batch_size", 4, "--train.max_seq_length", 8, "--out_dir", r.folder / "cut")
    for words, most in (([], 8), (["--max_seq_length", 4], 4)):
        judged = program(r, "evaluate", r.folder / "cut", "--classify", good, *words, "--evaluate.json", r.folder / "cut.json")
        report = json.loads((r.folder / "cut.json").read_text())["classify"]
        ring.require(f" cut to {most} tokens" in judged.out and report["max_seq_length"] == most, f"evaluate cuts texts as training does, or as asked {words}", str(judged))
    judged = program(r, "evaluate", r.folder / "cut", "--classify", good, "--max_seq_length", 4096)
    ring.require("texts have at most 512 tokens, as the model has no more positions" in judged.text, "a limit above the model's is said", str(judged))
    long = program(r, "finetune_full", r.folder / "bert", "--task", "classify", "--data", "JSON", "--data.json_path", good, "--train.max_steps", 1,
                   "--train.max_seq_length", 1000, code=2)
    ring.require("90 positions; its weights hold no others, so set a shorter sequence" in long.err, "learned positions end where the weights do", long.err)
    objective = program(r, "finetune_full", "bert-tiny", "--task", "classify", "--data", "JSON", "--data.json_path", good, "--train.max_steps", 1,
                        "--objective.z_loss", 1e-4, code=2)
    ring.require("only models that continue them take label smoothing and z-loss (objective.*)" in objective.err, "label smoothing is of other models", objective.err)
    ring.check("longer than 8 tokens, and cut" in result.out, "texts that are too long are cut, counted and said; broken inputs are refused in one sentence", result.out)


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    for i in range(FIRST, FIRST + COUNT):
        for placement in ("pre", "post"):
            for activation in ("relu", "gelu"):
                plain_case(r, i, placement, activation)
    ring.check(True, f"{4 * COUNT} encoders equal nn.TransformerEncoder: loss and gradients in float64")
    for i in range(FIRST, FIRST + COUNT):
        for kind in KINDS if ring.SLOW or COUNT > 1 else ("bert", "distilbert", "llama"):
            family_case(r, i, kind)
    ring.check(True, "BERT, RoBERTa, DistilBERT and decoders with a head equal transformers, both ways")
    check_starts(r)
    check_padding(r)
    check_padding_token(r)
    check_padding_at_ends(r)
    check_task(r)
    check_refusals(r)
