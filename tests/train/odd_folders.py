"""Folders as people have them: without a head, with keys of other uses, with vocab.json and merges.txt, and old torch.save files.

odd_folders.py TRIREME
"""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import ring
import tiny_models

torch, transformers, safetensors = ring.judges("torch", "transformers", "safetensors.torch")

STEP = ["--train.global_batch_size", 1, "--train.micro_batch_size", 1, "--train.max_steps", 1, "--train.max_seq_length", 24, "--precision",
        "32-true"]
TIED = tiny_models.COMMON | {"tie_word_embeddings": True}
OTHERS = {"auto_map": {"AutoModel": "modeling_mine.Mine"}, "num_labels": 3, "temperature": 0.7, "torchscript": False, "pruned_heads": {},
          "is_decoder": False}


def make(folder, config, headless):
    """A language model's folder, or that of the model without its head; the model is that of AutoModelForCausalLM."""
    config = transformers.AutoConfig.for_model("llama", **config)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tiny_models.redraw(model, folder.name)
    (model.model if headless else model).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(config.vocab_size))
    return model.eval()


def loss_of(model, ids):
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(ids[None, :-1]).logits[0], ids[1:]).item()


def judge(r, folder, model, what):
    text = r.folder / "text.txt"
    ids = torch.tensor(list(b"the sea was calm and Anne"))
    text.write_bytes(bytes(ids.tolist()))
    report = r.folder / "report.json"
    done = r.run([r.program, "evaluate", str(folder), "--text", str(text), "--max_seq_length", "64", "--evaluate.json", str(report)])
    ring.require(done.code == 0, f"{what}: evaluate reads it", str(done))
    ours, theirs = json.loads(report.read_text())["perplexity"]["loss"], loss_of(model, ids)
    ring.check(abs(ours / theirs - 1) < 1e-5, f"{what}: loss {ours:.6f}, transformers' {theirs:.6f}")
    return text


def pretrain(r, folder, text, out, *more):
    return r.run([r.program, "pretrain", str(folder), "--data", "TextFiles", "--data.train_data_path", str(text), "--data.val_data_path",
                  str(text), "--out_dir", str(out), *map(str, STEP), *more])


def headless(r):
    folder = r.folder / "headless"
    model = make(folder, TIED, headless=True)
    ring.require("LlamaModel" in (folder / "config.json").read_text() and
                 "embed_tokens.weight" in safetensors.load_file(folder / "model.safetensors"), "transformers saved a model without a head")
    text = judge(r, folder, model, "a model without a head")
    out = r.folder / "headless-out"
    done = pretrain(r, folder, text, out)
    ring.require(done.code == 0, "a model without a head is trained", str(done))
    saved, report = transformers.AutoModelForCausalLM.from_pretrained(out / "step-00000001", output_loading_info=True)
    ring.check(type(saved).__name__ == "LlamaForCausalLM" and saved.config.architectures == ["LlamaForCausalLM"] and
               not report["missing_keys"] and not report["unexpected_keys"], "and saved with its head", str(report))
    make(r.folder / "untied", tiny_models.COMMON, headless=True)
    for done in (pretrain(r, r.folder / "untied", text, r.folder / "no"),
                 r.run([r.program, "generate", str(r.folder / "untied"), "--prompt", "a"])):
        ring.check(done.code == 2 and "without a head" in done.err and "tie_word_embeddings" in done.err,
                   "a missing head that is not the embedding is refused", str(done))


def other_uses(r):
    folder = r.folder / "others"
    model = make(folder, TIED, headless=False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | OTHERS))
    text = judge(r, folder, model, "keys of other uses")
    done = pretrain(r, folder, text, r.folder / "others-out")
    lines = [line for line in (done.out + done.err).splitlines() if "passed over" in line]
    ring.check(done.code == 0 and len(lines) == 1 and "auto_map, num_labels, temperature are passed over" in lines[0],
               "keys of other uses are passed over with one line", str(done))


def other_files(r):
    folder = r.folder / "files"
    model = make(folder, TIED, headless=False)
    tensors = safetensors.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    text = r.folder / "text.txt"
    done = pretrain(r, folder, text, r.folder / "alone-out")
    ring.check(done.code == 0 and f"weights  new: {folder} has none" in done.out, "a start from config.json alone says that weights are new",
               str(done))
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    data = ["--data", "TextFiles", "--data.train_data_path", str(text), "--data.val_data_path", str(text), "--out_dir", str(r.folder / "bin-out")]
    for words in (["pretrain", str(folder), *data], ["finetune_full", str(folder), *data],
                  ["generate", str(folder), "--prompt", "a"], ["evaluate", str(folder), "--text", str(text)]):
        done = r.run([r.program, *words, *(map(str, STEP) if "--data" in words else [])])
        ring.check(done.code == 2 and "pytorch_model.bin, which only trireme convert reads" in done.err and f"trireme convert {folder} OUT" in done.err,
                   f"{words[0]} refuses a folder of pytorch_model.bin and names the way", str(done))
    done = pretrain(r, folder, text, r.folder / "scratch-out", "--model.from_scratch", "true")
    ring.check(done.code == 0 and "weights  new: model.from_scratch" in done.out, "and trains new weights if it is told to", str(done))
    (folder / "tokenizer.json").unlink()
    letters = json.loads(tiny_models.tokenizer_json(263))["model"]["vocab"]
    (folder / "vocab.json").write_text(json.dumps(letters | {f"<{i}>": i for i in range(256, 263)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<256>", "eos_token": "<256>",
                                                              "unk_token": "<256>"}))
    converted = r.folder / "converted"
    done = r.run([r.program, "convert", str(folder), str(converted)])
    ring.require(done.code == 0, "a folder with an old torch.save file is converted", str(done))
    judge(r, converted, model, "an old torch.save file, with vocab.json and merges.txt")
    wrapped_files(r, folder, model, tensors)


def wrapped_files(r, folder, model, tensors):
    out = r.folder / "unwrapped"

    def convert(source):
        return r.run([r.program, "convert", str(source), str(out), "--force"])

    for prefix in ("module.", "_orig_mod.", "module._orig_mod.", "model."):
        wrapped = {prefix + name: t for name, t in tensors.items()}
        torch.save({"state_dict": wrapped, "epoch": 3} if prefix == "model." else wrapped, folder / "pytorch_model.bin")
        done = convert(folder)
        ring.require(done.code == 0 and f"{prefix} is taken off" in done.out + done.err, f"names behind {prefix} are converted", str(done))
        judge(r, out, model, f"names behind {prefix}")
    (folder / "pytorch_model.bin").rename(folder / "last.ckpt")
    done = convert(folder / "last.ckpt")
    ring.require(done.code == 0, "a file beside config.json is converted", str(done))
    judge(r, out, model, "Lightning's file beside config.json")
    (folder / "last.ckpt").unlink()
    kept = [file.read_bytes() for file in out.glob("*.safetensors")]
    lacking = {name: t for name, t in tensors.items() if "layers.1.mlp.up_proj" not in name}
    for what, found, wanted in (("a folder that lacks a tensor", lacking, "layers.1.mlp.up_proj.weight' ["),
                                ("a folder with other names", {"x." + n if "norm" in n else n + ".y": t for n, t in tensors.items()}, "is not a whole model"),
                                ("ZeRO-3's empty tensors", {n: t[:0].flatten() for n, t in tensors.items()}, "all tensors of")):
        torch.save(found, folder / "pytorch_model.bin")
        done = convert(folder)
        ring.check(done.code == 2 and wanted in done.err, f"{what} is refused", str(done))
    (folder / "pytorch_model.bin").unlink()
    (folder / "global_step5").mkdir()
    (folder / "latest").write_text("global_step5")
    (folder / "global_step5/mp_rank_00_model_states.pt").write_bytes(b"x")
    done = convert(folder)
    ring.check(done.code == 2 and f"{folder}/zero_to_fp32.py {folder} OUT" in done.err, "DeepSpeed's folder is refused with its own way out", str(done))
    ring.check(kept == [file.read_bytes() for file in out.glob("*.safetensors")], "and nothing was written")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    headless(r)
    other_uses(r)
    other_files(r)
