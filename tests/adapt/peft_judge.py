"""PEFT judges the merging of its own adapters, with random options.

peft_judge.py TRIREME [CASES]
PEFT wraps tiny models of transformers with random configurations and saves its folders. `trireme merge_lora` either gives a
model with the logits of PEFT's own, unmerged, and the weights of its merge_and_unload, or refuses the folder and names the
key. Exits with 77 (skipped) where the packages are not installed.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import ring
import tiny_models

torch, transformers, peft, safetensors_torch = ring.judges("torch", "transformers", "peft", "safetensors.torch")
warnings.simplefilter("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

BASES = ["llama 2", "smollm2", "qwen2", "qwen2.5", "qwen3", "gemma2", "gemma3", "gpt2", "gpt2 untied", "mistral"]
MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
GPT2_MATRICES = ["attn.c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"]
TROUBLE = [{"bias": "all"}, {"bias": "lora_only"}, {"init_lora_weights": "pissa"}, {"init_lora_weights": "olora"},
           {"trainable_token_indices": [1, 5]}, {"layer_replication": [[0, 2], [1, 3]]}, {"use_qalora": True, "qalora_group_size": 8},
           {"init_lora_weights": "mica"}, {"target_parameters": ["mlp.down_proj.weight"]}]


def options(source, name):
    """A random LoraConfig, as keywords, and the key that is to be refused."""
    gpt2 = name.startswith("gpt2")
    matrices = GPT2_MATRICES if gpt2 else MATRICES
    embedding, norm, block = ("wte", "ln_f", "h") if gpt2 else ("embed_tokens", "model.norm", "layers")
    chosen = source.sample(matrices, source.randrange(1, 4))
    some = source.random
    picked = {"r": source.randrange(1, 9), "lora_alpha": source.choice([1, 8, 16, 5]), "use_rslora": some() < 0.3,
              "lora_dropout": source.choice([0.0, 0.1]), "use_dora": some() < 0.35, "task_type": "CAUSAL_LM",
              "init_lora_weights": source.choice([True, True, "gaussian", False])}
    kind = source.choice(["list", "list", "list", "expression", "all", "default", "names"])
    if kind == "list":
        picked["target_modules"] = chosen + ([embedding] if some() < 0.3 else []) + (["lm_head"] if some() < 0.3 else [])
        if some() < 0.4:
            picked["layers_to_transform"] = source.choice([1, [0, 2]])
            if some() < 0.5:
                picked["layers_pattern"] = source.choice([block, [block]])
    elif kind == "expression":
        ends = "|".join(end.replace(".", r"\.") for end in chosen)
        picked["target_modules"] = rf".*{block}\.[0-2]\..*({ends})" + (r"|lm_head" if some() < 0.3 else "")
    elif kind == "all":
        picked["target_modules"] = "all-linear"
    elif kind == "names":
        prefix = "transformer.h" if gpt2 else "model.layers"
        inner = chosen[0] if gpt2 else ("mlp." if chosen[0] in MATRICES[4:] else "self_attn.") + chosen[0]
        if inner == "c_fc":
            inner = "mlp.c_fc"
        picked["target_modules"] = [f"{prefix}.{i}.{inner}" for i in (0, 2)]
    if some() < 0.25:
        picked["exclude_modules"] = source.choice([[source.choice(matrices)], r".*\.1\..*"])
    if some() < 0.4:
        picked["rank_pattern"] = {source.choice(matrices): 3, rf"{block}\.[12]\..*": 2}
    if some() < 0.4:
        picked["alpha_pattern"] = {source.choice(matrices): 7, f"^{'transformer' if gpt2 else 'model'}.{block}.0.*": 3}
    for key in {"rank_pattern", "alpha_pattern"} & picked.keys():  # PEFT sorts them when it saves, and the first that fits counts
        picked[key] = dict(sorted(picked[key].items()))
    if some() < 0.4:
        picked["modules_to_save"] = source.sample([norm, "lm_head", embedding, f"{block}.1.mlp"], source.randrange(1, 3))
    if some() < 0.15:
        picked["lora_bias"], picked["use_dora"] = True, False
        picked["init_lora_weights"] = True
    if some() < 0.2:
        trouble = source.choice(TROUBLE)
        return picked | trouble, next(iter(trouble))
    return picked, None


def randomise(model, seed):
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "lora_magnitude_vector" in parameter_name:
                parameter.mul_(0.5 + torch.rand(parameter.shape, generator=source, dtype=parameter.dtype))
            elif "lora_" in parameter_name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=source, dtype=parameter.dtype))
            elif "modules_to_save" in parameter_name:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=source, dtype=parameter.dtype))


def logits(model):
    """In float64, so that only the rounding of merged weights differs."""
    ids = torch.arange(2 * 24).reshape(2, 24) * 5 % 251
    with torch.no_grad():
        return model.double().eval()(input_ids=ids).logits


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="eager")


def load_peft(base, folder):
    return peft.PeftModel.from_pretrained(load(base), folder, autocast_adapter_dtype=False)


def peft_folder(base, picked, seed, folder):
    """A folder of PEFT, and the model that PEFT loads from it (the order of patterns is that of the file). Nothing if PEFT itself
    refuses the options."""
    try:
        model = peft.get_peft_model(load(base), peft.LoraConfig(**picked), autocast_adapter_dtype=False)
    except (ValueError, RuntimeError, NotImplementedError, KeyError, AttributeError, TypeError):
        return None
    randomise(model, seed)
    model.save_pretrained(folder)
    return load_peft(base, folder)


def judge(trireme, base, name, picked, refused, seed, scratch):
    """What came of one case: "equal", or "refused: KEY", or "not made"."""
    folder, out = scratch / "adapter", scratch / "merged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    model = peft_folder(base, picked, seed, folder)
    if model is None:
        return "not made"
    run = subprocess.run([trireme, "merge_lora", str(folder), "--out", str(out)], capture_output=True, text=True)
    what = (name, picked, run.stderr)
    if run.returncode == 2:
        sentence = run.stderr.strip()
        assert sentence.count("\n") == 0, what
        keys = ([refused] if refused else []) + ["lora_bias", "modules_to_save", "target_modules"]
        key = next((key for key in keys if key in sentence), None)
        assert key, what
        # Only what cannot be expressed may be refused.
        if not refused:
            assert key == "lora_bias" and picked.get("lora_bias"), what
        return f"refused: {key}"
    assert run.returncode == 0 and refused is None, what
    merged = load(out)
    limit = 1e-12 if merged.dtype == torch.float64 else 1e-6
    want = logits(model)
    unties = json.loads((base / "config.json").read_text()).get("tie_word_embeddings", name == "gpt2")
    unties = unties and not json.loads((out / "config.json").read_text()).get("tie_word_embeddings", True)
    ours = {tensor: value.clone() for tensor, value in merged.state_dict().items()}
    if not unties:  # PEFT merges an adapter of a tied matrix into both
        whole = load_peft(base, folder).merge_and_unload()
        for tensor, value in whole.state_dict().items():
            assert relative(ours[tensor], value) < limit, (tensor, *what)
        want = logits(whole)  # merged by both: what float32 rounds off the merged weights is in both
    distance = relative(logits(merged), want)
    assert distance < 1e-5, (distance, *what)
    return "equal, untied" if unties else "equal"


def main():
    trireme, cases = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40
    counts = {}
    with tempfile.TemporaryDirectory() as root:
        scratch = pathlib.Path(root)
        for name in BASES:
            wide = torch.float64 if BASES.index(name) % 2 else torch.float32
            tiny_models.make(name, scratch / name.replace(" ", "-"), dtype=wide)
        case = seed = 0
        while case < cases:
            seed += 1
            source = random.Random(seed)
            name = BASES[seed % len(BASES)]
            picked, refused = options(source, name)
            outcome = judge(trireme, scratch / name.replace(" ", "-"), name, picked, refused, seed, scratch)
            counts[outcome] = counts.get(outcome, 0) + 1
            case += outcome != "not made"
    print(f"{cases} folders of PEFT {peft.__version__}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    assert counts.get("equal", 0) > cases // 3 and counts.get("equal, untied", 0) > 1, counts


if __name__ == "__main__":
    main()
