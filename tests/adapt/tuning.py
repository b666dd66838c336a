"""What the judges of fine-tuning share: tiny bases with a tokenizer, conversations, adapters by PEFT, the command, and what a
run leaves behind.
"""

import json
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import ring
import tiny_models

numpy, torch, transformers, peft, safetensors = ring.judges("numpy", "torch", "transformers", "peft", "safetensors.torch")

PREFIX = "base_model.model."
SPECIAL = ("<|im_start|>", "<|im_end|>")
LENGTH, BATCH = 96, 4  # tokens a row, rows a step
RATE = 1e-3
QUERY_VALUE = {"gpt2": ["c_attn"]}  # modules of PEFT's default; elsewhere q_proj and v_proj


def make_base(name, folder, dtype=None):
    """A tiny model's folder with a tokenizer that has bytes and the tokens of chatml."""
    tiny_models.make(name, folder, dtype)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(tiny_models.MODELS[name][1]["vocab_size"], SPECIAL))
    return folder


def load_base(folder, dtype=None):
    # Eager attention computes in the model's dtype; its GPT-2 draws no dropout in eval().
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype or torch.float32, attn_implementation="eager")
    return model.eval()


def write_conversations(path, count=24, seed=11):
    """Of 32 to 60 tokens, so that a row holds two or three."""
    source = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(count):
            words = lambda most: " ".join(source.choice(ring.WORDS) for _ in range(source.randint(1, most)))
            out.write(json.dumps({"messages": [{"role": "user", "content": words(3)}, {"role": "assistant", "content": words(4)}]}) + "\n")
    return path


def lora_config(name, **options):
    """PEFT's, with the target modules that q,v means for this family."""
    targets = {} if "target_modules" in options else {"target_modules": QUERY_VALUE.get(name, ["q_proj", "v_proj"])}
    return peft.LoraConfig(task_type="CAUSAL_LM", fan_in_fan_out=name.startswith("gpt2"), **({"r": 8, "lora_alpha": 16} | targets | options))


def adapted(base, config, seed=3):
    """transformers' model with adapters of which no value is what training starts with, so that every gradient is there."""
    model = peft.get_peft_model(load_base(base), config)
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            noise = torch.randn(parameter.shape, generator=source)
            if "lora_magnitude_vector" in name:
                parameter.mul_(1 + 0.1 * noise)
            elif "lora_" in name and parameter.dim() == 2:
                into = "lora_A" in name or "lora_embedding_A" in name
                parameter.copy_(noise * (1 / parameter.shape[1] ** 0.5 if into else 0.1))
            else:
                parameter.add_(0.05 * noise)
    return model


def initial_adapter(base, folder, config, seed=3):
    """A folder of PEFT's to start from."""
    adapted(base, config, seed).save_pretrained(folder)
    return folder


def command(r, base, out, adapter=None, data="chat.jsonl", subcommand="finetune_lora", **settings):
    """trireme finetune_lora, or finetune_full; keyword lora__plus_ratio=4 is --lora.plus_ratio 4, and None leaves one out."""
    values = {"devices": 1, "precision": "64-true", "out_dir": r.folder / out, "data.json_path": r.folder / data, "data.val_data_path": r.folder / data,
              "data.chat_template": "chatml", "data.ledger": "true", "train.max_seq_length": LENGTH, "train.global_batch_size": BATCH,
              "train.micro_batch_size": 1, "train.max_steps": 10, "train.lr_warmup_steps": 0, "train.lr_decay": "constant",
              "train.max_norm": "null", "optimizer.lr": RATE, "eval.final_validation": "false", "launch.threads_per_rank": 1, "comm.timeout": "60s"}
    values |= {"lora.initial_adapter": adapter} if adapter else {}
    values |= {k.replace("__", "."): v for k, v in settings.items()}
    words = [r.program, subcommand, str(base)]
    for key, value in values.items():
        words += [f"--{key}", str(value)] if value is not None else []
    return words


def tune(r, base, out, adapter=None, **settings):
    """A run that must succeed; its folder."""
    result = r.run(command(r, base, out, adapter, **settings))
    ring.require(result.code == 0, f"the run {out} succeeds", str(result))
    return r.folder / out


def losses(run):
    """0 for a step that learns nothing, which has no loss."""
    return [row.get("loss", 0.0) for _, row in sorted(ring.metrics(run).items())]


def trained(checkpoint):
    """{PEFT's name without its prefix: tensor in the optimizer's precision} of everything that is trained."""
    found = {}
    for path in sorted(checkpoint.glob("optimizer*.safetensors")):
        for name, tensor in safetensors.load_file(path).items():
            found[name.removeprefix(PREFIX)] = tensor
    return found


class Batches:
    """The rows of each step of a run, from its ledger and its tokenized conversations."""

    def __init__(self, run):
        [tokens] = (run / "tokens").glob("*.bin")
        kind = {"uint8": numpy.uint8, "uint16": numpy.uint16}["uint8" if json.loads(tokens.with_suffix(".json").read_text())
                                                             ["tokenizer"]["vocab_size"] <= 256 else "uint16"]
        self.ids = numpy.fromfile(tokens, kind).astype(numpy.int64)
        self.learned = numpy.fromfile(tokens.with_suffix(".mask"), numpy.uint8)
        self.samples = {}
        for path in (run / "ledger").glob("rank*.jsonl"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                for sample in row["samples"]:
                    self.samples[row["step"], sample["sample"] % BATCH] = sample["parts"]

    def step(self, step):
        """(ids, targets, positions, document of each place), each [BATCH, LENGTH]."""
        ids, positions = (numpy.zeros((BATCH, LENGTH), numpy.int64) for _ in range(2))
        targets, documents = (numpy.full((BATCH, LENGTH), value, numpy.int64) for value in (-100, -1))
        for row in range(BATCH):
            at = 0
            for number, part in enumerate(self.samples[step, row]):
                first, count = part["first_token"], part["tokens"]
                here, there = slice(at, at + count), slice(first + 1, first + count + 1)
                ids[row, here] = self.ids[first:first + count]
                targets[row, here] = numpy.where(self.learned[there] == 1, self.ids[there], -100)
                positions[row, here], documents[row, here] = numpy.arange(count), number
                at += count
        return [torch.from_numpy(value) for value in (ids, targets, positions, documents)]


def attention_masks(model, documents):
    """What transformers adds to attention scores: own documents only, and windows where the family has them."""
    length, config = documents.shape[1], model.config.get_text_config()
    places = torch.arange(length)
    apart = places[:, None] - places[None]
    allowed = (documents[:, :, None] == documents[:, None, :]) & (apart >= 0)
    added = lambda which: torch.zeros(which.shape, dtype=torch.float64).masked_fill(~which, torch.finfo(torch.float64).min)[:, None]
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return added(allowed)
    masks = {"full_attention": added(allowed)}
    if config.sliding_window:
        masks["sliding_attention"] = added(allowed & (apart < config.sliding_window))
    return masks


def loss_of(model, batch):
    """The sum over the step's learned tokens by their number, in float64."""
    ids, targets, positions, documents = batch
    logits = model(input_ids=ids, attention_mask=attention_masks(model, documents), position_ids=positions, use_cache=False).logits
    total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=-100)
    return total / (targets != -100).sum()


def far(ours, theirs):
    """The largest difference, as a share of the largest value where that is above 1."""
    return ((ours.double() - theirs.double()).abs().max() / max(1.0, theirs.abs().max().item())).item()


def relative(ours, theirs, least=math.ulp(1.0)):
    return abs(ours - theirs) / max(abs(theirs), least)


def check_mesh(what, other, one, exact, limit, steps):
    """What a run on a mesh trained beside one rank's: the same tensors, to the bit or within `limit`, and the losses, of which one
    may be 0 but for rounding."""
    a, b = (trained(run / f"step-{steps:08}") for run in (other, one))
    ring.require(a.keys() == b.keys() and all(a[n].shape == b[n].shape for n in b), f"{what}: the same {len(b)} tensors", str(a.keys() ^ b.keys()))
    lines, wanted = losses(other), losses(one)
    if exact:
        unequal = [n for n in b if not torch.equal(a[n], b[n])]
        ring.check(not unequal and lines == wanted, f"{what}: {len(b)} tensors and {steps} losses equal to the bit of one rank's",
                   f"{unequal[:4]}\n{lines}\n{wanted}")
        return
    off = max(far(a[n], b[n]) for n in b)
    largest = max(math.ulp(1.0), *map(abs, wanted))
    worst = max(relative(x, y, largest) for x, y in zip(lines, wanted))
    ring.check(max(off, worst) <= limit, f"{what}: values within {off:.1e} and losses within {worst:.1e} of one rank's (at most {limit:.0e})")


def chosen_cases(arguments, every, quick):
    """The cases that were named, as "family:case:kind"; otherwise all with TRIREME_SLOW=1, or a sample."""
    if arguments:
        return [tuple(case.split(":")) for case in arguments]
    return every if ring.SLOW else quick
