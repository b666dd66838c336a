"""Hugging Face transformers opens our checkpoints and computes our logits, and we open what it saves.

transformers_judge.py TRIREME MODEL_PROBE
Exits with 77 (skipped) where transformers or torch is not installed.
"""

import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import probe
import ring

torch, transformers = ring.judges("torch", "transformers")

TOLERANCE = 1e-4
MODELS = {"llama with grouped heads, untied, in several files":
              (ring.LLAMA | {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 4, "tie_word_embeddings": "false"}, "1MB"),
          "llama with tied embeddings, other eps and theta":
              (ring.LLAMA | {"tie_word_embeddings": "true", "num_key_value_heads": 4, "rms_norm_eps": "1e-3", "rope_theta": "500"}, "5GB"),
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
