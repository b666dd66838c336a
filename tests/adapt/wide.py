"""A model of transformers that computes in float64 throughout.

Its own code casts to float32 in norms, softmax and rotary tables, and rounds Gemma's embedding scale to float32. Here
these are float64. Angles of rotary positions stay rounded to float32, because models were trained with these angles;
Trireme's float64 does the same (trireme/ops/elementwise/rotary.cpp).
"""

import sys
import types

import ring

[torch] = ring.judges("torch")


class WideTorch:
    """What a module of transformers calls torch, whose float32 is float64."""
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def gemma_norm(self, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1.0 + self.weight)


@torch.no_grad()
def rotary(self, x, position_ids, layer_type=None):
    prefix = f"{layer_type}_" if layer_type else ""
    frequencies, scaling = getattr(self, f"{prefix}inv_freq"), getattr(self, f"{prefix}attention_scaling")
    angles = (position_ids[..., None].float() * frequencies.float()).double()
    both = torch.cat((angles, angles), dim=-1)
    return both.cos() * scaling, both.sin() * scaling


def widen(model):
    """The model in float64; its module of transformers stays changed for the rest of the process."""
    model.double()
    for module in model.modules():
        kind = type(module).__name__
        if kind.startswith("Gemma") and kind.endswith("RMSNorm"):
            module.forward = types.MethodType(gemma_norm, module)
        elif kind.endswith("RotaryEmbedding"):
            module.forward = types.MethodType(rotary, module)
        elif kind == "Gemma3TextScaledWordEmbedding":
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float64)
        home = sys.modules[type(module).__module__]
        if home.__name__.startswith("transformers.models."):
            home.torch = WideTorch()
    return model
