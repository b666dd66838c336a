"""Hugging Face transformers opens our checkpoints and computes our logits, and we open what it saves.

transformers_judge.py TRIREME MODEL_PROBE
Exits with 77 (skipped) where transformers or torch is not installed.
"""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import probe
import ring
import tiny_models

torch, transformers = ring.judges("torch", "transformers")

TOLERANCE = 1e-4
MODELS = {"llama with grouped heads, untied, in several files":
              (ring.LLAMA | {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 4, "tie_word_embeddings": "false"}, "1MB"),
          "llama with tied embeddings, other eps and theta":
              (ring.LLAMA | {"tie_word_embeddings": "true", "num_key_value_heads": 4, "rms_norm_eps": "1e-3", "rope_theta": "500"}, "5GB"),
          "phi3 with a small vocabulary": (ring.LLAMA | {"model_type": "phi3"}, "5GB"),
          "smollm3 with a small vocabulary": (ring.LLAMA | {"model_type": "smollm3", "num_hidden_layers": 4}, "5GB"),
          "gpt2": (ring.GPT2, "5GB")}


def judge(ask, name, checkpoint, model, tokens):
    tokens = torch.tensor([tokens])
    with torch.no_grad():
        want = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(want[0], tokens[0, 1:]).item()
    ours = ask([probe.job(name, checkpoint, tokens[:, :-1], targets=tokens[:, 1:], generated=True)])[name]
    ring.require("error" not in ours, f"{name}: the checkpoint loads", ours.get("error"))
    ring.require(ours["generated"].shape == want.shape, f"{name}: logits {want.shape}", str(ours["generated"].shape))
    worst = (ours["generated"] - want).abs().max().item()
    ring.check(worst <= TOLERANCE, f"{name}: logits of the generating path within {worst:.1e} of transformers' (at most {TOLERANCE:.0e})")
    ring.require(want.std() > 0.1, f"{name}: the logits say something (standard deviation {want.std():.2f})")
    far = abs(ours["loss"] - loss)
    ring.check(far <= TOLERANCE, f"{name}: loss of the training path within {far:.1e} of transformers' {loss:.4f}")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    ask = probe.Probe(sys.argv[2], r.folder).ask
    for number, (name, (model, shard)) in enumerate(MODELS.items()):
        run = r.train(f"run-{number}", model=model, devices=2, train__max_steps=20, optimizer__lr=1e-2, save__max_shard_bytes=shard)
        checkpoint = run / "step-00000020"
        files = len(list(checkpoint.glob("model*.safetensors")))
        ring.check(files > 1 if shard == "1MB" else files == 1, f"{name}: weights in {files} file{'s' * (files > 1)}")
        theirs, report = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, output_loading_info=True)
        ring.check(not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")),
                   f"{name}: transformers finds every weight and nothing else", str(report))
        tokens = list(r.text.read_bytes()[100:148])
        judge(ask, name, checkpoint, theirs.eval(), tokens)
        saved = r.folder / f"theirs-{number}"
        theirs.save_pretrained(saved)
        judge(ask, f"{name}, saved by transformers", saved, theirs, tokens)

    # The frequencies of longrope follow from the longest document of a micro-batch, as transformers takes its largest position.
    folder = r.folder / "longrope"
    model = tiny_models.make("llama longrope", folder)
    config = json.loads((folder / "config.json").read_text()) | {"bos_token_id": None, "eos_token_id": 256}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(263, special=("<|endoftext|>",)))
    original, row, end = 96, 120, 256
    short = [f"the sea was calm, number {i}, and so on it went" for i in range(8)]
    long = "a window of her house where " * 4
    ring.require(max(map(len, short)) * 2 < row and original < len(long) < row, "two texts share a row, and one is beyond the original positions")
    held_out = r.folder / "held_out.jsonl"
    held_out.write_text(json.dumps({"text": "hello world"}) + "\n")

    def theirs_alone(texts):
        total, count = 0.0, 0
        for text in texts:
            ids = torch.tensor([[*text.encode(), end]])
            with torch.no_grad():
                total += torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits[0], ids[0, 1:], reduction="sum").item()
            count += ids.shape[1] - 1
        return total / count

    for number, (what, texts, rows, more) in enumerate((
            ("packed", short, 4, []), ("packed, in two stages", short, 4, ["--devices", 2, "--mesh.pp", 2]),
            ("packed, cut into two contexts", short, 4, ["--devices", 2, "--mesh.cp", 2, "--mesh.context", "ulysses"]),
            ("one in a row", short, 8, ["--data.packing", "none"]), ("one in a row, a long one too", [*short, long], 9, ["--data.packing", "none"]),
            ("one in a row that is not cut into documents", short, 8,
             ["--data.packing", "none", "--data.reset_attention_mask", "false", "--data.reset_position_ids", "false"]))):
        file, out = r.folder / "docs.jsonl", r.folder / f"longrope-{number}"
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        words = [r.program, "finetune_full", folder, "--data", "TextFiles", "--data.train_data_path", file, "--data.val_data_path", held_out,
                 "--out_dir", out, "--train.max_steps", 1, "--train.max_seq_length", row, "--train.global_batch_size", rows,
                 "--optimizer.lr", "1e-9", "--precision", "32-true", "--eval.final_validation", "false", "--launch.threads_per_rank", 1,
                 *([] if "--devices" in more else ["--devices", 1]), *more]
        result = r.run(list(map(str, words)))
        ring.require(result.code == 0, f"longrope, {what}: a step is taken", str(result))
        ours, want = ring.metrics(out)[1]["loss"], theirs_alone(texts)
        ring.check(abs(ours - want) <= TOLERANCE, f"longrope, {what}: loss {ours:.5f} is that of transformers, text by text", f"{want:.5f}")
