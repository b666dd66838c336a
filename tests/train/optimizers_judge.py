"""Every optimizer beside its reference in float64: twenty steps of a model that both train, and the same on meshes.

optimizers_judge.py TRIREME [NAME ...]
The references are torch.optim's and transformers' optimizers; for LAMB DeepSpeed's FusedLamb
(csrc/lamb/fused_lamb_cuda_kernel.cu), for LARS and Lion the formulas of their papers (arXiv 1708.03888, 2302.06675). The judge
trains transformers' model on the rows of the run's ledger. NAME picks optimizers. TRIREME_SLOW=1: every mesh for each of
them; otherwise a sample.
"""

import itertools
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "adapt"))
import tuning
from tuning import ring, torch, transformers

import wide

transformers.Adafactor = ring.judges("transformers.optimization")[0].Adafactor

STEPS = 20
EQUAL, MESH = 1e-9, 1e-10
FAMILIES = {"llama": "llama 2", "gpt2": "gpt2", "qwen2": "qwen2"}


class Reference(torch.optim.Optimizer):
    """A formula for one tensor: `update(p, g, state, group)` changes p in place."""

    def __init__(self, groups, update, **defaults):
        super().__init__(groups, defaults)
        self.update = update

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                self.update(p, p.grad, state, group)


def lamb(p, g, state, group):
    b1, b2 = 0.9, 0.999
    m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
    m.mul_(b1).add_(g, alpha=1 - b1)
    v.mul_(b2).addcmul_(g, g, value=1 - b2)
    update = m / (v.sqrt() + 1e-8) + group["weight_decay"] * p
    w, u = p.norm().item(), update.norm().item()
    ratio = min(max(w / u, group["bounds"][0]), group["bounds"][1]) if w != 0 and u != 0 else 1.0
    step_size = group["lr"] * (1 - b2 ** state["step"]) ** 0.5 / (1 - b1 ** state["step"])
    p.sub_(step_size * ratio * update)


def lars(p, g, state, group):
    v, decay = state.setdefault("v", torch.zeros_like(p)), group["weight_decay"]
    w, n = p.norm().item(), g.norm().item()
    rate = group["eta"] * w / (n + decay * w + 1e-8) if p.dim() == 2 and w > 0 and n > 0 else 1.0
    v.mul_(0.9).add_(group["lr"] * rate * (g + decay * p))
    p.sub_(v)


def lion(p, g, state, group):
    m = state.setdefault("m", torch.zeros_like(p))
    p.sub_(group["lr"] * ((0.9 * m + 0.1 * g).sign() + group["weight_decay"] * p))
    m.mul_(0.99).add_(g, alpha=0.01)


class Muon:
    """torch.optim.Muon on hidden matrices, in float64 throughout; AdamW on the rest."""

    def __init__(self, named, decay, adam_lr=None, **options):
        hidden = lambda name, p: p.dim() == 2 and not any(word in name for word in ("embed_tokens", "lm_head", "wte", "wpe"))
        self.muon = torch.optim.Muon([p for n, p in named if hidden(n, p)], lr=options["lr"], weight_decay=decay,
                                     adjust_lr_fn=options.get("adjust_lr_fn"))
        rest = [p for n, p in named if not hidden(n, p)]
        self.adamw = torch.optim.AdamW(decayed(rest, decay), lr=adam_lr or options["lr"])

    def zero_grad(self):
        self.muon.zero_grad(), self.adamw.zero_grad()

    def step(self):
        narrow = torch.Tensor.bfloat16
        torch.Tensor.bfloat16 = torch.Tensor.double
        try:
            self.muon.step()
        finally:
            torch.Tensor.bfloat16 = narrow
        self.adamw.step()


def decayed(values, decay):
    """Matrices decay, as everywhere here."""
    groups = [{"params": [p for p in values if p.dim() == 2], "weight_decay": decay},
              {"params": [p for p in values if p.dim() != 2], "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def plain(optimizer, decay=0.0, **options):
    return lambda named: optimizer(decayed([p for _, p in named], decay), **options)


def grouped(named):
    """The groups of the case of that name."""
    groups = []
    for name, p in named:
        if "layers.1." in name:
            continue
        decay = 0.3 if "mlp" in name else 0.1 if p.dim() == 2 else 0.0
        groups.append({"params": [p], "lr": 1e-3 * (0.25 if "embed_tokens" in name else 1), "weight_decay": decay})
    return torch.optim.AdamW(groups)


# name: (settings, the reference's optimizer of named parameters)
# The rate that the run would have is left out: Adafactor has one of its own then.
OWN_RATE = {"optimizer__relative_step": "true", "optimizer__scale_parameter": "true", "optimizer__lr": None, "train__lr_warmup_steps": None,
            "train__lr_decay": None, "train__min_lr": None}
OPTIMIZERS = {
    "AdamW": ({"optimizer__weight_decay": 0.1}, plain(torch.optim.AdamW, 0.1, lr=1e-3)),
    "Adam": ({"optimizer__weight_decay": 0.1}, plain(torch.optim.Adam, 0.1, lr=1e-3)),
    "SGD": ({"optimizer__lr": 0.05, "optimizer__momentum": 0.9, "optimizer__nesterov": "true", "optimizer__weight_decay": 0.01},
            plain(torch.optim.SGD, 0.01, lr=0.05, momentum=0.9, nesterov=True)),
    "Lion": ({"optimizer__lr": 1e-4, "optimizer__weight_decay": 0.1}, plain(Reference, 0.1, update=lion, lr=1e-4)),
    # With the default eps, Adagrad makes a step of 1e-9 from the noise in gradients that are 0, like those of GPT-2's biases of keys.
    "Adagrad": ({"optimizer__lr": 0.01, "optimizer__weight_decay": 0.01, "optimizer__eps": 1e-6},
                plain(torch.optim.Adagrad, 0.01, lr=0.01, eps=1e-6)),
    "LARS": ({"optimizer__lr": 0.05, "optimizer__weight_decay": 0.01, "optimizer__trust_coefficient": 0.02},
             plain(Reference, 0.01, update=lars, lr=0.05, eta=0.02)),
    "LAMB": ({"optimizer__lr": 0.01, "optimizer__weight_decay": 0.1},
             plain(Reference, 0.1, update=lamb, lr=0.01, bounds=(0.01, 10.0))),
    "LAMB, narrow bounds": ({"optimizer__lr": 0.01, "optimizer__trust_bounds": "[0.5,2]"},
                            plain(Reference, update=lamb, lr=0.01, bounds=(0.5, 2.0))),
    "Adafactor": ({"optimizer__lr": 0.01, "optimizer__weight_decay": 0.01},
                  plain(transformers.Adafactor, 0.01, lr=0.01, relative_step=False, scale_parameter=False)),
    "Adafactor, its own rate": (OWN_RATE,
                                plain(transformers.Adafactor, relative_step=True, scale_parameter=True)),
    "Adafactor, its own warm-up": (OWN_RATE | {"optimizer__warmup_init": "true"},
                                   plain(transformers.Adafactor, relative_step=True, scale_parameter=True, warmup_init=True)),
    "Muon": ({"optimizer__lr": 0.01, "optimizer__adam_lr": 1e-3}, lambda named: Muon(named, 0.1, lr=0.01, adam_lr=1e-3)),
    "Muon, AdamW's size": ({"optimizer__lr": 1e-3, "optimizer__adjust_lr_fn": "match_rms_adamw", "optimizer__weight_decay": 0.2},
                           lambda named: Muon(named, 0.2, lr=1e-3, adjust_lr_fn="match_rms_adamw")),
    "AdamW, groups": ({"optimizer__weight_decay": 0.1, "optimizer__groups":
                       r"[embed_tokens lr=0.25, \.mlp\. weight_decay=0.3, layers\.1\. frozen]"}, grouped),
}
# name: (settings, equal to the bit)
MESHES = {
    "no_shard 2": ({"devices": 2, "strategy": "no_shard"}, True),
    "zero1 2": ({"devices": 2, "strategy": "zero1"}, True),
    "zero2 4": ({"devices": 4, "strategy": "shard_grad_op"}, True),
    "full_shard 2": ({"devices": 2, "strategy": "full_shard"}, True),
    "full_shard 4": ({"devices": 4, "strategy": "full_shard"}, True),
    "tp 2": ({"devices": 2, "mesh__tp": 2}, False),
    "pp 2": ({"devices": 2, "mesh__pp": 2}, False),
    "tp 2, full_shard 2": ({"devices": 4, "mesh__tp": 2, "strategy": "full_shard"}, False),
}
QUICK = [("AdamW, groups", "llama", "full_shard 2"), ("Adagrad", "gpt2", "zero2 4"), ("LARS", "llama", "tp 2"),
         ("LAMB", "llama", "full_shard 4"), ("LAMB", "llama", "tp 2"), ("Adafactor", "llama", "full_shard 4"), ("Adafactor", "llama", "tp 2"),
         ("Adafactor, its own rate", "llama", "zero1 2"), ("Muon", "llama", "full_shard 4"),
         ("Muon", "llama", "tp 2, full_shard 2"), ("Muon", "gpt2", "pp 2")]


class Judged:
    """One rank's run of an optimizer, and transformers' model trained by the reference."""

    def __init__(self, r, name, family):
        self.r, self.what = r, f"{name} on {family}"
        self.settings, self.reference = OPTIMIZERS[name]
        self.settings = {"optimizer": name.split(",")[0], "optimizer__lr": tuning.RATE} | self.settings
        self.base = r.folder / family
        if not self.base.exists():
            tuning.make_base(FAMILIES[family], self.base)
        self.one = self.tune("one")
        self.beside_reference()

    def tune(self, what, **settings):
        out = "".join(c if c.isalnum() else "-" for c in f"{self.what} {what}")
        return tuning.tune(self.r, self.base, out, subcommand="finetune_full", train__max_steps=STEPS, **self.settings | settings)

    def beside_reference(self):
        model = tuning.load_base(self.base)
        wide.widen(model)
        named = list(model.named_parameters())
        batches, optimizer, ours = tuning.Batches(self.one), self.reference(named), tuning.losses(self.one)
        worst = 0.0
        for step in range(1, STEPS + 1):
            loss = tuning.loss_of(model, batches.step(step))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            worst = max(worst, abs(ours[step - 1] - loss.item()))
        if self.settings.get("optimizer__relative_step"):
            told = [row["lr"] for _, row in sorted(ring.metrics(self.one).items())]
            own = [min(1e-6 * step if "optimizer__warmup_init" in self.settings else 1e-2, step ** -0.5) for step in range(1, STEPS + 1)]
            ring.check(all(abs(a - b) <= 1e-12 for a, b in zip(told, own, strict=True)), f"{self.what}: metrics have the rate that counts", str(told))
        found = tuning.trained(self.one / f"step-{STEPS:08}")
        found |= {f"transformer.{name}": value for name, value in found.items()}  # GPT-2's files need no such word
        kept = {n: p for n, p in named if f"{n}.master" in found}
        frozen = {n for n, _ in named} - kept.keys()
        ring.require(all("layers.1." in n for n in frozen) and (not frozen or "groups" in self.what),
                     f"{self.what}: the checkpoint holds what is trained", str(sorted(frozen)[:4]))
        ring.require(ours[-1] < ours[0], f"{self.what}: it learns, {ours[0]:.3f} to {ours[-1]:.3f}")
        off = max(tuning.far(found[f"{n}.master"], p.detach()) for n, p in kept.items())
        ring.check(max(off, worst) <= EQUAL,
                   f"{self.what}: {STEPS} losses within {worst:.1e} of the reference's ({ours[0]:.3f} to {ours[-1]:.3f}), "
                   f"{len(kept)} tensors within {off:.1e} (at most {EQUAL:.0e})")

    def on_mesh(self, mesh):
        settings, exact = MESHES[mesh]
        other = self.tune(mesh, **settings)
        tuning.check_mesh(f"{self.what}, {mesh}", other, self.one, exact, MESH, STEPS)


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    tuning.write_conversations(r.folder / "chat.jsonl")
    # GPT-2's biases of keys have gradients of 0. Lion and Adafactor make whole steps of the noise in them, which no two programs share.
    only_llama = lambda name: name.startswith(("Lion", "Adafactor")) or "groups" in name
    chosen = [(n, f, m) for n, f, m in itertools.product(OPTIMIZERS, ("llama", "gpt2"), MESHES)
              if f == "llama" or not only_llama(n)] if ring.SLOW else QUICK
    chosen = [case for case in chosen if not sys.argv[2:] or case[0] in sys.argv[2:]]
    for (name, family), cases in itertools.groupby(sorted(chosen, key=lambda case: case[:2]), key=lambda case: case[:2]):
        judged = Judged(r, name, family)
        for _, _, mesh in cases:
            judged.on_mesh(mesh)
