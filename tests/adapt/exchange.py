"""Adapters go to PEFT and come from PEFT, merged or not, and from one mesh to another.

exchange.py TRIREME
Logits of fp32 weights are compared through what our commands say of one text (evaluate --adapter) and through merged folders,
which transformers opens.
"""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import tuning
from tuning import peft, ring, safetensors, torch, transformers

LOGITS, LOSS, CURVE = 1e-5, 1e-5, 1e-10  # of the logits' standard deviation; of the loss; of the losses in float64
WINDOW = 48
ALL = {"target_modules": "all-linear"}
# name: (family of tiny_models, options of PEFT's LoraConfig)
KINDS = {
    "llama, patterns": ("llama 2", ALL | {"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"down_proj": 4}, "exclude_modules": ["gate_proj"]}),
    "qwen3, rsLoRA": ("qwen3", ALL | {"use_rslora": True}),
    "gemma3, some layers": ("gemma3", {"layers_to_transform": [0, 2], "r": 16}),
    "gpt2, all-linear": ("gpt2", ALL),
    "llama, embedding": ("llama 2", {"target_modules": ["embed_tokens", "q_proj"]}),
    "qwen3, DoRA": ("qwen3", ALL | {"use_dora": True}),
    "gemma3, head of its own": ("gemma3", {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]}),
    "gpt2, rsLoRA and bias": ("gpt2", ALL | {"use_rslora": True, "lora_bias": True}),
}
# Not in the loop over KINDS, which merges into a model that is loaded as a whole.
VISION = {"gemma3 with its eyes, patterns": ("gemma3 vision", {"target_modules": r"model\.language_model\..*\.(q_proj|up_proj)", "rank_pattern": {"up_proj": 4}})}
QUICK = ["llama, embedding", "gemma3, head of its own", "llama, patterns", "gemma3, some layers", "gpt2, all-linear", "qwen3, DoRA", "gpt2, rsLoRA and bias"]


def merge(r, base, adapter, out):
    result = r.run([r.program, "merge_lora", adapter, "--base", base, "--out", out])
    ring.require(result.code == 0, f"merge_lora of {adapter.name}", str(result))
    return result


def loss_here(r, *folder):
    out = r.folder / "report.json"
    result = r.run([r.program, "evaluate", *map(str, folder), "--text", r.folder / "sample.txt", "--max_seq_length", str(WINDOW), "--precision", "32-true",
                    "--evaluate.json", out])
    ring.require(result.code == 0, f"evaluate {folder}", str(result))
    return json.loads(out.read_text())["perplexity"]["loss"]


def loss_there(model, ids):
    """Over windows as `trireme evaluate` reads them."""
    total = 0.0
    for begin in range(0, len(ids) - 1, WINDOW):
        x, y = ids[begin:begin + WINDOW], ids[begin + 1:begin + WINDOW + 1]
        total += torch.nn.functional.cross_entropy(model(x[None, :len(y)]).logits[0], y, reduction="sum").item()
    return total / (len(ids) - 1)


class Exchange:
    def __init__(self, r, what):
        self.r, self.what = r, what
        self.name, self.options = (KINDS | VISION)[what]
        self.place = r.folder / what.replace(" ", "-").replace(",", "")
        self.base = r.folder / self.name.replace(" ", "-")
        if not self.base.exists():
            tuning.make_base(self.name, self.base)
        self.ids = torch.tensor(list((r.folder / "sample.txt").read_bytes()))

    def logits(self, model):
        """In float64: what differs is then the rounding of values in files, not that of products, which processors do differently."""
        return model.double()(self.ids[None, :WINDOW]).logits[0]

    def same_logits(self, folder, want, sentence):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                          output_loading_info=True)
        ring.require(not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), f"{self.what}: {sentence} fits", str(report))
        got = self.logits(model.eval())
        worst = ((got - want).abs().max() / want.std()).item()
        ring.check(worst <= LOGITS, f"{self.what}: logits of {sentence} within {worst:.1e} standard deviations of PEFT's (at most {LOGITS:.0e})")

    def judge(self, adapter, whose):
        """What PEFT computes with an adapter is what our commands compute with it, and what our merged folder computes."""
        theirs = peft.PeftModel.from_pretrained(tuning.load_base(self.base), adapter)
        plain = tuning.load_base(self.base)
        want = self.logits(theirs)
        ring.require((want - self.logits(plain)).std() > 0.01 * want.std(), f"{self.what}: the adapter changes logits")
        ours, loss = loss_here(self.r, self.base, "--adapter", adapter), loss_there(theirs, self.ids)
        ring.check(abs(ours / loss - 1) <= LOSS, f"{self.what}: evaluate --adapter with {whose} finds the loss {ours:.6f}, PEFT {loss:.6f}")
        merged = self.place.with_name(f"{self.place.name}-{whose.split()[0]}-merged")
        said = merge(self.r, self.base, adapter, merged)
        self.same_logits(merged, want, f"{whose}, merged here,")
        tied = transformers.AutoConfig.from_pretrained(self.base).tie_word_embeddings
        if tied and "lm_head" in str(self.options):
            ring.check("unties" in said.text, f"{self.what}: merging says that it unties the head", said.text)
            return
        apart = theirs.merge_and_unload().state_dict()
        here = {}
        for path in merged.glob("model*.safetensors"):
            here |= safetensors.load_file(path)
        names = {name: name if name in here else name.removeprefix("transformer.") for name in apart}
        off = max(tuning.far(here[ours], apart[name]) for name, ours in names.items() if ours in here)
        ring.check(off <= 1e-6 and len(set(names.values()) & set(here)) == len(here), f"{self.what}: {len(here)} tensors merged here and by PEFT, within {off:.1e}")

    def same_loss(self, run, step, adapter, sentence):
        """Of a step, by the run and by PEFT with the adapter that the step began with."""
        model = peft.PeftModel.from_pretrained(tuning.load_base(self.base), adapter)
        ours, theirs = tuning.losses(run)[step - 1], tuning.loss_of(model, tuning.Batches(run).step(step)).item()
        ring.check(abs(ours / theirs - 1) <= LOSS, f"{self.what}: {sentence}, {theirs:.6f}, within {abs(ours / theirs - 1):.1e}")

    def there_and_back(self, commands):
        started = tuning.initial_adapter(self.base, self.place.with_name(self.place.name + "-peft"), tuning.lora_config(self.name, **self.options))
        if commands:
            self.judge(started, "PEFT's adapter")
        command = tuning.command(self.r, self.base, self.place.name + "-run", started, precision="32-true", train__max_steps=4, train__save_interval=3)
        result = self.r.run(command)
        ring.require(result.code == 0, f"{self.what}: PEFT's adapter goes on here", str(result))
        run = self.r.folder / (self.place.name + "-run")
        self.same_loss(run, 1, started, "PEFT's adapter goes on here, from the loss that PEFT finds")
        self.same_loss(run, 4, run / "step-00000003", "an adapter trained here has in PEFT the loss of the next step")
        if commands:
            self.judge(run / "step-00000003", "our adapter")


def make_vision_base(folder):
    """A whole Gemma 3, of which Trireme trains the text half."""
    tuning.make_base("gemma3", folder)
    kind, text = tuning.tiny_models.MODELS["gemma3"][:2]
    eyes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    (folder / "model.safetensors").unlink()
    torch.manual_seed(5)
    whole = transformers.Gemma3Config(text_config={"model_type": kind} | text, vision_config=eyes, mm_tokens_per_image=4)
    transformers.Gemma3ForConditionalGeneration(whole).save_pretrained(folder)


def vision(r):
    """An adapter of a vision model's text half goes both ways, and PEFT puts nothing on the vision tower."""
    make_vision_base(r.folder / "gemma3-vision")
    exchange = Exchange(r, "gemma3 with its eyes, patterns")
    exchange.there_and_back(commands=False)
    typed = tuning.tune(r, exchange.base, "typed", precision="32-true", train__max_steps=2, train__save_interval=1, lora__r=4, lora__target_modules="[q_proj,down_proj]",
                        lora__layers_to_transform="[0,2]", lora__init="random", lora__dropout=0)
    exchange.same_loss(typed, 2, typed / "step-00000001", "a new adapter of some blocks has in PEFT the loss of the next step")
    theirs = peft.PeftModel.from_pretrained(tuning.load_base(exchange.base), typed / "step-00000001")
    ring.check(not any("lora_" in name and "vision" in name for name, _ in theirs.named_parameters()), "and nothing on the vision tower")
    ours, loss = loss_here(r, exchange.base, "--adapter", typed / "step-00000001"), loss_there(theirs, exchange.ids)
    ring.check(abs(ours / loss - 1) <= LOSS, f"evaluate --adapter finds the loss {ours:.6f}, PEFT {loss:.6f}")


def meshes(r):
    """pp 2 x tp 2, then three data ranks, in float64: the losses of one rank."""
    base = r.folder / "llama-2"
    common = {"train__global_batch_size": 6, "train__max_steps": 8, "train__save_interval": 4}
    lora = {"lora__r": 8, "lora__alpha": 16, "lora__dropout": 0.1, "lora__target_modules": "all-linear"}
    one = tuning.losses(tuning.tune(r, base, "one", **common, **lora))
    four = tuning.tune(r, base, "four", devices=4, mesh__pp=2, mesh__tp=2, **common, **lora)
    three = tuning.tune(r, base, "three", devices=3, strategy="full_shard", resume=four / "step-00000004", **common)
    ring.require(sorted(ring.metrics(three)) == [5, 6, 7, 8], "the resumed run has the steps that were left")
    curve = tuning.losses(four)[:4] + tuning.losses(three)
    worst = max(tuning.relative(a, b) for a, b in zip(curve, one, strict=True))
    ring.check(worst <= CURVE and one[-1] < one[0], f"4 steps on pp 2 x tp 2, then 4 on three data ranks: losses within {worst:.1e} of one rank's, "
               f"{one[0]:.3f} to {one[-1]:.3f}")


with ring.Ring(sys.argv[1]) as r, torch.no_grad():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    tuning.write_conversations(r.folder / "chat.jsonl")
    (r.folder / "sample.txt").write_bytes(r.text.read_bytes()[:400])
    commands = "generate.adapter" in r.run([r.program, "help", "generate"]).out
    if not commands:
        print("left out: generate, evaluate and merge_lora take no --adapter yet")
    for what in KINDS if ring.SLOW else QUICK:
        Exchange(r, what).there_and_back(commands)
    vision(r)
    meshes(r)
