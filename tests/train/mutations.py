"""What happens to a model when its folder is changed: every field of config.json, every pair of tensors of one shape.

A field is in one of the tables below or the test fails. A changed field moves the logits, or is refused by a message
that names it (a size: the tensor that no longer fits), or is listed as inert, and then it must change no bit.
"""

import copy
import itertools
import json
import os
import re
import struct

DROPOUTS = ("attention_dropout", "hidden_dropout", "residual_dropout", "embedding_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop")
# Inert: field -> why it changes nothing.
INERT = {
    "architectures": "model_type says which it is",
    "dtype": "every tensor says its own", "torch_dtype": "every tensor says its own",
    "transformers_version": "says who wrote the file",
    "use_cache": "how transformers generates",
    "bos_token_id": "the tokenizer's", "eos_token_id": "where generated text ends", "pad_token_id": "the tokenizer's",
    "initializer_range": "of fresh weights",
    "pretraining_tp": "the order of sums of whoever trained it",
    **dict.fromkeys(DROPOUTS, "evaluation drops nothing"), "classifier_dropout": "another kind of head",
    "no_rope_layer_interval": "no_rope_layers says it", "long_factor": "no sequence here is longer than the original positions",
    "reorder_and_upcast_attn": "rounding of attention in half precision",
    "summary_type": "another kind of head", "summary_use_proj": "another kind of head",
    "summary_activation": "another kind of head", "summary_proj_to_labels": "another kind of head",
    "summary_first_dropout": "another kind of head",
    "_sliding_window_pattern": "layer_types says it",
    "max_position_embeddings": "a limit, and no sequence here reaches it",
}
# Where they say nothing, these change nothing either; they may also be refused.
IDLE = {
    "max_window_layers": (lambda c: "layer_types" in c or not c["use_sliding_window"], "layer_types says it, or there is no window"),
    "sliding_window": (lambda c: c.get("use_sliding_window") is False, "use_sliding_window is false"),
    "use_sliding_window": (lambda c: c["sliding_window"] is None, "there is no window"),
    "original_max_position_embeddings": (lambda c: c["model_type"] == "phi3" and c["rope_parameters"]["rope_type"] == "default",
                                         "there is no scaling"),
    "layer_types": (lambda c: c["sliding_window"] is None, "there is no window"),
}
# Field -> what it becomes; a function of its value where one value does not fit all.
CHANGED = {
    "model_type": "mamba",
    "vocab_size": 264, "hidden_size": 56, "intermediate_size": 72, "num_hidden_layers": lambda v: v - 1, "head_dim": 8,
    "num_attention_heads": lambda v: 2 * v, "num_key_value_heads": lambda v: 1 if v > 1 else 2,
    "n_embd": 56, "n_inner": 72, "n_layer": lambda v: v - 1, "n_head": 2, "n_positions": 120,
    "rms_norm_eps": 0.1, "layer_norm_epsilon": 0.1, "norm_epsilon": 0.1, "layer_norm_eps": 0.1,
    "hidden_act": lambda v: "gelu_new" if v == "relu" else "relu", "hidden_activation": "gelu",
    "activation_function": lambda v: "gelu_new" if v == "relu" else "relu",
    "tie_word_embeddings": lambda v: not v, "attention_bias": lambda v: not v, "mlp_bias": lambda v: not v, "use_bias": lambda v: not v,
    "use_parallel_residual": lambda v: not v, "is_decoder": True, "no_rope_layers": lambda v: [1 - x for x in v],
    "embedding_multiplier": 2.0, "residual_multiplier": 0.7, "attention_multiplier": 0.4, "logits_scaling": 3.0,
    "short_factor": lambda v: [2 * x for x in v], "partial_rotary_factor": lambda v: 0.9375 if v == 1 else 1.0 if v == 0.5 else 0.5,
    "rope_theta": lambda v: 3 * v, "rope_local_base_freq": lambda v: 3 * v,
    "rope_type": lambda v: "dynamic" if v == "default" else "default", "type": lambda v: "dynamic" if v == "default" else "default",
    "factor": lambda v: 2 * v, "low_freq_factor": 2.0, "high_freq_factor": 8.0, "original_max_position_embeddings": 64,
    "beta_fast": 2.0, "beta_slow": 0.3, "attention_factor": 1.3, "mscale": 0.7, "mscale_all_dim": 0.7, "truncate": False,
    "sliding_window": 7, "use_sliding_window": lambda v: not v, "max_window_layers": 1, "sliding_window_pattern": 2,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "layer_types": lambda v: "full_attention" if v == "sliding_attention" else "sliding_attention",
    "query_pre_attn_scalar": 50, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 9.0,
    "use_bidirectional_attention": True,
    "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "add_cross_attention": True,
}


class Mutation:
    """`name` says what is changed; `config` and `swap` are for folder_with()."""

    def __init__(self, name, config=None, swap=None, field="", value=None, inert=False, idle=False):
        self.name, self.config, self.swap, self.field, self.value = name, config, swap, field, value
        self.inert, self.idle = inert, idle

    def is_named_by(self, message):
        """A refusal says which field or value it does not take, or which tensor is missing or does not fit."""
        values = self.value.values() if isinstance(self.value, dict) else [self.value]
        named = any(word in message for word in (self.field, *(v for v in values if isinstance(v, str))))
        return named or re.search(r"tensor '[\w.]+\.(weight|bias)'", message)


def leaves(config, path=()):
    """Paths of all fields; each element of layer_types is one."""
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        if isinstance(value, dict) or (key == "layer_types" and value):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def changed(config, path, value):
    config = copy.deepcopy(config)
    inside = config
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return config


def another(value):
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, (int, float)) else "other"


def of_config(config):
    """A Mutation for every field; those in no table have no config."""
    for path, value in leaves(config):
        field = [key for key in path if isinstance(key, str)][-1]
        name = ".".join(map(str, path))
        if config.get("model_type") == "phi3" and path == ("rope_parameters", "original_max_position_embeddings"):
            continue  # the key of the whole counts
        if field in INERT:
            new = [another("")] if isinstance(value, list) else 0.2 if field in DROPOUTS else another(value)
        elif field in CHANGED:
            new = CHANGED[field](value) if callable(CHANGED[field]) else CHANGED[field]
        else:
            yield Mutation(name)
            continue
        idle = field in IDLE and IDLE[field][0](config)
        yield Mutation(f"{name} = {json.dumps(new)}", changed(config, path, new), None, field, new, field in INERT, idle)


def header_of(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size)), size


def swaps(path):
    """A Mutation for every pair of tensors that could be mistaken for each other."""
    header = {n: t for n, t in header_of(path)[0].items() if n != "__metadata__"}
    return [Mutation(f"{a} for {b}", swap=(a, b)) for a, b in itertools.combinations(sorted(header), 2)
            if header[a]["shape"] == header[b]["shape"]]


def write_swapped(source, target, a, b):
    header, size = header_of(source)
    header[a], header[b] = header[b], header[a]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(source, "rb") as file:
        file.seek(8 + size)
        target.write_bytes(struct.pack("<Q", len(text)) + text + file.read())


def folder_with(folder, target, config=None, swap=None):
    """A copy of a folder with another config.json, or with two tensors swapped. What is the same is linked."""
    target.mkdir()
    for path in folder.iterdir():
        if path.name == "config.json" and config is not None:
            (target / path.name).write_text(json.dumps(config))
        elif path.name == "model.safetensors" and swap is not None:
            write_swapped(path, target / path.name, *swap)
        else:
            os.link(path, target / path.name)
    return target


def in_older_words(config):
    """The same config.json as transformers 4 wrote it."""
    old = copy.deepcopy(config)
    rope = old.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope:
        old["rope_theta"] = rope.pop("rope_theta")
        old["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        if rope["rope_type"] == "linear" and old.get("model_type") != "gemma3_text":  # whose "type" transformers 5 passes over
            old["rope_scaling"] = {"type": rope["rope_type"], "factor": rope["factor"]}
    if "dtype" in old:
        old["torch_dtype"] = old.pop("dtype")
    if old.get("model_type") == "gemma3_text":
        kinds = [*(old.get("layer_types") or []), "full_attention"]
        old["sliding_window_pattern"] = kinds.index("full_attention") + 1
        old.pop("_sliding_window_pattern", None)
    old.pop("layer_types", None)
    return old
