"""What a file of weights may not hold beside a good config.json: a change of a tensor, and what the refusal must name."""

import torch


def rows(value, count):
    """The first `count` rows; more of them are zeros."""
    more = torch.zeros(max(0, count - len(value)), *value.shape[1:], dtype=value.dtype)
    return torch.cat([value, more])[:count].contiguous()


def transposed(value):
    return value.T.contiguous()


def flat(value):
    return value.flatten().contiguous()


# (tiny model, {tensor: its change}, words of the message). Every changed tensor but the last ones has as many elements as
# the model's, or more: a reader that takes as many as it needs sees nothing.
CASES = [
    ("llama 2", {"model.layers.1.mlp.down_proj.weight": transposed}, ("down_proj.weight", "[80, 48]", "[48, 80]")),
    ("llama 2", {"model.layers.0.self_attn.q_proj.weight": lambda v: rows(v, 128)}, ("q_proj.weight", "[128, 48]", "[64, 48]")),
    ("llama 2", {"model.embed_tokens.weight": lambda v: rows(v, 288)}, ("embed_tokens.weight", "[288, 48]", "[263, 48]")),
    ("llama 2", {"lm_head.weight": lambda v: rows(v, 264)}, ("lm_head.weight", "[264, 48]", "[263, 48]")),
    ("llama 2", {"model.norm.weight": lambda v: rows(v, 64)}, ("model.norm.weight", "[64]", "[48]")),
    ("llama 2", {"model.layers.2.mlp.up_proj.weight": flat}, ("up_proj.weight", "[3840]", "[80, 48]")),
    ("llama 2", {"model.layers.2.mlp.up_proj.weight": lambda v: v[None]}, ("up_proj.weight", "[1, 80, 48]", "[80, 48]")),
    ("llama 2", {"model.layers.3.mlp.gate_proj.weight": lambda v: rows(v, 79)}, ("gate_proj.weight", "[79, 48]", "[80, 48]")),
    ("gpt2", {"transformer.h.0.attn.c_attn.weight": transposed}, ("c_attn.weight", "[144, 48]", "[48, 144]")),
    ("gpt2", {"transformer.wpe.weight": lambda v: rows(v, 256)}, ("wpe.weight", "[256, 48]", "[128, 48]")),
    ("gpt2", {"transformer.h.1.mlp.c_fc.bias": lambda v: rows(v, 96)}, ("c_fc.bias", "[96]", "[80]")),
    ("qwen2", {"model.layers.0.self_attn.k_proj.bias": lambda v: rows(v, 48)}, ("k_proj.bias", "[48]", "[24]")),
    ("qwen3", {"model.layers.0.self_attn.q_norm.weight": lambda v: rows(v, 48)}, ("q_norm.weight", "[48]", "[16]")),
    ("gemma3", {"model.layers.0.self_attn.o_proj.weight": transposed}, ("o_proj.weight", "[64, 48]", "[48, 64]")),
    ("gemma3", {"lm_head.weight": lambda _: torch.ones(263, 48)}, ("lm_head.weight", "tie_word_embeddings")),
    ("gpt2", {"lm_head.weight": lambda _: torch.ones(263, 48)}, ("lm_head.weight", "tie_word_embeddings")),
    ("smollm2", {"lm_head.weight": lambda _: torch.ones(264, 48)}, ("lm_head.weight", "tie_word_embeddings")),
]


def changed(tensors, change):
    return tensors | {name: new(tensors.get(name)) for name, new in change.items()}
