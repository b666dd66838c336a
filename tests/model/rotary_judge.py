"""Rotary frequencies, cosines and sines equal those of Hugging Face transformers, for every kind of scaling.

rotary_judge.py PRINT_ROTARY
Exits with 77 (skipped) where transformers or torch is not installed.
"""

import subprocess
import sys

try:
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOLERANCE = 2e-7  # of cosine and sine: the two float32 cosines may round apart; a frequency one bit off gives 1e-2
POSITIONS = [0, 1, 77, 8191, 8193, 32769, 131071]
CASES = [  # theta, head_dim, rope_type, factor, original_max_position_embeddings, other keys
    (10000.0, 64, "default", 1, 8192, {}),
    (1000000.0, 256, "default", 1, 8192, {}),
    (1000000.0, 256, "linear", 8, 8192, {}),
    (500000.0, 128, "llama3", 8, 8192, {"low_freq_factor": 1, "high_freq_factor": 4}),
    (500000.0, 64, "llama3", 32, 8192, {"low_freq_factor": 1, "high_freq_factor": 4}),
    (1000000.0, 128, "yarn", 4, 32768, {}),
    (10000.0, 64, "yarn", 16, 4096, {"beta_fast": 20, "beta_slow": 2}),
    (10000.0, 64, "yarn", 40, 4096, {"mscale": 0.707, "mscale_all_dim": 1.0}),
    (10000.0, 64, "dynamic", 4, 131072, {}),
    (10000.0, 64, "dynamic", 4, 32768, {}),
    (500000.0, 96, "dynamic", 2.5, 8192, {}),
    (10000.0, 96, "longrope", 32, 4096, {"short_step": 0.03, "long_step": 1.3}),
    (10000.0, 96, "longrope", 1, 262144, {"short_step": 0.03, "long_step": 1.3}),
    (10000.0, 64, "longrope", 16, 8192, {"short_step": 0.0, "long_step": 0.7, "attention_factor": 1.2}),
    (150000.0, 64, "yarn", 32, 4096, {"truncate": False, "attention_factor": 1.1}),
]


def row(line):
    return torch.tensor([float(x) for x in line.split()], dtype=torch.float32)


for theta, head_dim, kind, factor, original, others in CASES:
    steps = {name: [1 + others[f"{name}_step"] * i for i in range(head_dim // 2)] for name in ("short", "long") if f"{name}_step" in others}
    parameters = {"rope_type": kind, "rope_theta": theta, **{k: v for k, v in others.items() if not k.endswith("_step")},
                  **{f"{name}_factor": values for name, values in steps.items()}}
    if kind != "default":
        parameters["factor"] = factor
    if kind in ("llama3", "yarn", "longrope"):
        parameters["original_max_position_embeddings"] = original
    config = LlamaConfig(hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim,
                         max_position_embeddings=original if kind == "dynamic" else 131072, rope_parameters=parameters)
    rotary = LlamaRotaryEmbedding(config)
    cosine, sine = rotary(torch.zeros(1), torch.tensor([POSITIONS]))
    words = [theta, head_dim, kind, factor, original, *(f"{k}={float(v)}" for k, v in others.items()),
             f"sequence={max(POSITIONS) + 1}", *POSITIONS]
    printed = subprocess.run([sys.argv[1], *map(str, words)], check=True, capture_output=True, text=True).stdout.splitlines()
    half = head_dim // 2
    apart = (row(printed[0]) - rotary.inv_freq).abs().max().item()
    assert apart == 0, f"{words}: inverse frequencies differ by {apart}"
    worst = 0.0
    for i in range(len(POSITIONS)):
        for theirs, ours in ((cosine, printed[1 + 2 * i]), (sine, printed[2 + 2 * i])):
            worst = max(worst, (theirs[0, i, :half] - row(ours)).abs().max().item())
    assert worst <= TOLERANCE * rotary.attention_scaling, f"{words}: cosine and sine differ by {worst}"
    print(f"ok: {kind} x {factor}, theta {theta:g}, head_dim {head_dim}: same frequencies, cosine and sine within {worst:.1e}")
