"""Random models, as transformers makes them, and what may be wrong with a folder: drawn from a random.Random.

draw(source) is a Case: a family, a shape, a way to save it, and up to two changes of the folder, which a reader has to see.
draw_right(source, family) has no changes.
"""

import dataclasses
import json
import os

import bad_tensors
import mutations

ABSENT = object()
FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "gemma3", "gemma", "smollm3", "granite", "starcoder2",
            "phi3", "gpt_neox", "olmo2", "mistral3", "qwen2_vl")
SEEING = {"gemma3": "gemma3_text", "mistral3": "mistral", "qwen2_vl": "qwen2"}  # vision models, and what their text halves are
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
# Values that a key may wrongly have; which of them mean something is the key's matter.
ODD = (ABSENT, None, 0, False, True, 1, -1, 2, 1.5, "x", [], {})
# Keys of the limits of a run, whose small values change what evaluate reads; and keys of no model's mathematics.
LIMITS = ("max_position_embeddings", "n_positions", "dtype", "architectures", "transformers_version", "model_type", *NO_TOKENS)
# Pairs that contradict each other, or say a thing twice.
PAIRS = ({"rope_scaling": {"rope_type": "linear", "factor": 3.0}}, {"rope_scaling": {"type": "linear", "factor": 2.0}},
         {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 32}},
         {"rope_theta": 77.0}, {"rope_theta": 77.0, "rope_scaling": {"rope_type": "default"}}, {"rope_local_base_freq": 55.0},
         {"rope_parameters": {"rope_type": "linear", "type": "default", "factor": 2.0}},
         {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, {"rope_parameters": {}, "rope_theta": 50.0},
         {"attn_logit_softcapping": 3.0}, {"attn_logit_softcapping": 0}, {"final_logit_softcapping": 0.0},
         {"sliding_window": 0}, {"sliding_window": None}, {"sliding_window": 5}, {"use_sliding_window": False, "sliding_window": 0},
         {"num_key_value_heads": None}, {"head_dim": None}, {"layer_types": None}, {"layer_types": []},
         {"layer_types": None, "sliding_window_pattern": 2}, {"layer_types": None, "_sliding_window_pattern": 2},
         {"layer_types": None, "max_window_layers": 1}, {"use_bidirectional_attention": None}, {"hidden_act": "gelu"},
         {"hidden_activation": None}, {"mlp_bias": None}, {"attention_bias": None}, {"attention_dropout": None},
         {"partial_rotary_factor": 0.5}, {"original_max_position_embeddings": 16}, {"tie_word_embeddings": None},
         {"query_pre_attn_scalar": 0}, {"rms_norm_eps": 0}, {"n_inner": None}, {"is_decoder": True}, {"rope_interleaved": None})


@dataclasses.dataclass
class Case:
    kind: str
    config: dict
    dtype: str
    shard_bytes: int
    changes: list  # of names and functions that change a folder

    @property
    def name(self):
        return f"{self.kind} {self.dtype}" + "".join(f", {name}" for name, _ in self.changes)


def longrope(source, width):
    """Its longer list is for sequences beyond the original positions, which a cache of keys cannot follow."""
    more = source.choice(({}, {"factor": 4.0}, {"attention_factor": 1.2}))
    return {"rope_type": "longrope", "rope_theta": source.choice((10.0, 500.0, 10000.0)), "original_max_position_embeddings": 30,
            "short_factor": [1.0 + 0.25 * i for i in range(width // 2)], "long_factor": [2.0 + i for i in range(width // 2)]} | more


def rope(source):
    theta = source.choice((10.0, 500.0, 10000.0, 1e6))
    kind = source.choice(("default", "default", "linear", "llama3", "yarn", "dynamic"))
    more = {"default": {}, "linear": {"factor": source.choice((1.0, 2.5, 8.0))}, "dynamic": {"factor": source.choice((1.0, 2.5, 8.0))},
            "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": source.choice((2.0, 4.0)),
                       "original_max_position_embeddings": source.choice((16, 32))},
            "yarn": {"factor": source.choice((2.0, 4.0)), "original_max_position_embeddings": 16, "beta_fast": 4.0}
            | source.choice(({}, {"attention_factor": 1.3}, {"mscale": 0.8, "mscale_all_dim": 0.6}, {"truncate": False}, {"beta_slow": 2}))}
    return {"rope_type": kind, "rope_theta": theta} | more[kind]


def gpt2(source):
    heads = source.choice((1, 2, 3, 5))
    return {"n_head": heads, "n_embd": heads * source.choice((5, 7, 8, 12)), "n_inner": source.choice((None, 31, 64)),
            "n_layer": source.randint(1, 4), "n_positions": source.randint(40, 64), "vocab_size": 256 + source.randint(0, 9),
            "layer_norm_epsilon": source.choice((1e-5, 1e-3)), "tie_word_embeddings": source.random() < 0.7,
            "activation_function": source.choice(("gelu_new", "gelu_pytorch_tanh", "gelu", "relu"))} | NO_TOKENS


def gpt_neox(source):
    heads = source.choice((1, 2, 3, 5))
    width = source.choice((8, 12, 16))
    return {"num_attention_heads": heads, "hidden_size": heads * width, "intermediate_size": source.randint(5, 70),
            "num_hidden_layers": source.randint(1, 4), "max_position_embeddings": source.randint(40, 64),
            "vocab_size": 256 + source.randint(0, 9), "layer_norm_eps": source.choice((1e-5, 1e-3)),
            "tie_word_embeddings": source.random() < 0.3, "hidden_act": source.choice(("gelu", "gelu_new", "relu", "gelu")),
            "use_parallel_residual": source.random() < 0.7, "attention_bias": source.random() < 0.7,
            "rope_parameters": rope(source) | {"partial_rotary_factor": source.choice((0.25, 0.5, 1.0)) if width != 12 else 0.5}} | NO_TOKENS


def of_family(source, kind, config):
    """What Llama's newer relatives have."""
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    if kind == "granite":
        config |= {key: source.choice((0.5, 1.0, 3.0)) for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling")}
        config |= {"attention_multiplier": source.choice((0.1, 0.5)), "mlp_bias": source.random() < 0.4}
    if kind in ("granite", "smollm3", "olmo2", "gemma"):
        config["attention_bias"] = source.random() < 0.4
    if kind == "smollm3":
        config |= {"no_rope_layers": source.choice((None, [source.randint(0, 1) for _ in range(layers + 1)])), "mlp_bias": source.random() < 0.4,
                   "no_rope_layer_interval": source.randint(1, 4), "use_sliding_window": source.random() < 0.5, "sliding_window": 7}
    if kind == "starcoder2":
        config |= {"norm_epsilon": config.pop("rms_norm_eps"), "use_bias": source.random() < 0.7,
                   "hidden_act": source.choice(("gelu_pytorch_tanh", "gelu", "relu", "gelu_new")), "sliding_window": source.choice((None, 3, 12))}
    if kind == "gemma":
        config["head_dim"] = source.choice((4, 6, 10, 16))
    if kind == "phi3":
        width = source.choice((8, 16))
        config |= {"hidden_size": heads * width, "sliding_window": source.choice((None, 3, 12)), "original_max_position_embeddings": 30}
        part = source.choice((0.5, 0.75, 1.0))
        config["rope_parameters"] = (source.choice(({"rope_type": "default", "rope_theta": 500.0}, longrope(source, int(width * part))))
                                     | {"partial_rotary_factor": part})
    return config


def llama_like(source, kind):
    kv = source.choice((1, 1, 2, 3))
    heads, layers = kv * source.choice((1, 2, 3)), source.randint(1, 4)
    width = heads * source.choice((4, 6, 8, 10))
    config = {"num_attention_heads": heads, "num_key_value_heads": kv, "hidden_size": width, "num_hidden_layers": layers,
              "intermediate_size": source.randint(5, 70), "max_position_embeddings": source.randint(40, 64),
              "vocab_size": 256 + source.randint(0, 9), "rms_norm_eps": source.choice((1e-6, 1e-5, 1e-3)),
              "tie_word_embeddings": source.random() < 0.5, "rope_parameters": rope(source)} | NO_TOKENS
    if kind in ("qwen3", "gemma2", "gemma3_text") or kind in ("llama", "mistral") and source.random() < 0.5:
        config["head_dim"] = source.choice((4, 6, 10, 16, 18))
    if kind in ("llama", "qwen3", "gemma2", "gemma3_text"):
        config["attention_bias"] = source.random() < 0.4
    if kind == "llama":
        config["mlp_bias"] = source.random() < 0.4
        if source.random() < 0.2:
            config["rope_parameters"] = longrope(source, config.get("head_dim", width // heads))
    elif kind in ("gemma", "smollm3", "granite", "starcoder2", "phi3", "olmo2"):
        return of_family(source, kind, config)
    else:
        config["sliding_window"] = source.choice((1, 3, 7, 12, 30))
    if kind == "mistral" and source.random() < 0.3:
        config["sliding_window"] = None
    if kind in ("qwen2", "qwen3"):
        config |= {"use_sliding_window": source.random() < 0.6, "max_window_layers": source.randint(0, layers)}
    if kind.startswith("gemma"):
        config |= {"query_pre_attn_scalar": source.choice((4, 16, 50)), "final_logit_softcapping": source.choice((None, 4.0)),
                   "attn_logit_softcapping": source.choice((None, 3.0)),
                   "layer_types": source.choice((None, [source.choice(("sliding_attention", "full_attention")) for _ in range(layers)]))}
    if kind == "gemma3_text":
        config["rope_parameters"] = {"full_attention": rope(source), "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}
        config["rope_parameters"]["full_attention"].pop("truncate", None)
    return config


def seeing(kind, text):
    """A vision model, whose text half is judged."""
    if kind == "mistral3":
        text = text | {"model_type": "mistral"}
        if text.get("head_dim") is None:
            text["head_dim"] = text["hidden_size"] // text["num_attention_heads"]
        eyes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 8, "image_size": 8,
                "patch_size": 4, "model_type": "pixtral"}
        return {"text_config": text, "vision_config": eyes, "tie_word_embeddings": text["tie_word_embeddings"]} | NO_TOKENS
    if kind == "qwen2_vl":
        half = text["hidden_size"] // text["num_attention_heads"] // 2
        text = text | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}}
        eyes = {"depth": 1, "embed_dim": 8, "num_heads": 1, "mlp_ratio": 1, "hidden_size": text["hidden_size"], "patch_size": 4}
        return {"text_config": text, "vision_config": eyes, "tie_word_embeddings": text["tie_word_embeddings"]}
    eyes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 8, "patch_size": 4}
    return {"text_config": text, "vision_config": eyes, "mm_tokens_per_image": 4, "image_token_index": 255,
            "tie_word_embeddings": text["tie_word_embeddings"]} | NO_TOKENS


def change_config(new):
    def change(folder, tensors):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config = new(config)
        path.write_text(json.dumps(config))
        return tensors
    return change


def text_part(config, new):
    return config | {"text_config": new(config["text_config"])} if "text_config" in config else new(config)


def odd_value(source, paths):
    path, value = source.choice(paths), source.choice(ODD)

    def new(config):
        if any(not isinstance(part, dict) for part in inside_of(config, path)) or path[-1] not in inside_of(config, path)[-1]:
            return config
        if value is not ABSENT:
            return mutations.changed(config, path, value)
        config = mutations.changed(config, path, None)
        del inside_of(config, path)[-1][path[-1]]
        return config
    what = "left out" if value is ABSENT else json.dumps(value)
    return f"{'.'.join(path)} = {what}", change_config(lambda config: text_part(config, new))


def inside_of(config, path):
    """The objects on the way to a key."""
    found = [config]
    for key in path[:-1]:
        found.append(found[-1].get(key) if isinstance(found[-1], dict) else None)
    return found


def change_pair(source):
    more = source.choice(PAIRS)
    return f"with {json.dumps(more)}", change_config(lambda config: text_part(config, lambda part: part | more))


def change_tensor(source):
    pick = source.random()
    what, new = source.choice((("transposed", lambda v: v.T.contiguous()), ("with a row more", lambda v: bad_tensors.rows(v, len(v) + 1)),
                               ("twice as long", lambda v: bad_tensors.rows(v, 2 * len(v))), ("flat", lambda v: v.flatten()),
                               ("a row shorter", lambda v: v[:-1].contiguous()), ("in float64", lambda v: v.double()),
                               ("as whole numbers", lambda v: v.int()), ("left out", None)))

    def change(folder, tensors):
        names = sorted(name for name in tensors if tensors[name].dim() > 0 and not any(part in name for part in ("vision", "projector", "visual")))
        name = names[int(pick * len(names))]
        kept = {n: v for n, v in tensors.items() if n != name}
        return kept if new is None else kept | {name: new(tensors[name])}
    return f"a tensor {what}", change


def add_tensor(source):
    what = source.choice(("the same head again", "another head", "a head of another size", "an unknown tensor", "old buffers"))

    def change(folder, tensors):
        name = next(n for n in tensors if n.endswith(("embed_tokens.weight", "wte.weight", "embed_in.weight")))
        table = tensors[name]
        if what == "an unknown tensor":
            return tensors | {"model.layers.0.self_attn.gate.weight": table.clone()}
        if what == "old buffers":
            return tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": table[0].clone()}
        head = table.clone() if what == "the same head again" else table.flip(0).contiguous()
        head = bad_tensors.rows(head, len(head) + 1) if what == "a head of another size" else head
        return {"lm_head.weight": head} | tensors if what == "the same head again" else tensors | {"lm_head.weight": head}
    return what, change


def lose_shard(folder, tensors):
    shards = sorted(folder.glob("model-*.safetensors"))
    if shards:
        os.unlink(shards[-1])
    return None


def cut_file(folder, tensors):
    path = sorted(folder.glob("model*.safetensors"))[-1]
    path.write_bytes(path.read_bytes()[:-5])
    return None


def bare_names(folder, tensors):
    return {name.removeprefix("transformer."): value for name, value in tensors.items()}


def draw_change(source, kind, config):
    paths = [path for path, _ in mutations.leaves(config) if path[0] not in LIMITS and all(isinstance(key, str) for key in path)]
    kinds = [lambda: odd_value(source, paths)] * 4 + [lambda: change_pair(source)] * 4 + [lambda: change_tensor(source)] * 3
    kinds += [lambda: add_tensor(source), lambda: ("a shard lost", lose_shard), lambda: ("a file cut short", cut_file)]
    kinds += [lambda: ("bare names", bare_names)] if kind == "gpt2" else []
    if kind not in ("gpt2", "gpt_neox", *SEEING):
        kinds += [lambda: ("in older words", change_config(mutations.in_older_words))] * 2
    return source.choice(kinds)()


def draw(source):
    """Of any family; more than half of them changed."""
    kind = source.choice(FAMILIES)
    config = draw_config(source, kind)
    changes = [draw_change(source, kind, config) for _ in range(source.choice((0, 0, 1, 1, 1, 2)))]
    return saved_somehow(source, kind, config, changes)


def draw_right(source, kind):
    """As transformers wrote it."""
    return saved_somehow(source, kind, draw_config(source, kind), [])


def draw_config(source, kind):
    own = {"gpt2": gpt2, "gpt_neox": gpt_neox}
    return own[kind](source) if kind in own else llama_like(source, SEEING.get(kind, kind))


def saved_somehow(source, kind, config, changes):
    return Case(kind, seeing(kind, config) if kind in SEEING else config, source.choice(("float32", "float32", "bfloat16", "float16")),
                source.choice((5 << 30, 5 << 30, 20000)), changes)
