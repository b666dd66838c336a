"""8-bit floats with scales become what transformers and PyTorch compute from them, in bfloat16 and other dtypes.

fp8_judge.py TRIREME
Exits with 77 (skipped) where the packages are not installed.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    import transformers
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --judges installs it")
    sys.exit(77)

transformers.logging.set_verbosity_error()


def run(trireme, *arguments):
    return subprocess.run([trireme, *map(str, arguments)], capture_output=True, text=True)


def in_blocks(matrix, rows, columns):
    """8-bit floats and a scale for each block of rows x columns, the last ones smaller."""
    scales = torch.empty(-(-matrix.shape[0] // rows), -(-matrix.shape[1] // columns))
    stored = torch.empty_like(matrix, dtype=torch.float8_e4m3fn)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            scales[i, j] = matrix[at].abs().max() / 448
            stored[at] = (matrix[at] / scales[i, j]).to(torch.float8_e4m3fn)
    return stored, scales


def spread(scales, shape, rows, columns):
    return scales.repeat_interleave(rows, 0)[:shape[0]].repeat_interleave(columns, 1)[:, :shape[1]]


def make_folder(folder, kind, block=(128, 128)):
    """A model whose matrices in blocks are stored as 8-bit floats; returns the values that they stand for, in float32."""
    torch.manual_seed(len(kind))
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=256, intermediate_size=300, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=64)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tensors, values = safetensors.torch.load_file(folder / "model.safetensors"), {}
    for name, tensor in list(tensors.items()):
        values[name] = tensor.float()
        if "proj" not in name:
            continue
        if kind == "blocks":
            stored, scales = in_blocks(tensor.float(), *block)
            tensors[name + "_scale_inv"] = scales
            values[name] = stored.float() * spread(scales, tensor.shape, *block)
            if tensor.shape[0] % block[0] == 0 and tensor.shape[1] % block[1] == 0:
                theirs = Fp8Dequantize(None)._dequantize_one(stored, scales, torch.float32)
                assert torch.equal(theirs, values[name]), name
        else:
            dtype = torch.float8_e5m2 if kind == "e5m2" else torch.float8_e4m3fn
            scales = tensor.float().abs().amax(dim=None if kind != "rows" else 1, keepdim=kind == "rows") / 448
            if kind == "rows":
                scales = scales.to(torch.bfloat16)
            stored = (tensor.float() / scales.float()).to(dtype)
            tensors[name + "_scale"] = scales
            tensors[name.removesuffix("weight") + "input_scale"] = torch.tensor(0.25)
            values[name] = stored.float() * scales.float()
        tensors[name] = stored
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    about = json.loads((folder / "config.json").read_text())
    about["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": list(block)}
    (folder / "config.json").write_text(json.dumps(about))
    return values


def judge(trireme, folder, kind, block=(128, 128)):
    values = make_folder(folder / "source", kind, block)
    for option, dtype in ((None, torch.bfloat16), ("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        out = folder / f"out-{option}"
        done = run(trireme, "convert", folder / "source", out, *(["--dtype", option] if option else []))
        assert done.returncode == 0 and "14 tensors of 8-bit floats are read with the scales" in done.stdout + done.stderr, done
        ours = safetensors.torch.load_file(out / "model.safetensors")
        assert ours.keys() == values.keys(), ours.keys() ^ values.keys()
        for name, value in values.items():
            expected = value.to(dtype if "proj" in name or option else torch.bfloat16)
            assert ours[name].dtype == expected.dtype and torch.equal(ours[name], expected), (kind, option, name)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder / "out-float32", dtype=torch.float32)
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, values[name]), name
    print(f"{kind} {block}: 14 matrices as PyTorch computes them")


def judge_refusals(trireme, folder):
    make_folder(folder / "source", "blocks")
    for command in (("pretrain", folder / "source", "--train.max_steps", 1), ("generate", folder / "source", "--prompt", "a")):
        done = run(trireme, *command)
        assert done.returncode == 2 and "quantization_config" in done.stderr and "trireme convert" in done.stderr, done
    file = folder / "source/model.safetensors"
    tensors = safetensors.torch.load_file(file)
    name = "model.layers.1.mlp.up_proj.weight_scale_inv"
    for wrong in (tensors[name][:1], tensors[name].to(torch.int32), tensors[name].flatten()):
        safetensors.torch.save_file(tensors | {name: wrong.contiguous()}, file, metadata={"format": "pt"})
        done = run(trireme, "convert", folder / "source", folder / "out")
        assert done.returncode == 2 and name in done.stderr and not (folder / "out").exists(), done
    print("quantised folders are refused by training, wrong scales by convert")


def main():
    for kind, block in (("blocks", (128, 128)), ("blocks", (64, 32)), ("whole", (128, 128)), ("rows", (128, 128)), ("e5m2", (128, 128))):
        with tempfile.TemporaryDirectory() as folder:
            judge(sys.argv[1], pathlib.Path(folder), kind, block)
    with tempfile.TemporaryDirectory() as folder:
        judge_refusals(sys.argv[1], pathlib.Path(folder))


if __name__ == "__main__":
    main()
