"""Tiny models of every architecture, made by transformers, in which every parameter matters.

Matrices are redrawn from N(0, 1.5/sqrt(fan-in)), norm weights and biases get N(0, 0.3) on top of what they are, so that
a mistake anywhere shows in the logits. Windows are shorter than the sequences, both kinds of layers are there, heads are
grouped, a head's width is not width / heads where the family leaves it free, and the vocabulary divides by nothing.
"""

import json
import zlib

import ring

torch, transformers = ring.judges("torch", "transformers")

ROWS, LENGTH = 2, 40  # of the tokens that are judged
COMMON = {"vocab_size": 263, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
NO_PAD = COMMON | {"pad_token_id": None}  # some families have one beyond so small a vocabulary
OTHER_EPS = {key: value for key, value in NO_PAD.items() if key != "rms_norm_eps"}
EQUAL_HEADS = {key: value for key, value in OTHER_EPS.items() if key != "num_key_value_heads"}
WIDE_HEADS = COMMON | {"head_dim": 16}
WINDOWS = {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 2}
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}  # else 0.1 of each, in training
GPT2 = {"vocab_size": 263, "n_embd": 48, "n_inner": 80, "n_layer": 3, "n_head": 4, "n_positions": 128} | NO_DROPOUT
GEMMA = WIDE_HEADS | {"sliding_window": 12, "query_pre_attn_scalar": 24, "tie_word_embeddings": True}


def rope(kind, theta, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta} | more}


# name: (model_type, config). What a family always has (biases, norms of queries and keys, ...) is not said here.
MODELS = {
    "gpt2": ("gpt2", GPT2),
    "gpt2 untied": ("gpt2", GPT2 | {"tie_word_embeddings": False}),
    "llama 2": ("llama", WIDE_HEADS),
    "llama 3": ("llama", COMMON | rope("llama3", 500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                       original_max_position_embeddings=32)),
    "llama linear": ("llama", COMMON | {"num_key_value_heads": 1} | rope("linear", 100.0, factor=4.0)),
    "llama yarn": ("llama", WIDE_HEADS | rope("yarn", 500.0, factor=4.0, original_max_position_embeddings=32, beta_fast=4.0,
                                              beta_slow=1.0)),
    "smollm2": ("llama", COMMON | {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True}
                | rope("default", 100000.0)),
    "mistral": ("mistral", WIDE_HEADS | {"sliding_window": 12}),
    "qwen2": ("qwen2", COMMON | WINDOWS),
    "qwen2.5": ("qwen2", COMMON | {"tie_word_embeddings": True, "num_key_value_heads": 4} | rope("default", 1e6)),
    "qwen3": ("qwen3", WIDE_HEADS | WINDOWS),
    "qwen3 tied": ("qwen3", WIDE_HEADS | {"tie_word_embeddings": True} | rope("default", 1e6)),
    "gemma2": ("gemma2", GEMMA | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}),
    "gemma3": ("gemma3_text", GEMMA | {
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}),
    "gpt2 relu": ("gpt2", GPT2 | {"activation_function": "relu"}),
    "gpt2 gelu": ("gpt2", GPT2 | {"activation_function": "gelu"}),
    "gemma": ("gemma", NO_PAD | {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True}),
    "smollm3": ("smollm3", NO_PAD | {"no_rope_layers": [1, 0, 0, 1], "use_sliding_window": True, "sliding_window": 12,
                                     "mlp_bias": True, "layer_types": None}),  # no bias of keys: without positions it changes nothing
    "granite": ("granite", NO_PAD | {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2,
                                     "logits_scaling": 1.7, "attention_bias": True, "mlp_bias": True}),
    "starcoder2": ("starcoder2", OTHER_EPS | {"sliding_window": 12, "norm_epsilon": 1e-4}),
    "starcoder2 relu": ("starcoder2", OTHER_EPS | {"hidden_act": "relu", "use_bias": False, "tie_word_embeddings": True}),
    "phi3": ("phi3", NO_PAD | {"sliding_window": 12, "hidden_size": 64} | rope("default", 500.0, partial_rotary_factor=0.75)),
    "phi3 longrope": ("phi3", NO_PAD | {"hidden_size": 64, "original_max_position_embeddings": 96} | rope(
        "longrope", 500.0, short_factor=[1.0, 1.1, 1.3, 1.5, 2.0, 2.5, 3.0, 4.0], long_factor=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])),
    "pythia": ("gpt_neox", EQUAL_HEADS | {"hidden_size": 64, "layer_norm_eps": 1e-4}),
    "gpt neox": ("gpt_neox", EQUAL_HEADS | {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new",
                                       "tie_word_embeddings": True} | rope("linear", 100.0, factor=2.0, partial_rotary_factor=1.0)),
    "olmo2": ("olmo2", NO_PAD | {"attention_bias": True}),
    "llama longrope": ("llama", COMMON | rope("longrope", 100.0, factor=4.0, original_max_position_embeddings=96,
                                              short_factor=[1.0, 1.1, 1.3, 1.5, 2.0, 2.5], long_factor=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
}


def seeded(name):
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def redraw(model, name):
    source = seeded(name)
    conv1d = {id(m.weight) for m in model.modules() if type(m).__name__ == "Conv1D"}
    with torch.no_grad():
        for parameter in model.parameters():  # a tied one comes once
            noise = torch.randn(parameter.shape, generator=source)
            if parameter.dim() == 2:
                fan_in = parameter.shape[0 if id(parameter) in conv1d else 1]
                parameter.copy_(noise * (1.5 / fan_in ** 0.5))
            else:
                parameter.add_(0.3 * noise)


def make(name, folder, dtype=None, **saving):
    """A model of transformers, saved to `folder`; in float32, or rounded to `dtype`."""
    kind, config = MODELS[name]
    config = transformers.AutoConfig.for_model(kind, **config)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    redraw(model, name)
    model = model.to(dtype or torch.float32).eval()
    model.save_pretrained(folder, **saving)
    return model


def tokenizer_json(size, special=()):
    """256 bytes in GPT-2's letters, and as many words behind them as the model has rows; the first are `special` tokens."""
    plain = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = iter(range(256, 512))
    letters = {chr(b if b in plain else next(others)): b for b in range(256)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    names = [*special, *(f"<{i}>" for i in range(256 + len(special), size))]
    words = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": name in special} for i, name in enumerate(names, 256)]
    return json.dumps({"version": "1.0", "added_tokens": words, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
                       "decoder": byte_level, "model": {"type": "BPE", "vocab": letters, "merges": []}})


def tokens_of(name, rows=ROWS, length=LENGTH):
    """Tokens, and the targets behind them of which some are not supervised."""
    vocabulary = MODELS[name][1]["vocab_size"]
    drawn = torch.randint(vocabulary, (rows, length + 1), generator=seeded(name + " tokens"))
    targets = drawn[:, 1:].clone()
    targets[:, 3::5] = -100
    return drawn[:, :-1], targets
