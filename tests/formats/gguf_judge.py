"""PyPI gguf and transformers judge what `trireme convert` makes of GGUF files, both ways.

gguf_judge.py TRIREME
For every architecture: a Hugging Face folder of transformers becomes GGUF, which gguf's reader opens and transformers loads
(gguf_file=) with equal logits and token ids; the way back gives every tensor bit for bit. Blocks equal gguf.quants both ways.
Exits with 77 (skipped) where the packages are not installed.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --judges installs it")
    sys.exit(77)

import gguf_models

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def convert(trireme, source, out, *options):
    result = subprocess.run([trireme, "convert", str(source), str(out), *options], capture_output=True, text=True)
    assert result.returncode == 0, (source, options, result.stderr)
    return pathlib.Path(out)


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits.double()


def relative(a, b):
    return ((a - b).abs().max() / b.std()).item()


def strings(count, seed):
    """Text of many kinds: words, digits, blanks, accents (composed), other scripts, code, special tokens."""
    source = random.Random(seed)
    pieces = ["the", " truth", "It's", " we'll", "DON'T", "12", " 345", "é", " naïve", "北京", "こんにちは", "😀", "\n", "\t",
              "  ", ".", ", ", "!?", "(x)", " {", "}", "_a_b", "ß", "Ωμ", "<think>", "ünï"]
    return ["".join(source.choice(pieces) for _ in range(source.randrange(1, 12))) for _ in range(count)]


def judge_tokenizer(name, theirs, ours, kind):
    """`theirs`: AutoTokenizer of the GGUF file; where it cuts text otherwise than the model's own, it is given that rule."""
    if kind == "smollm":  # its table lacks this rule
        theirs.backend_tokenizer.pre_tokenizer = gguf_models.byte_level("smollm")[0].pre_tokenizer
    texts = strings(400, seed=name)
    if kind == "qwen2":  # texts are composed already, so that normalisation changes nothing
        import unicodedata
        texts = [unicodedata.normalize("NFC", text) for text in texts]
    for text in texts:
        assert theirs(text)["input_ids"] == ours(text)["input_ids"], (name, text, theirs(text)["input_ids"], ours(text)["input_ids"])
        assert theirs.decode(theirs(text)["input_ids"]) == ours.decode(ours(text)["input_ids"]), (name, text)
    return len(texts)


def same_config(name, config, back):
    """Fields that change what is computed, from the config classes of transformers."""
    ignored = {"dtype", "torch_dtype", "architectures", "transformers_version", "_name_or_path", "initializer_range", "attn_implementation",
               "pad_token_id", "use_cache", "bos_token_id", "eos_token_id", "attention_dropout", "n_inner", "model_type",
               "max_window_layers", "sliding_window" if name.startswith("qwen") else "", "_sliding_window_pattern"}
    a, b = config.to_dict(), back.to_dict()
    for key in sorted((a.keys() | b.keys()) - ignored):
        x, y = a.get(key), b.get(key)
        if isinstance(x, dict) and key == "rope_parameters":
            x, y = json.dumps(x, sort_keys=True), json.dumps(y, sort_keys=True)
        assert x == y, (name, key, a.get(key), b.get(key))


def judge_model(trireme, name, folder):
    model, tokenizer, judged = gguf_models.make_model(name, folder / "hf")
    kind = gguf_models.MODELS[name][1]
    ids = torch.tensor([[(7 * i + 3) % gguf_models.VOCAB for i in range(24)]])
    expected = logits(model, ids)
    file = convert(trireme, folder / "hf", folder / f"{name}.gguf")
    assert {t.tensor_type for t in gguf.GGUFReader(file).tensors} == {gguf.GGMLQuantizationType.F32}, name
    if judged:
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=file.name, dtype=torch.float32, attn_implementation=model.config._attn_implementation)
        assert relative(logits(loaded, ids), expected) < 1e-4, (name, relative(logits(loaded, ids), expected))

    back = convert(trireme, file, folder / "back")
    original = safetensors.torch.load_file(folder / "hf" / "model.safetensors")
    returned = safetensors.torch.load_file(back / "model.safetensors")
    assert original.keys() == returned.keys(), (name, original.keys() ^ returned.keys())
    for key, tensor in original.items():
        shifted = name.startswith("gemma") and key.endswith("norm.weight")  # plus one and minus one, in float32
        equal = (returned[key] - tensor).abs().max() <= 2.4e-7 if shifted else torch.equal(returned[key], tensor)
        assert equal, (name, key)
    again = transformers.AutoModelForCausalLM.from_pretrained(back, dtype=torch.float32,
                                                              attn_implementation=model.config._attn_implementation)
    assert relative(logits(again, ids), expected) < (1e-5 if name.startswith("gemma") else 1e-12), name
    same_config(name, model.config, again.config)

    ours = transformers.AutoTokenizer.from_pretrained(back)
    for text in strings(200, seed=7):
        assert ours(text)["input_ids"] == tokenizer(text)["input_ids"], (name, text)
    assert ours.chat_template == tokenizer.chat_template and ours.eos_token == tokenizer.eos_token, name
    count = judge_tokenizer(name, transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file.name), ours, kind)
    print(f"{name}: {len(original)} tensors there and back, {'logits of gguf_file= equal, ' if judged else ''}"
          f"{count} texts with transformers' ids")


def judge_blocks(trireme, folder):
    """Bytes of F16, BF16, Q8_0 and Q4_0 are gguf.quantize's, values read are gguf.dequantize's."""
    gguf_models.make_model("qwen2", folder / "hf")
    original = safetensors.torch.load_file(folder / "hf" / "model.safetensors")
    source = convert(trireme, folder / "hf", folder / "f32.gguf")
    plain = {t.name: t.data for t in gguf.GGUFReader(source).tensors}
    for dtype, kind in (("float16", "F16"), ("bfloat16", "BF16"), ("q8_0", "Q8_0"), ("q4_0", "Q4_0")):
        file = convert(trireme, folder / "hf", folder / f"{dtype}.gguf", "--dtype", dtype)
        reader, number = gguf.GGUFReader(file), gguf.GGMLQuantizationType[kind]
        stored = {t.name: t for t in reader.tensors}
        for name, values in plain.items():
            expected = gguf.quants.quantize(values, number if values.ndim > 1 else gguf.GGMLQuantizationType.F32)
            assert stored[name].tensor_type == (number if values.ndim > 1 else gguf.GGMLQuantizationType.F32), name
            assert numpy.array_equal(stored[name].data.view(numpy.uint8), expected.view(numpy.uint8)), (dtype, name)
        back = convert(trireme, file, folder / f"back-{dtype}", "--dtype", "float32")
        returned = safetensors.torch.load_file(back / "model.safetensors")
        for key in original:
            assert returned[key].dtype == torch.float32, key
        name, key = "blk.1.ffn_up.weight", "model.layers.1.mlp.up_proj.weight"
        values = gguf.quants.dequantize(stored[name].data, number)
        assert numpy.array_equal(returned[key].numpy().view(numpy.uint32), values.view(numpy.uint32)), dtype
    print("F16, BF16, Q8_0 and Q4_0 written and read as gguf.quants does")


BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}  # bytes of a block; where its float16s are


def quantised(rng, shape, kind):
    """Blocks that gguf's own writer makes; of kinds that it only reads, random bits with sound float16s."""
    if kind.name not in BLOCKS:
        values = rng.standard_normal(shape, dtype=numpy.float32) * 10 ** rng.uniform(-6, 3, (shape[0], 1)).astype(numpy.float32)
        return gguf.quants.quantize(values, kind)
    size, halves = BLOCKS[kind.name]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=numpy.uint8)
    for at in halves:
        scales = (rng.standard_normal(blocks.shape[:2]) * 10 ** rng.uniform(-4, 1, blocks.shape[:2])).astype(numpy.float16)
        blocks[..., at:at + 2] = scales[..., None].view(numpy.uint8)
    return blocks.reshape(shape[0], -1)


def random_blocks(rng, shape, kind):
    """Of 32 values: random bits with finite scales, which no quantizer makes."""
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 32, {"Q8_0": 34, "Q4_0": 18}[kind.name]), dtype=numpy.uint8)
    blocks[..., 1] &= 0xBF
    return blocks.reshape(shape[0], -1)


def write_quantised(path, types, make=quantised):
    """A GGUF of gguf's own writer: one llama block with matrices of the given types."""
    rng = numpy.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (("context_length", 64), ("embedding_length", 256), ("block_count", 1), ("feed_forward_length", 512),
                       ("head_count", 4), ("head_count_kv", 2)):
        getattr(writer, f"add_{key}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    shapes = {"token_embd": (32, 256), "blk.0.attn_q": (256, 256), "blk.0.attn_k": (128, 256), "blk.0.attn_v": (128, 256),
              "blk.0.attn_output": (256, 256), "blk.0.ffn_gate": (512, 256), "blk.0.ffn_up": (512, 256), "blk.0.ffn_down": (256, 512)}
    for i, (name, shape) in enumerate(shapes.items()):
        kind = gguf.GGMLQuantizationType[types[i % len(types)]]
        writer.add_tensor(name + ".weight", make(rng, shape, kind), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(name + ".weight", rng.standard_normal(256, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def judge_reading(trireme, folder):
    """Quantised blocks of gguf's own writer; another type is refused by name."""
    names = {"blk.0.attn_v": "self_attn.v_proj", "blk.0.attn_output": "self_attn.o_proj", "blk.0.ffn_gate": "mlp.gate_proj",
             "blk.0.ffn_up": "mlp.up_proj", "blk.0.ffn_down": "mlp.down_proj"}
    checked = 0
    kinds = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
    mixtures = [["Q4_1", "Q8_0", "BF16", "Q4_0", "F16", "F32"], ["Q6_K", "Q5_0", "Q4_K", "F32", "Q5_K", "Q5_1"]]
    for round_index, types in enumerate([[kind] for kind in kinds] + mixtures):
        path = folder / f"theirs-{round_index}.gguf"
        write_quantised(path, types)
        back = safetensors.torch.load_file(convert(trireme, path, folder / f"read-{round_index}") / "model.safetensors")
        for tensor in gguf.GGUFReader(path).tensors:
            key = names.get(tensor.name.removesuffix(".weight"))
            if key is None:
                continue
            expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            ours = back[f"model.layers.0.{key}.weight"].float().numpy()
            assert numpy.array_equal(ours.view(numpy.uint32), expected.view(numpy.uint32)), (types, tensor.name)
            checked += 1
    write_quantised(folder / "q4k.gguf", ["Q4_K"])
    whole = (folder / "q4k.gguf").read_bytes()
    name = b"blk.0.ffn_up.weight"
    at = whole.index(name) + len(name) + 4 + 16  # behind its two sizes: the type
    (folder / "q2k.gguf").write_bytes(whole[:at] + (10).to_bytes(4, "little") + whole[at + 4:])
    (folder / "short.gguf").write_bytes(whole[:-5000])
    for bad, problem in (("q2k", "is of type Q2_K"), ("short", "short.gguf")):
        refused = subprocess.run([trireme, "convert", str(folder / f"{bad}.gguf"), str(folder / bad)], capture_output=True, text=True)
        assert refused.returncode == 2 and problem in refused.stderr and not (folder / bad).exists(), refused
    print(f"{checked} tensors of {', '.join(kinds)} read as gguf.dequantize does; Q2_K is refused by name")


def halves_from_pairs(rows, heads):
    """The rows of a llama's query or key, from the order in GGUF to that of Hugging Face."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def judge_folders(trireme, folder):
    """Folders with matrices in blocks: those of a GGUF file bit for bit, others as gguf.quantize makes them."""
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    heads = {"attn_q": 4, "attn_k": 2}
    for kind in ("Q8_0", "Q4_0"):
        number = gguf.GGMLQuantizationType[kind]
        path = folder / f"{kind}.gguf"
        write_quantised(path, [kind], random_blocks)
        told = subprocess.run([trireme, "convert", str(path), str(folder / kind), "--dtype", kind.lower()], capture_output=True, text=True)
        assert told.returncode == 0 and "the blocks of 7 matrices are kept" in told.stdout + told.stderr, told
        stored = safetensors.torch.load_file(folder / kind / "model.safetensors")
        wide = safetensors.torch.load_file(convert(trireme, folder / kind, folder / f"wide-{kind}") / "model.safetensors")
        for tensor in gguf.GGUFReader(path).tensors:
            short = tensor.name.removeprefix("blk.0.").removesuffix(".weight")
            if short not in names:
                continue
            key = f"model.layers.0.{names[short]}.weight"
            kept = halves_from_pairs(tensor.data, heads[short]) if short in heads else tensor.data
            assert numpy.array_equal(stored[key].numpy(), kept), (kind, key)
            values = gguf.quants.dequantize(kept, number)
            assert numpy.array_equal(wide[key].numpy().view(numpy.uint32), values.view(numpy.uint32)), (kind, key)
        table = gguf.quants.dequantize(next(t for t in gguf.GGUFReader(path).tensors if t.name == "token_embd.weight").data, number)
        assert numpy.array_equal(stored["model.embed_tokens.weight"].numpy(), table), kind
        about = json.loads((folder / kind / "config.json").read_text())["quantization_config"]
        assert about == {"quant_method": "gguf", "quant_type": kind.lower()}, about

        mixed = folder / f"mixed-{kind}.gguf"
        write_quantised(mixed, [kind, "F16"])
        out = convert(trireme, mixed, folder / f"mixed-{kind}", "--dtype", kind.lower())
        stored = safetensors.torch.load_file(out / "model.safetensors")
        for tensor in gguf.GGUFReader(mixed).tensors:
            short = tensor.name.removeprefix("blk.0.").removesuffix(".weight")
            if short not in names or short in heads:
                continue
            wanted = tensor.data if tensor.tensor_type == number else gguf.quants.quantize(tensor.data.astype(numpy.float32), number)
            assert numpy.array_equal(stored[f"model.layers.0.{names[short]}.weight"].numpy(), wanted), (kind, short)

    gguf_models.make_model("qwen2", folder / "hf")
    original = safetensors.torch.load_file(folder / "hf" / "model.safetensors")
    for kind in ("Q8_0", "Q4_0"):
        out = convert(trireme, folder / "hf", folder / f"hf-{kind}", "--dtype", kind.lower())
        stored = safetensors.torch.load_file(out / "model.safetensors")
        assert original.keys() == stored.keys()
        for key, tensor in original.items():
            if ".layers." in key and tensor.dim() == 2:
                wanted = gguf.quants.quantize(tensor.float().numpy(), gguf.GGMLQuantizationType[kind])
                assert numpy.array_equal(stored[key].numpy(), wanted), (kind, key)
            else:
                assert torch.equal(stored[key], tensor), (kind, key)
        try:
            transformers.AutoModelForCausalLM.from_pretrained(out)
            assert False, f"transformers opens a folder in {kind}"
        except RuntimeError as error:
            assert "mismatched_sizes" in str(error), error
    print("folders in Q8_0 and Q4_0: blocks of GGUF files bit for bit, others as gguf.quantize makes them")


def main():
    trireme = sys.argv[1]
    chosen = sys.argv[2:]
    for name in gguf_models.MODELS:
        with tempfile.TemporaryDirectory() as folder:
            if not chosen or name in chosen:
                judge_model(trireme, name, pathlib.Path(folder))
    for judge in (judge_blocks, judge_reading, judge_folders):
        with tempfile.TemporaryDirectory() as folder:
            if not chosen:
                judge(trireme, pathlib.Path(folder))


if __name__ == "__main__":
    main()
