"""Every command that takes an adapter sees the same merged model.

adapter_commands.py TRIREME
merge_lora, convert --adapter, generate and evaluate with an adapter beside a model and alone; llama.cpp's form of an adapter, read
by PyPI's gguf; LitGPT's lit_model.pth.lora; refusals. Exits with 77 (skipped) where the packages are not installed.
"""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import ring
import tiny_models

torch, safetensors_torch, gguf = ring.judges("torch", "safetensors.torch", "gguf")
PREFIX = "base_model.model."


def write_adapter(folder, base, modules, r=3, **config):
    """Random A and B for {module: (out, in)}."""
    folder.mkdir()
    source = torch.Generator().manual_seed(5)
    tensors = {}
    for name, (rows, columns) in modules.items():
        tensors[f"{PREFIX}{name}.lora_A.weight"] = 0.3 * torch.randn(r, columns, generator=source)
        tensors[f"{PREFIX}{name}.lora_B.weight"] = 0.3 * torch.randn(rows, r, generator=source)
    safetensors_torch.save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": r, "lora_alpha": 6, "base_model_name_or_path": str(base),
         "target_modules": sorted({name.rsplit(".", 1)[1] for name in modules})} | config))
    return tensors


def weights(folder):
    return safetensors_torch.load_file(folder / "model.safetensors")


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def succeed(run, *words, **options):
    result = run(list(words), **options)
    ring.require(result.code == 0, f"trireme {' '.join(map(str, words))}", result)
    return result


def refuse(run, sentence, *words):
    result = run(list(words))
    ring.check(result.code == 2 and all(word in result.text for word in sentence), f"refused: {sentence[0]}", result)


def llama_modules(names):
    shapes = {"self_attn.q_proj": (64, 48), "self_attn.k_proj": (32, 48), "mlp.down_proj": (48, 80)}
    return {f"model.layers.{layer}.{name}": shapes[name] for layer in range(4) for name in names}


def judge_gguf(run, folder, base, modules, family):
    """llama.cpp adds alpha / r B A to the base's tensor: that has to be the merged model's tensor, in GGUF's order of rows."""
    adapter = folder / f"{family}-adapter"
    write_adapter(adapter, base, modules, use_rslora=True)
    merged = folder / f"{family}-merged"
    succeed(run, "merge_lora", adapter, f"out={merged}")
    for source, out in ((base, "base"), (merged, "merged"), (adapter, "adapter")):
        more = ["--dtype", "float32"] if source != adapter else []
        succeed(run, "convert", source, folder / f"{family}-{out}.gguf", *more)
    reader = gguf.GGUFReader(folder / f"{family}-adapter.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    ring.check(fields["general.type"] == "adapter" and fields["adapter.type"] == "lora" and fields["adapter.lora.alpha"] == 6,
               f"{family}: keys of llama.cpp's form", fields)
    read = lambda file: {t.name: torch.tensor(t.data.copy()) for t in gguf.GGUFReader(file).tensors}
    plain, tuned, ab = (read(folder / f"{family}-{out}.gguf") for out in ("base", "merged", "adapter"))
    ring.check(len(ab) == 2 * len(modules), f"{family}: an A and a B for each module", ab.keys())
    for name in {name.rsplit(".", 1)[0] for name in ab}:
        a, b = ab[name + ".lora_a"], ab[name + ".lora_b"]
        expected = plain[name] + fields["adapter.lora.alpha"] / a.shape[0] * (b @ a)
        ring.require((tuned[name] - expected).abs().max() < 2e-6, f"{family}: {name}")


def judge_litgpt(run, folder, base):
    """A and B of q and v below each other, as LitGPT's LoRAQKVLinear has them (q, k, v enabled: yes, no, yes)."""
    succeed(run, "convert", base, folder / "lit", "--to", "litgpt")
    lit = folder / "lit-lora"
    lit.mkdir()
    shutil.copy(folder / "lit" / "model_config.yaml", lit)
    source = torch.Generator().manual_seed(6)
    state, r = {}, 2
    expected = weights(base)
    for layer in range(4):
        a = torch.randn(2 * r, 48, generator=source)
        b = torch.randn(64 + 32, r, generator=source)
        state[f"transformer.h.{layer}.attn.qkv.lora_A"], state[f"transformer.h.{layer}.attn.qkv.lora_B"] = a, b
        for name, rows, ranks in (("q_proj", slice(0, 64), slice(0, r)), ("v_proj", slice(64, 96), slice(r, 2 * r))):
            expected[f"model.layers.{layer}.self_attn.{name}.weight"] += 16 / r * (b[rows] @ a[ranks])
        a, b = torch.randn(r, 64, generator=source), torch.randn(48, r, generator=source)
        state[f"transformer.h.{layer}.attn.proj.lora_A"], state[f"transformer.h.{layer}.attn.proj.lora_B"] = a, b
        expected[f"model.layers.{layer}.self_attn.o_proj.weight"] += 16 / r * (b @ a)
    torch.save({"model": state}, lit / "lit_model.pth.lora")
    (lit / "hyperparameters.yaml").write_text(
        f"checkpoint_dir: {base}\nlora_r: {r}\nlora_alpha: 16\nlora_dropout: 0.05\nlora_query: true\nlora_key: false\n"
        "lora_value: true\nlora_projection: true\nlora_mlp: false\nlora_head: false\n")
    refuse(run, ["is an adapter of LitGPT", "trireme convert"], "merge_lora", lit)
    succeed(run, "convert", lit, folder / "from-lit")
    succeed(run, "merge_lora", folder / "from-lit", "--out", folder / "lit-merged")
    ours = weights(folder / "lit-merged")
    worst = max((ours[name] - expected[name]).abs().max().item() for name in expected)
    ring.check(worst < 2e-5, "LitGPT's adapter merges as LitGPT says", worst)


def keeps_the_adapters_template(run, folder, base, adapter):
    """An adapter's folder may have another chat template than its base, as TRL saves it: the merged model is asked in it."""
    config, jinja = base / "tokenizer_config.json", adapter / "chat_template.jinja"
    config.write_text(json.dumps({"chat_template": "that of the base"}))
    jinja.write_text("that of the adapter")
    succeed(run, "merge_lora", adapter, "--out", folder / "asked")
    succeed(run, "convert", base, folder / "asked-too", "--adapter", adapter)
    for made in (folder / "asked", folder / "asked-too"):
        ring.check((made / "chat_template.jinja").read_text() == "that of the adapter" and json.loads((made / "tokenizer_config.json").read_text()) == {},
                   f"{made.name} has the chat template of the adapter", list(made.iterdir()))
    config.unlink()
    jinja.unlink()


def main():
    with ring.Ring(sys.argv[1]) as r:
        folder = r.folder
        run = lambda words, **options: r.run([r.program, *map(str, words)], **options)
        base, gpt2 = folder / "base", folder / "gpt2"
        tiny_models.make("llama 2", base)
        tiny_models.make("gpt2", gpt2)
        adapter = folder / "adapter"
        write_adapter(adapter, base, llama_modules(["self_attn.q_proj", "mlp.down_proj"]))

        succeed(run, "merge_lora", adapter)
        merged = folder / "adapter-merged"
        ring.check(not equal(weights(merged), weights(base)), "merge_lora writes a merged model beside the adapter")
        succeed(run, "convert", base, folder / "converted", "--adapter", adapter)
        ring.check(equal(weights(folder / "converted"), weights(merged)), "convert --adapter writes the same")
        succeed(run, "convert", adapter, folder / "alone")
        ring.check(equal(weights(folder / "alone"), weights(merged)), "an adapter alone leads to its base")
        judge_gguf(run, folder, base, llama_modules(["self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"]), "llama")
        judge_gguf(run, folder, gpt2, {f"transformer.h.{i}.attn.c_attn": (144, 48) for i in range(3)}, "gpt2")
        judge_litgpt(run, folder, base)

        for name in (base, merged):
            (name / "tokenizer.json").write_text(tiny_models.tokenizer_json(263))
        text = folder / "short.txt"
        text.write_text(r.text.read_text()[:600])
        written, judged = [], []
        for place in ((merged,), (base, "--adapter", adapter), (adapter,), (base,)):
            one = ("--devices", 1, "--launch.threads_per_rank", 1)
            said = succeed(run, "generate", *place, "--prompt", "to be", "--max_new_tokens", 12, "--temperature", 0, *one)
            written.append(said.out)
            succeed(run, "evaluate", *place, "--text", text, "--max_seq_length", 64, "--json", folder / "result.json", *one)
            judged.append(json.loads((folder / "result.json").read_text())["perplexity"]["loss"])
        ring.check(written[0] == written[1] == written[2] != written[3], "generate writes the merged model's text", written)
        ring.check(max(abs(loss - judged[0]) for loss in judged[:3]) < 1e-6 < abs(judged[3] - judged[0]),
                   "evaluate judges the merged model", judged)
        several = ("--devices", 2, "--mesh.tp", 2, "--launch.threads_per_rank", 1)
        succeed(run, "evaluate", adapter, "--text", text, "--max_seq_length", 64, "--json", folder / "result.json", *several)
        loss = json.loads((folder / "result.json").read_text())["perplexity"]["loss"]
        ring.check(abs(loss - judged[0]) < 1e-5, "and so do two tensor-parallel ranks", (loss, judged))
        refuse(run, ["fits no module of this model"], "convert", gpt2, folder / "x", "--adapter", adapter)
        kept = weights(base)
        for words in (["merge_lora", adapter, "--out", base], ["convert", adapter, base], ["merge_lora", adapter, "--base", base, "--out", base],
                      ["convert", base, adapter, "--adapter", adapter]):
            refuse(run, ["is read here, and its result cannot take its place"], *words, "--force")
        ring.check(equal(weights(base), kept) and (adapter / "adapter_config.json").exists(), "what is read is not replaced")
        for words in (["--to", "gguf"], ["--out", folder / "merged.gguf"]):
            refuse(run, ["merge_lora writes no GGUF file"], "merge_lora", adapter, *words)
        refuse(run, ["--dtyp", "dtype"], "merge_lora", adapter, "--dtyp", "bfloat16")
        refuse(run, ["trireme merge_lora does not read it"], "merge_lora", adapter, "--optimizer.lr", 1)
        refuse(run, ["max_shard_bytes has no effect"], "convert", base, folder / "x.gguf", "--max_shard_bytes", "1MB")
        keeps_the_adapters_template(run, folder, base, adapter)
        shutil.move(base, folder / "moved")
        refuse(run, ["the base of the adapter", "--base PATH"], "merge_lora", adapter, "--force")
        said = succeed(run, "merge_lora", adapter, "--base", folder / "moved", "--out", folder / "again", "--quantize", "none")
        ring.check("logits" not in said.out, "--quantize none is a merge into all bits, which has nothing to be compared with", said)
        ring.check(equal(weights(folder / "again"), weights(merged)), "--base names the base's new place")
        config = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "adapter_config.json").write_text(json.dumps(config | {"trainable_token_indices": [3]}))
        refuse(run, ["trainable_token_indices is [3]"], "merge_lora", adapter, "--base", folder / "moved", "--force")


if __name__ == "__main__":
    main()
