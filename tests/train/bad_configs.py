"""What a config.json may not say: changes of a good one, and the word that the refusal must hold."""

import json

import mutations

ABSENT = object()

# (tiny model, {path of a field: what it becomes}, a word of the message)
CASES = [
    ("llama 2", {"alibi": True}, "alibi"),
    ("llama 2", {"model_type": "mixtral"}, "mixtral"),
    ("llama 2", {"model_type": "gemma"}, "hidden_act"),
    ("llama 2", {"model_type": "gpt_bigcode"}, "gpt_bigcode"),
    ("llama 2", {"is_encoder_decoder": True}, "is_encoder_decoder"),
    ("llama 2", {"pruned_heads": {"0": [1]}}, "pruned_heads"),
    ("llama 2", {"model_type": ABSENT}, "model_type"),
    ("llama 2", {"num_local_experts": 8}, "num_local_experts"),
    ("llama 2", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config"),
    ("llama 2", {"sliding_window": 16}, "sliding_window"),
    ("llama 2", {"hidden_act": "relu"}, "hidden_act"),
    ("llama 2", {"attention_bias": True}, "_proj.bias"),
    ("llama 2", {"mlp_bias": True}, "_proj.bias"),
    ("llama 2", {"rope_parameters.rope_type": "dynamic"}, "dynamic"),
    ("llama 2", {"rope_parameters.rope_type": "longrope"}, "longrope"),
    ("llama 2", {"rope_parameters.rope_type": "linear"}, "factor"),
    ("llama 2", {"rope_parameters.partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("llama 2", {"rope_parameters.novel": 3}, "novel"),
    ("llama 2", {"rope_parameters.rope_theta": -1.0}, "rope_theta"),
    ("llama 2", {"hidden_size": "wide"}, "config.json"),
    ("llama 2", {"hidden_size": -48}, "hidden_size"),
    ("llama 2", {"num_attention_heads": 0}, "num_attention_heads"),
    ("llama 2", {"num_key_value_heads": 3}, "num_key_value_heads"),
    ("llama 2", {"rms_norm_eps": -1.0}, "rms_norm_eps"),
    ("llama 2", {"head_dim": 15}, "head_dim"),
    ("llama 2", {"vocab_size": 300}, "model.embed_tokens.weight"),
    ("llama 2", {"num_hidden_layers": 5}, "model.layers.4."),
    ("llama 2", {"num_hidden_layers": 3}, "model.layers.3."),
    ("llama 3", {"rope_parameters.factor": -8.0}, "factor"),
    ("llama yarn", {"rope_parameters.factor": ABSENT}, "factor"),
    ("llama 3", {"rope_parameters.high_freq_factor": ABSENT}, "high_freq_factor"),
    ("qwen2", {"layer_types": ["full_attention", "chunked_attention", "full_attention", "full_attention"]}, "chunked_attention"),
    ("qwen2", {"layer_types": ["full_attention"]}, "layer_types"),
    ("qwen2", {"sliding_window": -3}, "sliding_window"),
    ("qwen2", {"model_type": "llama", "layer_types": ABSENT, "use_sliding_window": ABSENT, "max_window_layers": ABSENT,
               "sliding_window": ABSENT}, "_proj.bias"),
    ("mistral", {"layer_types": ["full_attention"] * 4}, "layer_types"),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("gemma3", {"hidden_activation": "silu"}, "hidden_activation"),
    ("gemma3", {"rope_parameters.full_attention.rope_type": "novel"}, "novel"),
    # Null, nothing and other kinds of values, where transformers refuses them or computes something else.
    ("llama 2", {"rms_norm_eps": None}, "rms_norm_eps"),
    ("llama 2", {"attention_bias": None}, "attention_bias"),
    ("llama 2", {"hidden_act": None}, "hidden_act"),
    ("llama 2", {"tie_word_embeddings": None}, "tie_word_embeddings"),
    ("llama 2", {"hidden_size": 48.7}, "hidden_size"),
    ("llama 2", {"intermediate_size": True}, "intermediate_size"),
    ("llama 2", {"rope_theta": None}, "rope_theta"),
    ("llama 3", {"rope_parameters.type": "linear"}, "rope_type is llama3"),
    ("llama yarn", {"rope_parameters.truncate": None}, "truncate"),
    ("mistral", {"sliding_window": 0}, "sliding_window"),
    ("mistral", {"num_key_value_heads": None}, "num_key_value_heads"),
    ("qwen2", {"layer_types": []}, "layer_types"),
    ("qwen2", {"head_dim": None}, "head_dim"),
    ("gemma2", {"sliding_window": None}, "sliding_window"),
    ("gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping"),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
    ("gemma3", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "full_attention"),
    ("gemma3", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "name it rope_type"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    ("gpt2", {"activation_function": "silu"}, "activation_function"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    ("smollm3", {"no_rope_layers": [1, 0, 2, 1]}, "no_rope_layers"),
    ("granite", {"residual_multiplier": None}, "residual_multiplier"),
    ("phi3", {"rope_parameters.rope_type": "linear"}, "linear"),
    ("phi3", {"rope_parameters.partial_rotary_factor": 0.1}, "partial_rotary_factor"),
    ("phi3 longrope", {"rope_parameters.long_factor": [1.0]}, "long_factor"),
    ("phi3 longrope", {"rope_parameters.short_factor": ABSENT}, "short_factor"),
    ("pythia", {"hidden_act": "quick_gelu"}, "hidden_act"),
    ("olmo2", {"hidden_act": "gelu"}, "hidden_act"),
    ("gpt2", {"n_head": 5}, "num_attention_heads 5"),
]


def changed(text, change):
    config = json.loads(text)
    for path, value in change.items():
        keys = path.split(".")
        if value is ABSENT:
            inside = config
            for key in keys[:-1]:
                inside = inside[key]
            del inside[keys[-1]]
        else:
            config = mutations.changed(config, keys, value)
    return config
