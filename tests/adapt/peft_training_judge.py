"""LoRA as PEFT computes it: losses, gradients and ten steps of AdamW in float64, then the same on meshes. All weights as
transformers trains them, too.

peft_training_judge.py TRIREME [NAME ...]
Trireme starts from an adapter that PEFT wrote. The judge rebuilds each step's rows from the run's ledger and trains
PEFT's model on them: with our mask in the place of its dropout, in float64 throughout (wide.py). NAME picks cases.
TRIREME_SLOW=1: every option on every architecture and every mesh; otherwise a sample in which all of them are met.
"""

import itertools
import json
import os
import sys
import types

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import tuning
from tuning import peft, ring, torch, transformers

import dropout_mask
import wide

[loraplus] = ring.judges("peft.optimizers.loraplus")

STEPS, SEED, RATIO = 10, 42, 4.0
EQUAL, MESH = 1e-9, 1e-10
BETA1, BETA2, DECAY = 0.9, 0.999, 0.01

FAMILIES = {"llama": "llama 2", "qwen3": "qwen3", "gemma3": "gemma3", "gpt2": "gpt2"}
ALL = {"target_modules": "all-linear"}
EMBEDDING = "embed_tokens"  # of GPT-2: wte
PATTERNS = {"rank_pattern": {"q_proj": 4, r"layers\.[01]\.mlp\.up_proj": 16}, "alpha_pattern": {"k_proj": 32, "q_proj": 4}}
PATTERNS_GPT2 = {"rank_pattern": {"c_attn": 4, r"h\.[01]\.mlp\.c_fc": 16}, "alpha_pattern": {"c_proj": 32, "c_attn": 4}}
# name: options of PEFT's LoraConfig; full, plus_ratio, patterns and beside (modules beside q,v) are the judge's own.
OPTIONS = {
    "all weights": {"full": True},
    "q,v r 8": {},
    "all-linear r 64": ALL | {"r": 64},
    "rslora": ALL | {"r": 64, "use_rslora": True},
    "patterns": ALL | {"patterns": True},
    "lora+": {"plus_ratio": RATIO},
    "dropout": ALL | {"lora_dropout": 0.25},
    "dora": ALL | {"use_dora": True},
    "dora and dropout": {"use_dora": True, "lora_dropout": 0.25},
    "bias of B": ALL | {"lora_bias": True},
    "some layers": {"layers_to_transform": [1, 2]},
    "head and embedding": {"beside": ["lm_head", EMBEDDING], "lora_dropout": 0.25},
    "head, rslora": {"beside": ["lm_head"], "r": 64, "use_rslora": True},
    "head, dora": {"beside": ["lm_head"], "use_dora": True, "lora_dropout": 0.25},
    "head, bias of B": {"beside": ["lm_head"], "lora_bias": True},
    "whole head": {"modules_to_save": ["lm_head"]},
    "whole embedding": {"modules_to_save": [EMBEDDING]},
}
QUICK = [("llama", "q,v r 8"), ("llama", "dropout"), ("llama", "lora+"), ("qwen3", "dora and dropout"), ("qwen3", "patterns"),
         ("gemma3", "all-linear r 64"), ("gemma3", "dora"), ("gpt2", "rslora"), ("gpt2", "dropout"),
         ("gpt2", "dora and dropout"), ("gpt2", "bias of B"), ("gemma3", "all weights"), ("llama", "head and embedding"),
         ("gemma3", "head and embedding"), ("gpt2", "head, dora"), ("llama", "head, bias of B"), ("gemma3", "whole head"), ("gpt2", "whole embedding")]

# name: (settings, equal to the bit)
MESHES = {
    "full_shard 2": ({"devices": 2, "strategy": "full_shard"}, True),
    "no_shard 2": ({"devices": 2, "strategy": "no_shard"}, True),
    "tp 2": ({"devices": 2, "mesh__tp": 2}, False),
    "tp 2 sequence": ({"devices": 2, "mesh__tp": 2, "mesh__sequence_parallel": "true"}, False),
    "pp 2 1f1b": ({"devices": 2, "mesh__pp": 2, "pipeline__schedule": "1f1b"}, False),
    "pp 2 zb_h1": ({"devices": 2, "mesh__pp": 2, "pipeline__schedule": "zb_h1"}, False),
    "cp 2": ({"devices": 2, "mesh__cp": 2}, False),
}
QUICK_MESHES = [("llama", "dropout", mesh) for mesh in MESHES] + [
    ("gpt2", "dropout", "tp 2 sequence"), ("gpt2", "dropout", "full_shard 2"), ("qwen3", "patterns", "pp 2 zb_h1"), ("gemma3", "all-linear r 64", "tp 2"),
    ("qwen3", "dora and dropout", "full_shard 2"), ("gemma3", "dora", "tp 2"), ("llama", "head and embedding", "tp 2 sequence"),
    ("gemma3", "head and embedding", "full_shard 2"), ("gemma3", "head and embedding", "pp 2 zb_h1"), ("gpt2", "head, dora", "cp 2"), ("gemma3", "whole head", "tp 2")]


class Judged:
    """A family and an option: the base, the adapter to start from, the run of one rank."""

    def __init__(self, r, family, option):
        self.r, self.name, self.what, self.whose = r, FAMILIES[family], f"{family}, {option}", "PEFT's"
        options = dict(OPTIONS[option])
        self.ratio = options.pop("plus_ratio", 1.0)
        named = lambda names: ["wte" if family == "gpt2" and name == EMBEDDING else name for name in names]
        if "beside" in options:
            options["target_modules"] = tuning.QUERY_VALUE.get(self.name, ["q_proj", "v_proj"]) + named(options.pop("beside"))
        if "modules_to_save" in options:
            options["modules_to_save"] = named(options["modules_to_save"])
        if options.pop("patterns", False):
            options |= PATTERNS_GPT2 if family == "gpt2" else PATTERNS
        self.dropout, self.full = options.get("lora_dropout", 0.0), options.pop("full", False)
        self.base = r.folder / family
        if not self.base.exists():
            tuning.make_base(self.name, self.base)
        self.adapter = None
        if self.full:
            self.whose = "transformers'"
        else:
            self.adapter = tuning.initial_adapter(self.base, r.folder / self.folder("start"), tuning.lora_config(self.name, **options))
        self.one = self.tune("one", train__save_interval=1, save__keep_last=0)

    def folder(self, what):
        return f"{self.what} {what}".replace(" ", "-").replace(",", "").replace("+", "-plus")

    def command(self, what, **settings):
        more = {"lora__plus_ratio": self.ratio} if self.ratio != 1 else {}
        more |= {"subcommand": "finetune_full"} if self.full else {}
        settings = {"seed": SEED, "train__max_steps": STEPS} | more | settings
        return tuning.command(self.r, self.base, self.folder(what), self.adapter, **settings)

    def tune(self, what, **settings):
        result = self.r.run(self.command(what, **settings))
        ring.require(result.code == 0, f"{self.what}: the run {what} succeeds", str(result))
        return self.r.folder / self.folder(what)

    def theirs(self):
        """PEFT's model from the same folder, in float64, with our dropout."""
        model = tuning.load_base(self.base)
        if not self.full:
            model = peft.PeftModel.from_pretrained(model, self.adapter, is_trainable=True)
        wide.widen(model)
        clock = types.SimpleNamespace(step=0)
        for name, module in model.named_modules():
            if isinstance(module, peft.tuners.lora.LoraLayer) and self.dropout:
                ours = dropout_mask.Dropout(name.removeprefix(tuning.PREFIX), self.dropout, clock, SEED)
                module.lora_dropout["default"] = ours
                module.training = True  # else DoRA leaves dropout out; transformers' own stays off
        return model, clock

    def optimizer(self, model):
        """AdamW; matrices decay. With a ratio, PEFT's own LoRA+."""
        options = {"betas": (BETA1, BETA2), "eps": 1e-8}
        if self.ratio != 1:
            return loraplus.create_loraplus_optimizer(model, torch.optim.AdamW, lr=tuning.RATE, loraplus_lr_ratio=self.ratio,
                                                      loraplus_weight_decay=DECAY, **options)
        values = [p for p in model.parameters() if p.requires_grad]
        groups = [{"params": [p for p in values if p.dim() == 2], "weight_decay": DECAY},
                  {"params": [p for p in values if p.dim() != 2], "weight_decay": 0.0}]
        return torch.optim.AdamW([group for group in groups if group["params"]], lr=tuning.RATE, **options)

    def against_peft(self):
        model, clock = self.theirs()
        batches, optimizer = tuning.Batches(self.one), self.optimizer(model)
        ours, worst_loss, gradients = tuning.losses(self.one), 0.0, {}
        for step in range(1, STEPS + 1):
            clock.step = step
            loss = tuning.loss_of(model, batches.step(step))
            optimizer.zero_grad()
            loss.backward()
            if step == 1:
                gradients = {self.ours_of(n): p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
            worst_loss = max(worst_loss, abs(ours[step - 1] - loss.item()))
            ring.require(worst_loss <= EQUAL, f"{self.what}: loss of step {step} within {worst_loss:.1e} of {self.whose}", f"{ours[step - 1]!r} {loss.item()!r}")
            optimizer.step()
        ring.require(ours[-1] < ours[0] and len(gradients) > 3, f"{self.what}: it learns, {ours[0]:.3f} to {ours[-1]:.3f}")
        off = self.gradients_off(gradients)
        apart = self.values_off({self.ours_of(n): p.detach() for n, p in model.named_parameters() if p.requires_grad})
        ring.check(off <= EQUAL and apart <= EQUAL,
                   f"{self.what}: {STEPS} losses within {worst_loss:.1e} of {self.whose}, {len(gradients)} gradients within {off:.1e} of their norms, "
                   f"values after {STEPS} steps within {apart:.1e} (at most {EQUAL:.0e})")

    @staticmethod
    def ours_of(name):
        return name.removeprefix(tuning.PREFIX).replace(".default", "").replace(".modules_to_save", "").replace("lora_magnitude_vector.weight", "lora_magnitude_vector")

    def tensors_of(self, step, names, end):
        found = tuning.trained(self.one / f"step-{step:08}")
        if self.full:  # GPT-2's files need no "transformer."
            found |= {f"transformer.{name}": value for name, value in found.items()}
        missing = [name for name in names if f"{name}.{end}" not in found]
        ring.require(not missing, f"{self.what}: the checkpoint of step {step} holds {end} of what PEFT trains",
                     f"lacks {missing[:4]}, has {sorted(found)[:8]}")
        return {name: found[f"{name}.{end}"] for name in names}

    def gradients_off(self, gradients):
        """The first step's, which AdamW's first moment is a tenth of."""
        moments = self.tensors_of(1, gradients, "exp_avg")
        return max(((moments[name] / (1 - BETA1) - g).norm() / g.norm()).item() for name, g in gradients.items())

    def values_off(self, values):
        ours = self.tensors_of(STEPS, values, "master")
        return max(tuning.far(ours[name], value) for name, value in values.items())

    def on_mesh(self, mesh):
        settings, exact = MESHES[mesh]
        other = self.tune(mesh, **settings)
        tuning.check_mesh(f"{self.what}, {mesh}", other, self.one, exact, MESH, STEPS)


def adapters_are_loadable(r, judged):
    """Every checkpoint is a folder of PEFT's."""
    checkpoint = judged.one / f"step-{STEPS:08}"
    model = peft.PeftModel.from_pretrained(tuning.load_base(judged.base), checkpoint)
    ours = judged.tensors_of(STEPS, [judged.ours_of(n) for n, _ in model.named_parameters() if "lora_" in n], "master")
    off = max(tuning.far(p, ours[judged.ours_of(n)]) for n, p in model.named_parameters() if "lora_" in n)
    ring.check(off <= 1e-6, f"{judged.what}: PEFT opens the checkpoint and finds its values, rounded by {off:.1e}")


def magnitudes_begin_as_norms(r):
    """New adapters with magnitudes: PEFT's first values, on one rank and divided."""
    for family, settings in (("llama", {}), ("llama", {"devices": 2, "mesh__tp": 2}), ("gpt2", {"devices": 2, "strategy": "full_shard"})):
        name, base = FAMILIES[family], r.folder / family
        if not base.exists():
            tuning.make_base(name, base)
        model = peft.get_peft_model(tuning.load_base(base), tuning.lora_config(name, use_dora=True, **ALL))
        theirs = {Judged.ours_of(n): p for n, p in model.named_parameters() if "magnitude" in n}
        out = "-".join(["new", family, *map(str, settings.values())])
        run = tuning.tune(r, base, out, train__max_steps=1, optimizer__lr=1e-30, lora__r=8, lora__alpha=16, lora__dora="true", lora__dropout=0,
                          lora__target_modules="all-linear", **settings)
        ours = tuning.trained(run / "step-00000001")
        off = max(tuning.far(ours[f"{n}.master"], value) for n, value in theirs.items())
        plain, model = tuning.losses(run)[0], tuning.load_base(base).double()
        off_loss = abs(plain - tuning.loss_of(model, tuning.Batches(run).step(1)).item())
        ring.check(off <= 1e-6 and off_loss <= 1e-5, f"{out}: {len(theirs)} vectors of magnitudes begin within {off:.1e} of PEFT's, "
                   f"and the first loss within {off_loss:.1e} of the base's")


def every_token_may_be_learned(r):
    """data.learn all, which LitGPT's mask_prompt: false means: the labels of a conversation are all of its tokens."""
    base = r.folder / "learns-all-base"
    tuning.make_base("llama 2", base)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(base / "tokenizer.json"))
    written, first = {}, 0  # ids of each conversation, by the place of its first token
    for line in (r.folder / "chat.jsonl").read_text().splitlines():
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in json.loads(line)["messages"])
        written[first] = tokenizer.encode(text, add_special_tokens=False)
        first += len(written[first])
    run = tuning.tune(r, base, "learns-all", subcommand="finetune_full", data__learn="all", data__packing="none", train__max_steps=2, optimizer__lr=1e-30)
    batches, model, worst = tuning.Batches(run), tuning.load_base(base).double(), 0.0
    for step, ours in enumerate(tuning.losses(run), 1):
        total, count = 0.0, 0
        for row in range(tuning.BATCH):
            ids = torch.tensor(written[batches.samples[step, row][0]["first_token"]])
            logits = model(input_ids=ids[None], use_cache=False).logits[0]
            total += torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum").item()
            count += len(ids) - 1
        learned = (batches.step(step)[1] != -100).sum().item()
        ring.require(learned == count, f"data.learn all: step {step} learns {learned} tokens of {count}")
        worst = max(worst, abs(ours - total / count))
    ring.check(len(batches.ids) == first and worst <= 1e-6, f"data.learn all: {first} tokens are those of transformers' tokenizer, and two losses within {worst:.1e} of PyTorch's")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    tuning.write_conversations(r.folder / "chat.jsonl")
    wanted = sys.argv[2:]
    cases = list(itertools.product(FAMILIES, OPTIONS)) if ring.SLOW else QUICK
    meshes = list(itertools.product(FAMILIES, ("dropout", "dora and dropout", "all-linear r 64", "head and embedding", "head, dora", "whole head"), MESHES)) if ring.SLOW else QUICK_MESHES
    if wanted:
        cases = [case for case in itertools.product(FAMILIES, OPTIONS) if f"{case[0]}, {case[1]}" in wanted]
        meshes = [(*case, mesh) for case in cases for mesh in MESHES if "meshes" in wanted]
    for family, option in cases:
        judged = Judged(r, family, option)
        judged.against_peft()
        if (family, option) == cases[0] and not judged.full:
            adapters_are_loadable(r, judged)
        for mesh in [m for f, o, m in meshes if (f, o) == (family, option)]:
            judged.on_mesh(mesh)
    if not wanted:
        magnitudes_begin_as_norms(r)
        every_token_may_be_learned(r)
