"""LitGPT's own model computes the same logits with what we convert, both ways, for every family.

litgpt_judge.py TORCH_JUDGE_HELPER
Runs in the environment of scripts/setup --bench; exits with 77 (skipped) where LitGPT is not installed.
"""

import pathlib
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
try:
    import litgpt
    import torch
    import transformers
    import yaml
    from dataclasses import asdict
    from litgpt.model import GPT
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --bench installs it")
    sys.exit(77)

SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
GEMMA = dict(head_dim=8, query_pre_attn_scalar=16, sliding_window=8)
FAMILIES = {
    "llama": (transformers.LlamaConfig, dict(tie_word_embeddings=False)),
    "llama tied, llama3 scaling": (transformers.LlamaConfig, dict(tie_word_embeddings=True, rope_parameters=LLAMA3)),
    "mistral": (transformers.MistralConfig, dict(sliding_window=8, tie_word_embeddings=False)),
    "qwen2": (transformers.Qwen2Config, dict(tie_word_embeddings=True)),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=8, tie_word_embeddings=False)),
    "gemma2": (transformers.Gemma2Config, dict(GEMMA, final_logit_softcapping=5.0, attn_logit_softcapping=7.0)),
    "gemma3": (transformers.Gemma3TextConfig, dict(GEMMA, layer_types=["sliding_attention", "full_attention"])),
}


def redraw(model):
    torch.manual_seed(5)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn_like(parameter) * (1.5 / parameter.shape[-1] ** 0.5 if parameter.ndim > 1 else 0.3)
                            + (1.0 if parameter.ndim == 1 else 0.0))


def judge(helper, folder, name, config_class, fields):
    config = config_class(**{**SIZES, **fields})
    config._attn_implementation = "eager"
    theirs = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    redraw(theirs)
    source, lit, back = folder / "hugging-face", folder / "lit", folder / "back"
    config.save_pretrained(source)
    torch.save({k: v for k, v in theirs.state_dict().items() if k != "lm_head.weight" or not config.tie_word_embeddings},
               source / "pytorch_model.bin")
    subprocess.run([helper, "convert", source, lit, "litgpt"], check=True)
    lit_config = litgpt.Config.from_file(lit / "model_config.yaml")
    model = GPT(lit_config).eval()
    model.load_state_dict(torch.load(lit / "lit_model.pth", weights_only=True), strict=True)
    tokens = torch.randint(0, 96, (2, 40))
    with torch.no_grad():
        expected, got = theirs(tokens).logits, model(tokens)
    worst = ((expected - got).abs().max() / expected.std()).item()
    assert worst < 1e-4, (name, worst)

    # LitGPT's own files, as its save_config and torch.save write them.
    (lit / "model_config.yaml").write_text(yaml.dump(asdict(lit_config)))
    (lit / "lit_model.pth").unlink()
    torch.save({"model": model.state_dict(), "step_count": 3}, lit / "lit_model.pth")
    subprocess.run([helper, "convert", lit, back, "pth"], check=True)
    read = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(back),
                                                         attn_implementation="eager").eval()
    missing = read.load_state_dict(torch.load(back / "pytorch_model.bin", weights_only=True), strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
    with torch.no_grad():
        again = read(tokens).logits
    assert torch.equal(again, expected), (name, (again - expected).abs().max())
    return worst


def main():
    worst = 0
    for name, (config_class, fields) in FAMILIES.items():
        with tempfile.TemporaryDirectory() as folder:
            worst = max(worst, judge(sys.argv[1], pathlib.Path(folder), name, config_class, fields))
    print(f"LitGPT computes transformers' logits for {len(FAMILIES)} models, at most {worst:.1e} of their deviation away")


main()
