"""Hugging Face transformers opens our checkpoints and computes our logits, and we open what it saves.

transformers_judge.py TRIREME PRINT_LOGITS
Exits with 77 (skipped) where transformers or torch is not installed.
"""

import os
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import ring

numpy, torch, transformers = ring.judges("numpy", "torch", "transformers")

TOLERANCE = 1e-4
MODELS = {"llama with grouped heads, untied, in several files":
              (ring.LLAMA | {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 4, "tie_word_embeddings": "false"}, "1MB"),
          "llama with tied embeddings, other eps and theta":
              (ring.LLAMA | {"tie_word_embeddings": "true", "num_key_value_heads": 4, "rms_norm_eps": "1e-3", "rope_theta": "500"}, "5GB"),
          "gpt2": (ring.GPT2, "5GB")}


def ours(program, r, checkpoint, tokens):
    """Logits [tokens, vocabulary] of the generating path, loss of the training path."""
    out = r.folder / "logits"
    done = subprocess.run([program, checkpoint, out, *map(str, tokens)], capture_output=True, encoding="utf-8", env=ring.environment())
    ring.require(done.returncode == 0, f"print_logits reads {checkpoint.name}", done.stderr)
    return numpy.fromfile(out, numpy.float32).reshape(len(tokens), -1), float(done.stdout)


def judge(program, r, name, checkpoint, model, tokens):
    with torch.no_grad():
        ids = torch.tensor([tokens])
        answer = model(ids, labels=ids)
    logits, loss = ours(program, r, checkpoint, tokens)
    want = answer.logits[0].numpy()
    ring.require(logits.shape == want.shape, f"{name}: logits {want.shape}", str(logits.shape))
    worst = float(numpy.abs(logits - want).max())
    ring.check(worst <= TOLERANCE, f"{name}: logits of the generating path within {worst:.1e} of transformers' (at most {TOLERANCE:.0e})")
    ring.require(float(want.std()) > 0.1, f"{name}: the logits say something (standard deviation {want.std():.2f})")
    far = abs(loss - answer.loss.item())
    ring.check(far <= TOLERANCE, f"{name}: loss of the training path within {far:.1e} of transformers' {answer.loss.item():.4f}")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for number, (name, (model, shard)) in enumerate(MODELS.items()):
        run = r.train(f"run-{number}", model=model, devices=2, train__max_steps=20, optimizer__lr=1e-2, save__max_shard_bytes=shard)
        checkpoint = run / "step-00000020"
        files = len(list(checkpoint.glob("model*.safetensors")))
        ring.check(files > 1 if shard == "1MB" else files == 1, f"{name}: weights in {files} file{'s' * (files > 1)}")
        theirs, report = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, output_loading_info=True)
        ring.check(not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")),
                   f"{name}: transformers finds every weight and nothing else", str(report))
        tokens = list(r.text.read_bytes()[100:148])
        judge(sys.argv[2], r, name, checkpoint, theirs.eval(), tokens)
        saved = r.folder / f"theirs-{number}"
        theirs.save_pretrained(saved)
        judge(sys.argv[2], r, f"{name}, saved by transformers", saved, theirs, tokens)
