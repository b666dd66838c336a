"""What a run of adapters needs of its base beside training: copies of it in checkpoints, and merged weights for sample replies.

beside_base.py TRIREME
A checkpoint that holds its base (checkpoint.base copy) is verified, merged, converted, evaluated and resumed after the base is
gone. A sample reply is what `trireme generate BASE --adapter` writes, on every mesh.
"""

import os
import re
import shutil
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import tuning
from tuning import peft, ring, safetensors, torch, transformers

LORA = {"lora__r": 4, "lora__alpha": 8, "lora__dropout": 0, "lora__target_modules": "[q_proj,down_proj,lm_head]", "optimizer__lr": 0.01}
ONE = ["--launch.threads_per_rank", "1"]


def weights(folder, pattern="model*.safetensors"):
    found = {}
    for path in sorted(folder.glob(pattern)):
        found |= safetensors.load_file(path)
    return found


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def succeed(r, *words):
    result = r.run([r.program, *map(str, words)])
    ring.require(result.code == 0, f"trireme {' '.join(map(str, words))}", str(result))
    return result


def copies(r):
    base = tuning.make_base("gemma3", r.folder / "moving")
    common = {"precision": "32-true", "train__max_steps": 4, "train__save_interval": 2, "lora__modules_to_save": "[model.norm]"} | LORA
    run = tuning.tune(r, base, "copies", devices=2, strategy="full_shard", checkpoint__base="copy", **common)
    plain = tuning.tune(r, base, "references", **common)
    step, referring = run / "step-00000002", plain / "step-00000002"
    ring.check(equal(weights(step), weights(base)) and (step / "config.json").read_bytes() == (base / "config.json").read_bytes(),
               "checkpoint.base copy: a checkpoint holds the base's files as they are")
    ring.check(equal(weights(step, "adapter_model*.safetensors"), weights(referring, "adapter_model*.safetensors")), "and the adapters of a run without it")
    ring.check("its base is in it and is unchanged" in succeed(r, "checkpoint", "verify", step).out, "verify follows it")
    as_model = {"finetune_lora": LORA, "finetune_dpo": LORA, "finetune_full": {}}
    for subcommand, settings in as_model.items():
        said = r.run(tuning.command(r, step, "as-model", subcommand=subcommand, data__ledger=None, train__max_steps=1, **settings))
        ring.check(said.code == 2 and "is an adapter" in said.err and f"--lora.initial_adapter {step} trains it on" in said.err and "trireme merge_lora" in said.err,
                   f"{subcommand} refuses such a checkpoint as a model: its adapter would be left out", str(said))
    said = r.run([r.program, "explain", "memory", str(step), "--lora.r", "4"])
    ring.check(said.code == 2 and "is an adapter" in said.err, "so does explain memory", str(said))
    said = r.run([r.program, "grpo", str(base), "--grpo.prompts", str(r.folder / "chat.jsonl"), "--grpo.beta", "0.1", "--grpo.reference", str(step), "--reward.functions", "[exact]",
                  "--grpo.max_prompt_length", "8", "--grpo.max_completion_length", "8", "--dry_run"])
    ring.check(said.code == 2 and "grpo.reference: " in said.err and "is an adapter, and this run trains all weights" in said.err and "trireme merge_lora" in said.err,
               "as the reference of a run of all weights it is refused, too", str(said))
    on = tuning.tune(r, step, "on", adapter=step, precision="32-true", train__max_steps=1)
    there = tuning.tune(r, base, "on-there", adapter=step, precision="32-true", train__max_steps=1)
    ring.check(tuning.losses(on) == tuning.losses(there), "as the first adapter beside itself it is trained on, as beside its base")
    merged = {}
    for what, words in {"": [step], "-by-base": [referring, "--base", base], "-by-copy": [referring, "--base", step]}.items():
        merged[what] = r.folder / f"merged{what}"
        succeed(r, "merge_lora", *words, "--out", merged[what])
    ring.check(all(equal(weights(folder), weights(merged[""])) for folder in merged.values()), "merging with the copy and with the base gives the same")
    near = tuning.tune(r, base.name, "near", **common)
    (r.folder / "another-place").mkdir()
    for words in (["explain", "memory"], ["pretrain", "--train.max_steps", "5", *ONE]):
        from_elsewhere = r.run(["bash", "-c", 'cd another-place && exec "$0" "$@"', str(r.program), *words, "--resume", str(near)])
        ring.check(from_elsewhere.code == 0, f"{words[0]} --resume from another folder finds the base by its whole path", str(from_elsewhere))
    first = tuning.losses(run)
    base.rename(r.folder / "gone")
    lost = r.run([r.program, "checkpoint", "verify", str(referring)])
    ring.check(lost.code == 2 and "say so with --base PATH" in lost.out, "verify says that the base of an adapter is gone", str(lost))
    ring.check(f"its base {r.folder / 'gone'} is unchanged" in succeed(r, "checkpoint", "verify", referring, "--base", r.folder / "gone").out,
               "and takes the place where it lies now")
    other = r.run([r.program, "checkpoint", "verify", str(r.folder / "gone"), "--base", "x"])
    ring.check(other.code == 2 and "is no adapter" in other.err, "--base beside no adapter is refused", str(other))

    shutil.rmtree(merged[""])
    succeed(r, "merge_lora", step, "--out", merged[""])
    ring.check(equal(weights(merged[""]), weights(merged["-by-base"])), "merge_lora needs no base any more")
    succeed(r, "convert", step, r.folder / "converted")
    ring.check(equal(weights(r.folder / "converted"), weights(merged["-by-base"])), "nor does convert")
    one, other = (succeed(r, "generate", place, "--prompt", "the", "--temperature", "0", "--max_new_tokens", "12", *ONE).out for place in (step, merged[""]))
    ring.check(one == other, "nor generate", f"{one!r} {other!r}")
    resumed = r.run([r.program, "finetune_lora", "--resume", str(step), "--out_dir", str(r.folder / "resumed"), *ONE])
    ring.check(resumed.code == 0 and [row["loss"] for _, row in sorted(ring.metrics(r.folder / "resumed").items())] == first[2:],
               "and a resumed run goes on from it with the same losses", str(resumed))
    for what, words in {"merge": ["merge_lora", referring, "--out", r.folder / "none"], "generate": ["generate", referring, "--prompt", "the"]}.items():
        refused = r.run([r.program, *map(str, words)])
        ring.check(refused.code == 2 and "is not there" in refused.err and "--base PATH" in refused.err and not (r.folder / "none").exists(),
                   f"without a copy, {what} says in one sentence where the base was, and --base PATH", str(refused))
    [file] = step.glob("model*.safetensors")
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    damaged = r.run([r.program, "checkpoint", "verify", str(step)])
    ring.check(damaged.code == 1 and file.name in damaged.text, "verify finds a damaged byte of the copy", str(damaged))
    said = r.run(tuning.command(r, r.folder / "gone", "none", subcommand="finetune_full", checkpoint__base="copy", train__max_steps=1))
    ring.check(said.code == 2 and "checkpoint.base copy" in said.err, "without adapters checkpoint.base copy is refused", str(said))


def samples(r):
    for family, more in (("llama 2", {}), ("gemma3", {}), ("gpt2", {"lora__target_modules": "[c_attn,lm_head]", "lora__dora": "true"}),
                         ("llama 2", {"lora__dora": "true"}), ("gemma3", {"lora__target_modules": "[q_proj,embed_tokens]"})):
        base = r.folder / family.replace(" ", "-")
        if not base.exists():
            tuning.make_base(family, base)
        asked = {"precision": "32-true", "train__max_steps": 6, "eval__max_new_tokens": 16, "eval__evaluate_example": "the sea", "eval__interval": 6,
                 "eval__final_validation": "true"} | LORA | more

        def replies(out, **mesh):
            result = r.run(tuning.command(r, base, out, **asked, **mesh))
            ring.require(result.code == 0, f"{out} trains", str(result))
            lines = [line for line in result.text.splitlines() if line.startswith("sample   ")]
            ring.require(len(lines) == 2, f"{out} says what it replies to, and replies", str(result))
            return lines[1].removeprefix("sample   ").removesuffix(" ...")

        out = f"sample-{family}-{len(list(r.folder.glob('sample-*')))}".replace(" ", "-")
        ours = replies(out)
        chat = lambda *words: subprocess.run([r.program, "generate", str(base), *words, "--generate.chat", "true", "--generate.chat_template", "chatml",
                                              "--temperature", "0", "--max_new_tokens", "16", "--precision", "32-true", *ONE], input="the sea\n",
                                             cwd=r.folder, env=ring.environment(), capture_output=True, encoding="utf-8", errors="replace", timeout=300)
        theirs, plain = chat("--adapter", str(r.folder / out)), chat()
        # The line of a sample shows control characters, and each byte that belongs to no character.
        shown = lambda answer: re.sub("\ufffd+", "?", "".join(chr(0x2400 + ord(c)) if c < " " else c for c in answer.stdout.removesuffix("\n")))
        ours_shown = re.sub(r"(\\x[0-9A-F]{2})+", "?", ours.replace("\u21b5", "\u240a"))
        ring.check(theirs.returncode == 0 and shown(theirs) == ours_shown != shown(plain),
                   f"{family} {more}: the sample reply is what generate --adapter writes: {ours!r}", f"{theirs} {plain}")
        for mesh in ({"devices": 2, "strategy": "full_shard"}, {"devices": 2, "mesh__pp": 2}):
            there = replies(out + "-" + "-".join(map(str, mesh.values())), **mesh)
            ring.check(there == ours, f"and with {mesh} it is the same", f"{there!r} {ours!r}")
    started = r.run(tuning.command(r, r.folder / "llama-2", "biased", **(LORA | {"lora__bias": "true", "train__max_steps": 1})))
    ring.check(started.code == 0 and "warn     the bias of B (lora.bias) has no place in model.layers.0." in started.text,
               "a start says that the biases of B have no place in the base", str(started))
    biased = r.run(tuning.command(r, r.folder / "llama-2", "none", **({"eval__max_new_tokens": 9, "lora__bias": "true"} | LORA)))
    ring.check(biased.code == 2 and "lora.bias" in biased.err and "has no bias" in biased.err, "refused: a sample of what cannot be merged", str(biased))


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    tuning.write_conversations(r.folder / "chat.jsonl")
    copies(r)
    samples(r)
