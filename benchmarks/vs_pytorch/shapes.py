"""The models that both sides train: one table, from which the peer builds its modules and Trireme its settings."""

SHAPES = {
    "llama-32m": dict(vocabulary=8192, width=512, blocks=8, heads=8, kv_heads=4, mlp=1408),
    "llama-110m": dict(vocabulary=16384, width=768, blocks=12, heads=12, kv_heads=4, mlp=2048),
    "tiny-llama-1.1b": dict(vocabulary=32000, width=2048, blocks=22, heads=32, kv_heads=4, mlp=5632),
    "tiny": dict(vocabulary=256, width=64, blocks=2, heads=2, kv_heads=1, mlp=128),
}

# What both sides train with; only the shape, the precision and the strategy differ between runs.
LEARNING_RATE, BETA1, BETA2, WEIGHT_DECAY, MAX_NORM = 3e-4, 0.9, 0.95, 0.1, 1.0


def trireme_settings(model):
    """Settings that give Trireme exactly this shape, whatever its catalogue holds under the name."""
    shape = SHAPES[model]
    return [model if model != "tiny" else "llama-5m",
            "--model.vocab_size", str(shape["vocabulary"]), "--model.hidden_size", str(shape["width"]),
            "--model.num_hidden_layers", str(shape["blocks"]), "--model.num_attention_heads", str(shape["heads"]),
            "--model.num_key_value_heads", str(shape["kv_heads"]), "--model.intermediate_size", str(shape["mlp"]),
            "--model.head_dim", str(shape["width"] // shape["heads"]),
            "--optimizer.lr", str(LEARNING_RATE), "--optimizer.betas", f"[{BETA1}, {BETA2}]",
            "--optimizer.weight_decay", str(WEIGHT_DECAY), "--train.max_norm", str(MAX_NORM)]
