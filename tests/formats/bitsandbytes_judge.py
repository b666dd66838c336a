"""Folders in 4 bits go both ways: transformers with bitsandbytes opens ours, and we open what it saves, with the same codes and logits.

bitsandbytes_judge.py TRIREME MODEL_PROBE
Exits with 77 (skipped) where the packages are not installed.
"""

import json
import os
import pathlib
import shutil
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import probe
import ring

torch, transformers, bitsandbytes, safetensors = ring.judges("torch", "transformers", "bitsandbytes", "safetensors.torch")

# Of the logits' standard deviation. Both compute in float32, in other orders; with a bfloat16 file transformers computes in bfloat16.
TOLERANCE, ROUNDED = 2e-5, 0.2
# Rows of whole blocks: for others, bitsandbytes' kernel for processors reads scales of other blocks.
SHAPE = {"vocab_size": 263, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 64, "tie_word_embeddings": False}
FAMILIES = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "phi3": transformers.Phi3Config}


def make(family, folder, dtype):
    torch.manual_seed(len(family))
    more = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} if family == "phi3" else {}
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[family](**SHAPE, **more))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.1)
    model.to(dtype).save_pretrained(folder)
    return folder


def their_config(code, nested, dtype):
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=code, bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype=dtype)


def load(folder, **more):
    """In training mode, which computes in float32: bitsandbytes' kernel for writing texts on processors multiplies bfloat16."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", attn_implementation="eager", **more).train()


def tensors(folder):
    return safetensors.load_file(folder / "model.safetensors")


def meaning(name, tensor):
    return json.loads(bytes(tensor.tolist())) if ".quant_state." in name else tensor


def same(ours, theirs):
    """Empty, or the first difference of two folders' tensors."""
    if ours.keys() != theirs.keys():
        return f"names {sorted(ours.keys() ^ theirs.keys())[:4]}"
    for name, tensor in theirs.items():
        mine, yours = meaning(name, ours[name]), meaning(name, tensor)
        equal = mine == yours if isinstance(mine, dict) else mine.dtype == yours.dtype and torch.equal(mine, yours)
        if not equal:
            return f"{name}: {mine} is not {yours}"
    return ""


def refused(r, folder, what, *words):
    result = r.run([r.program, "evaluate", str(folder), "--text", str(r.text)])
    ring.check(result.code == 2 and all(word in result.err for word in words) and len(result.err.strip().splitlines()) <= 2,
               f"refused: {what}\n        {result.err.strip()}", str(result))


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    ask = probe.Probe(sys.argv[2], r.folder).ask
    tokens = torch.randint(263, (1, 40), generator=torch.Generator().manual_seed(3))
    cases = [("llama", "nf4", True, torch.bfloat16), ("llama", "fp4", False, torch.float32), ("qwen2", "nf4", False, torch.float32), ("phi3", "nf4", True, torch.float32)]
    for family, code, nested, dtype in cases:
        name = f"bnb.{code}{'-dq' if nested else ''}"
        what = f"{family} {name} {str(dtype)[6:]}"
        base = r.folder / f"{family}-{code}-{nested}"
        make(family, base, dtype)
        theirs = load(base, dtype=dtype, quantization_config=their_config(code, nested, dtype))
        saved = pathlib.Path(f"{base}-theirs")
        theirs.save_pretrained(saved)
        ours = pathlib.Path(f"{base}-ours")
        done = r.run([r.program, "convert", str(base), str(ours), "--dtype", name])
        ring.require(done.code == 0, f"{what}: convert", str(done))
        difference = same(tensors(ours), tensors(saved))
        ring.check(not difference, f"{what}: the tensors of our folder are transformers'", difference)
        opened = load(ours, dtype=dtype)
        with torch.no_grad():
            want = load(saved, dtype=dtype)(tokens).logits
            ring.check(torch.equal(opened(tokens).logits, want), f"{what}: transformers opens our folder, and its logits are those of its own")
        want = want.float()
        most = ROUNDED if dtype == torch.bfloat16 else TOLERANCE
        for folder in (saved, ours):
            answer = ask([probe.job("x", folder, tokens, generated=True)])["x"]
            ring.require("error" not in answer, f"{what}: {folder.name} opens", answer.get("error"))
            worst = ((answer["generated"] - want).abs().max() / want.std()).item()
            ring.check(worst <= most, f"{what}: our logits of {folder.name[len(base.name) + 1:]} within {worst:.1e} standard deviations (at most {most:.0e})")
        wide = pathlib.Path(f"{base}-wide")
        done = r.run([r.program, "convert", str(saved), str(wide)])
        ring.require(done.code == 0 and "quantization_config" not in (wide / "config.json").read_text(), f"{what}: back to all bits", str(done))
        answer = ask([probe.job("x", wide, tokens, generated=True)])["x"]
        worst = ((answer["generated"] - want).abs().max() / want.std()).item()
        ring.check(worst <= most, f"{what}: converted back to {str(dtype)[6:]}, logits within {worst:.1e}")
    evaluated = lambda *words: r.run([r.program, "evaluate", *map(str, words), "--text", str(r.text), "--limit", "2"])
    mine, of_folder = evaluated(base, "--quantize", name), evaluated(saved)
    ring.check(mine.code == 0 and mine.out.splitlines()[-3:] == of_folder.out.splitlines()[-3:], "a folder in 4 bits is evaluated like its model with --quantize",
               f"{mine}\n{of_folder}")
    tune = lambda folder, out, *words: r.run([r.program, "finetune_lora", str(folder), "--data", "TextFiles", "--data.train_data_path", str(r.text), "--data.packing",
                                              "wrapped", "--train.max_seq_length", "32", "--train.max_steps", "3", "--devices", "2", "--out_dir", str(r.folder / out),
                                              "--precision", "32-true", "--train.global_batch_size", "4", *words])
    for result in (tune(base, "a", "--quantize", name), tune(saved, "b")):
        ring.require(result.code == 0, "adapters learn", str(result))
    losses = [[row["loss"] for row in ring.metrics(r.folder / out).values() if "loss" in row] for out in ("a", "b")]
    ring.check(losses[0] == losses[1], "adapters on a folder in 4 bits learn with the bits of its model with --quantize", str(losses))
    adapted = evaluated(r.folder / "b")
    quantized = evaluated(r.folder / "a", "--quantize", name)
    ring.check(adapted.code == 0 and adapted.out.splitlines()[-3:] == quantized.out.splitlines()[-3:], "an adapter is merged into what the codes stand for, from both",
               f"{adapted}\n{quantized}")
    other = r.run([r.program, "evaluate", str(saved), "--text", str(r.text), "--quantize", "bnb.fp4"])
    ring.check(other.code == 2 and "leave quantize out" in other.err, f"refused: another format than the folder's\n        {other.err.strip()}", str(other))
    for method, about in {"gptq": {"quant_method": "gptq", "bits": 4}, "awq": {"quant_method": "awq", "bits": 4}, "8 bits": {"quant_method": "bitsandbytes", "load_in_8bit": True}}.items():
        folder = r.folder / method
        shutil.copytree(base, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": about}))
        refused(r, folder, f"weights quantised by {method}", "quantization_config", method)
    weights = tensors(saved)
    del weights["model.layers.0.mlp.down_proj.weight.absmax"]
    safetensors.save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    broken = r.run([r.program, "evaluate", str(saved), "--text", str(r.text)])
    ring.check(broken.code != 0 and "absmax" in broken.err, f"refused: missing statistics\n        {broken.err.strip()}", str(broken))
