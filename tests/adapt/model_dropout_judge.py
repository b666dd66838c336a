"""Dropout of the model as transformers has it: losses, gradients and steps in float64 with the same masks.

model_dropout_judge.py TRIREME [NAME ...]
transformers' models train in train() mode: where and at which rate they drop is theirs. Only torch's dropout is replaced,
by one that takes our masks in order (dropout_mask.py). What a family does not have is put in by hooks. The run on one rank
is then repeated on data ranks, with recomputation and resumed, to the bit, and on other meshes. NAME picks cases;
TRIREME_SLOW=1: all of them.
"""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import tuning
from tuning import ring, torch, transformers

import dropout_mask
import wide

STEPS, SEED, EQUAL, MESH = 4, 42, 1e-9, 1e-10
WEIGHTS, RESIDUAL, EMBEDDING = 0.2, 0.15, 0.1
ONE = {"attention_dropout": WEIGHTS}
BRANCHES = ("attention.output", "mlp.output")
ALL = ("attention.weights", *BRANCHES)


class Case:
    """Keys of config.json; what transformers' forward drops in order (first, and in each block); and what it does not have:
    settings, and the modules behind which hooks drop the same."""

    def __init__(self, keys, first=(), each=("attention.weights",), settings=None, hooks=None):
        self.keys, self.first, self.each, self.settings, self.hooks = keys, first, each, settings or {}, hooks or {}

    def rate(self, name):
        """What the file says for this dropout."""
        if name.endswith("weights"):
            return WEIGHTS
        return EMBEDDING if name.startswith("embedding") and "hidden_dropout" not in self.keys else RESIDUAL


BY_SETTING = {"model__residual_dropout": RESIDUAL, "model__embedding_dropout": EMBEDDING}
PLAIN = {"self_attn": "attention.output", "mlp": "mlp.output"}
POST = {"post_attention_layernorm": "attention.output", "post_feedforward_layernorm": "mlp.output"}
CASES = {
    "gpt2": Case({"attn_pdrop": WEIGHTS, "resid_pdrop": RESIDUAL, "embd_pdrop": EMBEDDING}, ["embedding.output"], ALL),
    "pythia": Case(ONE | {"hidden_dropout": RESIDUAL}, ["embedding.output"], ALL),
    "gpt neox": Case(ONE | {"hidden_dropout": RESIDUAL}, ["embedding.output"], ALL),
    "starcoder2": Case(ONE | {"residual_dropout": RESIDUAL, "embedding_dropout": EMBEDDING}, ["embedding.output"], ALL),
    "phi3": Case(ONE | {"resid_pdrop": RESIDUAL}, [], ALL),
    "llama 2": Case(ONE, settings=BY_SETTING, hooks=PLAIN),
    "granite": Case(ONE, settings=BY_SETTING, hooks=PLAIN),
    "gemma3": Case(ONE, settings=BY_SETTING, hooks=POST),
    "gemma2": Case(ONE, settings=BY_SETTING, hooks=POST),
    "olmo2": Case(ONE, settings=BY_SETTING, hooks=POST),
    "qwen3": Case(ONE), "mistral": Case(ONE), "smollm3": Case(ONE),
}
QUICK = ["gpt2", "pythia", "llama 2", "gemma3"]
MESHES = {  # name: (settings, equal to the bit)
    "full_shard 2": ({"devices": 2, "strategy": "full_shard"}, True),
    "recompute full": ({"recompute": "full"}, True),
    "tp 2 sequence": ({"devices": 2, "mesh__tp": 2, "mesh__sequence_parallel": "true"}, False),
    "pp 2 zb_h1": ({"devices": 2, "mesh__pp": 2, "pipeline__schedule": "zb_h1"}, False),
    "cp 2 ulysses": ({"devices": 2, "mesh__cp": 2, "mesh__context": "ulysses"}, False),
}
QUICK_MESHES = {"gpt2": ["full_shard 2", "recompute full"], "llama 2": ["tp 2 sequence"]}


class Masks:
    """In the place of torch.nn.functional.dropout: our masks, in the order of transformers' forward."""

    def __init__(self, case, blocks):
        self.names = [*case.first, *(f"blocks.{i}.{what}" for i in range(blocks) for what in case.each)]
        self.case, self.step, self.waiting = case, 0, []

    def begin(self, step):
        self.end()
        self.step, self.waiting = step, list(self.names)

    def end(self):
        ring.require(not self.waiting, "transformers drops all that was expected", str(self.waiting[:3]))

    def of(self, name, x, p):
        batch, length = x.shape[0], x.shape[-2]
        if x.dim() == 4:
            kept = dropout_mask.kept_weights(SEED, self.step, range(batch), length, name, x.shape[1], p)
        else:
            kept = dropout_mask.kept(SEED, self.step, range(batch), length, name, x.shape[2], p)
        return x * torch.from_numpy(kept) * (1 / (1 - p))

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        name = self.waiting.pop(0)
        ring.require(p == self.case.rate(name), f"transformers drops {self.case.rate(name)} of {name}", str(p))
        return self.of(name, x, p)


def theirs(base, case):
    """transformers' model in train() mode, and the masks that it takes."""
    model = wide.widen(tuning.load_base(base)).train()
    blocks = next(m for n, m in model.named_modules() if n.split(".")[-1] in ("layers", "h"))
    masks = Masks(case, len(blocks))

    def drops(name, p):
        def hook(module, inputs, output):
            if isinstance(output, tuple):
                return masks.of(name, output[0], p), *output[1:]
            return masks.of(name, output, p)
        return hook

    for i, block in enumerate(blocks):
        for module, what in case.hooks.items():
            getattr(block, module).register_forward_hook(drops(f"blocks.{i}.{what}", RESIDUAL))
    if case.hooks:
        model.get_input_embeddings().register_forward_hook(drops("embedding.output", EMBEDDING))
    return model, masks


def found(tensors, name, end):
    names = (name, name.removeprefix("transformer."), name.replace("lm_head.", "embed_out."))
    return next(tensors[f"{n}.{end}"] for n in names if f"{n}.{end}" in tensors)


def beside_transformers(name, case, base, run):
    model, masks = theirs(base, case)
    plain, torch.nn.functional.dropout = torch.nn.functional.dropout, masks
    batches, ours, worst, gradients = tuning.Batches(run), tuning.losses(run), 0.0, {}
    values = dict(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in values.values() if p.dim() == 2], "weight_decay": 0.01},
                                   {"params": [p for p in values.values() if p.dim() != 2], "weight_decay": 0.0}],
                                  lr=tuning.RATE, betas=(0.9, 0.999), eps=1e-8)
    for step in range(1, STEPS + 1):
        masks.begin(step)
        loss = tuning.loss_of(model, batches.step(step))
        optimizer.zero_grad()
        loss.backward()
        gradients = gradients or {n: p.grad.clone() for n, p in values.items()}
        worst = max(worst, abs(ours[step - 1] - loss.item()))
        ring.require(worst <= EQUAL, f"{name}: loss of step {step} within {worst:.1e} of transformers'", f"{ours[step - 1]!r} {loss.item()!r}")
        optimizer.step()
    masks.end()
    torch.nn.functional.dropout = plain
    first, last = tuning.trained(run / "step-00000001"), tuning.trained(run / f"step-{STEPS:08}")
    off = max(((found(first, n, "exp_avg") / 0.1 - g).norm() / g.norm()).item() for n, g in gradients.items())
    apart = max(tuning.far(found(last, n, "master"), p.detach()) for n, p in values.items())
    ring.check(max(off, apart) <= EQUAL, f"{name}: {STEPS} losses within {worst:.1e} of transformers' in train(), {len(gradients)} gradients within "
               f"{off:.1e} of their norms, values after {STEPS} steps within {apart:.1e} (at most {EQUAL:.0e})")


def train(r, base, what, steps=STEPS, **settings):
    return tuning.tune(r, base, what.replace(" ", "-"), subcommand="finetune_full", seed=SEED, train__max_steps=steps, **settings)


def resumed(r, name, base, one, settings):
    """To the middle, and on from there: every tensor and loss to the bit."""
    run = train(r, base, f"{name} resumed", STEPS // 2, **settings)
    result = r.run([r.program, "finetune_full", "--resume", str(run), "--train.max_steps", str(STEPS)])
    ring.require(result.code == 0, f"{name}: the run goes on", str(result))
    tuning.check_mesh(f"{name}, resumed", run, one, True, 0, STEPS)


def without(r, name, base, one):
    """Rates of 0 train otherwise, are saved, and nothing is said of them."""
    zeros = {f"model__{what}_dropout": 0 for what in ("attention", "residual", "embedding")}
    out = r.folder / "without"
    silent = r.run(tuning.command(r, base, out, subcommand="finetune_full", seed=SEED, train__max_steps=1, **zeros))
    ring.require(silent.code == 0 and "dropout  " not in silent.out, f"{name}: without dropout nothing is said of it", str(silent))
    config = json.loads((out / "step-00000001" / "config.json").read_text())
    ring.check(all(config.get(key, 0) == 0 for key in CASES[name].keys), f"{name}: and its config.json says 0", str(config))
    ring.check(tuning.losses(out)[0] != tuning.losses(one)[0], f"{name}: dropout changes the loss")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    tuning.write_conversations(r.folder / "chat.jsonl")
    for name in sys.argv[2:] or (CASES if ring.SLOW else QUICK):
        case, base = CASES[name], r.folder / f"base {name}".replace(" ", "-")
        tuning.make_base(name, base)
        config = json.loads((base / "config.json").read_text())
        (base / "config.json").write_text(json.dumps(config | case.keys))
        one = r.folder / name.replace(" ", "-")
        result = r.run(tuning.command(r, base, one, subcommand="finetune_full", seed=SEED, train__max_steps=STEPS, train__save_interval=1,
                                      save__keep_last=0, **case.settings))
        ring.require(result.code == 0 and f"dropout  {WEIGHTS:g} of attention weights" in result.out, f"{name}: the run says what it drops", str(result))
        beside_transformers(name, case, base, one)
        for mesh in MESHES if ring.SLOW or sys.argv[2:] else QUICK_MESHES.get(name, []):
            settings, exact = MESHES[mesh]
            other = train(r, base, f"{name} {mesh}", **case.settings, **settings)
            tuning.check_mesh(f"{name}, {mesh}", other, one, exact, MESH, STEPS)
        if name in ("gpt2", "llama 2"):
            resumed(r, name, base, one, case.settings)
        if name == "gpt2":
            without(r, name, base, one)
