"""The Free Transformer against PyTorch's autograd in float64: losses and gradients, by a table and by bits.

free_transformer_judge.py TRIREME MODEL_PROBE

The reference is written from the paper's formulas (Fleuret, The Free Transformer, 2025), with all 2^H codes. Only what
no paper says is Trireme's: which random numbers draw the bits (trireme/ops/latent/latent.h, trireme/model/dropout.h).
"""

import json
import math
import sys

import probe
import ring

torch, safetensors = ring.judges("torch", "safetensors.torch")

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FREE_NATS, WEIGHT = 0.05, 0.7
CONFIG = {"architectures": ["FreeTransformerForCausalLM"], "model_type": "free_transformer", "vocab_size": 61, "hidden_size": 48,
          "intermediate_size": 80, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
          "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
          "initializer_range": 0.02, "latent_dim": 5, "split_layer": 2, "injection": "table", "kappa_free_bits": FREE_NATS,
          "beta_kl": WEIGHT, "torch_dtype": "float32"}
BLOCK = {"input_layernorm.weight": "D", "self_attn.q_proj.weight": "QD", "self_attn.k_proj.weight": "KD", "self_attn.v_proj.weight": "KD",
         "self_attn.o_proj.weight": "DQ", "post_attention_layernorm.weight": "D", "mlp.gate_proj.weight": "FD", "mlp.up_proj.weight": "FD",
         "mlp.down_proj.weight": "DF"}


def shapes(c):
    size = {"D": c["hidden_size"], "Q": c["num_attention_heads"] * c["head_dim"], "K": c["num_key_value_heads"] * c["head_dim"],
            "F": c["intermediate_size"]}
    d, h, v = c["hidden_size"], c["latent_dim"], c["vocab_size"]
    blocks = [f"model.layers.{i}." for i in range(c["num_hidden_layers"])] + ["model.encoder.block."]
    found = {block + name: [size[s] for s in shape] for block in blocks for name, shape in BLOCK.items()}
    return found | {"model.embed_tokens.weight": [v, d], "model.norm.weight": [d], "lm_head.weight": [v, d], "model.encoder.zeta": [d],
                    "model.encoder.norm.weight": [d], "model.encoder.readout.weight": [h, d],
                    "model.post_sampler.weight": [2**h, d] if c["injection"] == "table" else [d, h]}


def make(folder, config):
    """Weights that are large enough for every part to matter: bits that depend on the text, and codes that count."""
    folder.mkdir()
    torch.manual_seed(7)
    weights = {}
    for name, shape in shapes(config).items():
        scale = 1.5 if "post_sampler" in name or "readout" in name or "zeta" in name else 0.25
        weights[name] = torch.randn(shape) * scale + (1 if len(shape) == 1 and "norm" in name else 0)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.save_file(weights, folder / "model.safetensors")
    return weights


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def splitmix64(x):
    return mix64(x + GOLDEN & MASK)


def lowbias32(h):
    h = (h ^ h >> 16) * 0x7FEB352D & 0xFFFFFFFF
    h = (h ^ h >> 15) * 0x846CA68B & 0xFFFFFFFF
    return h ^ h >> 16


def uniforms(rows, length, bits, seed=0, step=1):
    """[rows, length, bits]: what each bit is compared with."""
    module = 0xCBF29CE484222325
    for character in b"model.encoder":
        module = (module ^ character) * 0x100000001B3 & MASK
    step_key = splitmix64(splitmix64(seed) ^ step)

    def of_token(row, position):
        key = splitmix64(splitmix64(step_key ^ (row << 32 | position)) ^ module) & 0xFFFFFFFF
        return [(lowbias32(key + h * 0x9E3779B9 & 0xFFFFFFFF) + 0.5) / 2**32 for h in range(bits)]

    return torch.tensor([[of_token(row, position) for position in range(length)] for row in range(rows)], dtype=torch.float64)


class Reference:
    def __init__(self, config, weights):
        self.c = config
        self.w = {name: w.double().requires_grad_() for name, w in weights.items()}

    def norm(self, x, name):
        return x * (x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]).rsqrt() * self.w[name]

    def heads(self, x):
        x = x.unflatten(-1, (-1, self.c["head_dim"])).transpose(1, 2)
        return x

    def rotate(self, x):
        half = self.c["head_dim"] // 2
        # Frequencies and angles are rounded to float32, as transformers' are.
        frequency = 1 / self.c["rope_theta"] ** (torch.arange(half, dtype=torch.float32) / half)
        angle = (torch.arange(x.shape[2], dtype=torch.float32)[:, None] * frequency).double()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def block(self, prefix, x, kv, causal):
        w, first = self.w, prefix + "input_layernorm.weight"
        q_in, kv_in = self.norm(x, first), self.norm(kv, first)
        q = self.rotate(self.heads(q_in @ w[prefix + "self_attn.q_proj.weight"].T))
        k = self.rotate(self.heads(kv_in @ w[prefix + "self_attn.k_proj.weight"].T))
        v = self.heads(kv_in @ w[prefix + "self_attn.v_proj.weight"].T)
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.c["head_dim"])
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ w[prefix + "self_attn.o_proj.weight"].T
        y = self.norm(x, prefix + "post_attention_layernorm.weight")
        y = torch.nn.functional.silu(y @ w[prefix + "mlp.gate_proj.weight"].T) * (y @ w[prefix + "mlp.up_proj.weight"].T)
        return x + y @ w[prefix + "mlp.down_proj.weight"].T

    def latent(self, x):
        """R, and the bits' logits."""
        zeta = self.w["model.encoder.zeta"].expand_as(x)
        y = self.block("model.encoder.block.", zeta, x, causal=False)
        logits = self.norm(y, "model.encoder.norm.weight") @ self.w["model.encoder.readout.weight"].T
        p, w, h = logits.sigmoid(), self.w["model.post_sampler.weight"], self.c["latent_dim"]
        bits = (uniforms(*x.shape[:2], h) < p).double().detach()
        self.bits = bits
        if self.c["injection"] == "bits":
            return (2 * (bits + (p - p.detach())) - 1) @ w.T, logits
        codes = torch.arange(2**h)[:, None] >> torch.arange(h) & 1  # [2^H, H], the lowest bit first
        log_p, log_q = (torch.nn.functional.logsigmoid(sign * logits)[..., None, :] for sign in (1, -1))
        g = torch.where(codes.bool(), log_p, log_q).sum(-1).exp()
        ring.require(torch.allclose(g.sum(-1), torch.ones(()).double()), "the probabilities of all codes sum to 1")
        drawn = torch.nn.functional.one_hot((bits.long() << torch.arange(h)).sum(-1), 2**h).double()
        return (drawn + (g - g.detach())) @ w, logits

    def run(self, tokens, targets):
        x = self.w["model.embed_tokens.weight"][tokens]
        for i in range(self.c["num_hidden_layers"]):
            kv = x
            if i == self.c["split_layer"]:
                r, logits = self.latent(x)
                kv = x + r
            x = self.block(f"model.layers.{i}.", x, kv, causal=True)
        self.logits = self.norm(x, "model.norm.weight") @ self.w["lm_head.weight"].T
        counts = targets >= 0
        ce = torch.nn.functional.cross_entropy(self.logits.flatten(0, 1), targets.flatten())
        p = logits.sigmoid()
        kl = (p * (2 * p).log() + (1 - p) * (2 * (1 - p)).log()).sum(-1)[counts]
        hinge = (kl - FREE_NATS).clamp(min=0)
        loss = ce + WEIGHT * hinge.mean()
        loss.backward()
        return {"loss": loss.item(), "measures": [kl.mean().item(), hinge.mean().item(), (kl > FREE_NATS).double().mean().item()]}


def judge(ask, folder, changes, rows, length, supervised):
    config = CONFIG | changes
    what = f"{config['injection']} of {config['latent_dim']} bits before block {config['split_layer']}"
    name = what.replace(" ", "-")
    weights = make(folder / name, config)
    generator = torch.Generator().manual_seed(3)
    tokens, targets = (torch.randint(0, 61, (rows, length), generator=generator) for _ in range(2))
    if not supervised:
        targets[:, ::3] = -100
    reference = Reference(config, weights)
    want = reference.run(tokens, targets)
    share = reference.bits.mean().item()
    ring.require(0.2 < share < 0.8 and 0.2 < want["measures"][2] <= 1, f"{what}: bits are drawn ({share:.2f} are 1)", str(want))
    replies = ask([probe.job("wide", folder / name, tokens, "float64", targets=targets, gradients=True),
                   probe.job("plain", folder / name, tokens, "float32", targets=targets, gradients=True)])
    for job, limit, of_gradients in (("wide", 1e-12, 1e-9), ("plain", 1e-5, 1e-3)):
        ours = replies[job]
        ring.require("error" not in ours, f"{what}: {job} computes", str(ours.get("error")))
        off = abs(ours["loss"] / want["loss"] - 1)
        ring.require(off <= limit, f"{what}, {job}: loss within {off:.1e} of the reference, at most {limit:.0e}", f"{ours['loss']} {ours['measures']} {want}")
        worst = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(ours["measures"], want["measures"], strict=True))
        ring.require(worst <= limit, f"{what}, {job}: divergence, hinge and share within {worst:.1e}", f"{ours['measures']} {want}")
        theirs = {n: w.grad for n, w in reference.w.items()}
        ring.require(ours["gradients"].keys() == theirs.keys(), f"{what}: gradients of the same parameters", str(ours["gradients"].keys() ^ theirs.keys()))
        distance = {n: ((ours["gradients"][n].double() - g).norm() / g.norm()).item() for n, g in theirs.items()}
        furthest = max(distance, key=distance.get)
        ring.check(distance[furthest] <= of_gradients,
                   f"{what}, {job}: loss within {off:.1e} of PyTorch's, gradients within {distance[furthest]:.1e} of their norms",
                   "\n".join(f"{d:.1e} {n}" for n, d in distance.items() if d > of_gradients))


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    ask = probe.Probe(sys.argv[2], r.folder).ask
    judge(ask, r.folder, {}, 2, 16, True)
    judge(ask, r.folder, {"latent_dim": 1, "split_layer": 1}, 3, 12, False)
    judge(ask, r.folder, {"latent_dim": 9, "split_layer": 4}, 2, 20, False)
    judge(ask, r.folder, {"injection": "bits", "latent_dim": 7}, 2, 16, False)
    judge(ask, r.folder, {"injection": "bits", "latent_dim": 64, "split_layer": 3}, 2, 16, True)
