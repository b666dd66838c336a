#!/usr/bin/env python3
"""trireme finetune_dpo as a user runs it: it learns a preference that was made up, scores texts, and refuses what is wrong.

preferences.py TRIREME [PICTURE.svg]
The preference: of two replies, the one that ends in a full stop. PICTURE gets the held-out accuracy of each step.
"""

import json
import os
import random
import shutil
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import tuning
from tuning import peft, ring, torch

import wide

STEPS, EVERY, ENOUGH = 60, 5, 0.95
WAYS = {"all weights": {"optimizer__lr": 1e-3}, "adapters (LoRA)": {"optimizer__lr": 4e-3, "lora__r": 8, "lora__target_modules": "all-linear"}}


def write_pairs(path, count, seed):
    source = random.Random(seed)
    words = lambda: " ".join(source.choice(ring.WORDS).strip(".,;'!") for _ in range(source.randint(1, 3)))
    said = lambda role, text: [{"role": role, "content": text}]
    with open(path, "w") as out:
        for _ in range(count):
            reply, other = words(), words()
            out.write(json.dumps({"prompt": said("user", words()), "chosen": said("assistant", reply + "."), "rejected": said("assistant", other)}) + "\n")
    return path


def command(r, out, data="pairs.jsonl", **settings):
    ours = {"precision": "32-true", "train__max_seq_length": 128, "train__max_steps": STEPS, "train__global_batch_size": 8,
            "eval__interval": EVERY, "eval__final_validation": "true", "data__ledger": "false"} | settings
    return tuning.command(r, r.folder / "base", out, None, data, "finetune_dpo", **({"data__val_data_path": r.folder / "held-out.jsonl"} | ours))


def learns(r):
    """{way: {step: held-out accuracy}}"""
    curves = {}
    for way, settings in WAYS.items():
        out = way.split()[0]
        result = r.run(command(r, out, **settings))
        ring.require(result.code == 0, f"{way}: the run succeeds", str(result))
        rows = ring.metrics(r.folder / out)
        curves[way] = {step: row["measures"]["val_rewards/accuracies"] for step, row in sorted(rows.items()) if "val_rewards/accuracies" in row["measures"]}
        last = rows[STEPS]["measures"]
        ring.check(curves[way][STEPS] > ENOUGH, f"{way}: {STEPS} steps prefer {curves[way][STEPS]:.1%} of the held-out replies with a full stop (above {ENOUGH:.0%})",
                   str(curves[way]))
        ring.check(last["val_rewards/margins"] > 0 and abs(last["rewards/margins"] - (last["rewards/chosen"] - last["rewards/rejected"])) < 1e-5,
                   f"{way}: the held-out margin is {last['val_rewards/margins']:.2f}")
        ring.check(abs(rows[1]["loss"] - 0.6931) < 1e-3, f"{way}: the first loss is log 2: the model is its own reference")
    return curves


def scores(r):
    """Log-probabilities of given tokens, with the adapter and without, on one rank and on meshes, beside PEFT's."""
    folder, source = r.folder, random.Random(7)
    texts = [{"tokens": [source.randrange(256) for _ in range(12)], "first": 5}, {"tokens": [source.randrange(256) for _ in range(9)]},
             {"prompt": "The sea", "completion": " is wide."}, {"text": "Anne"}]
    (folder / "texts.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts))

    def ours(*words):
        out = folder / "scores.jsonl"
        result = r.run([r.program, "evaluate", folder / "base", "--score", folder / "texts.jsonl", "--predictions", out, "--precision", "64-true", *map(str, words)])
        ring.require(result.code == 0, f"evaluate --score {' '.join(map(str, words))}", str(result))
        return [json.loads(line) for line in out.read_bytes().splitlines()]

    def theirs(model):
        found = []
        for text in texts:
            ids = text.get("tokens") or list((text.get("text") or text["prompt"] + text["completion"]).encode())
            first = text.get("first") or len(text.get("prompt", "x"))
            with torch.no_grad():
                values = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            found.append((ids[first:], [values[i - 1, ids[i]].item() for i in range(first, len(ids))]))
        return found

    base = wide.widen(tuning.load_base(folder / "base"))
    adapted = wide.widen(peft.PeftModel.from_pretrained(tuning.load_base(folder / "base"), folder / "adapters" / f"step-{STEPS:08}"))
    for what, words, want in (("the base", [], theirs(base)), ("the base and its adapter", ["--adapter", folder / "adapters"], theirs(adapted))):
        for mesh in ([], ["--devices", 2, "--mesh.tp", 2], ["--devices", 2, "--mesh.pp", 2], ["--devices", 2]):
            got = ours(*words, *mesh)
            same = [row["tokens"] for row in got] == [ids for ids, _ in want]
            far = max(abs(a - b) for row, (_, values) in zip(got, want) for a, b in zip(row["logprobs"], values))
            ring.check(same and far < 1e-9 and all(abs(row["sum"] - sum(row["logprobs"])) < 1e-9 for row in got),
                       f"log-probabilities of {what}{''.join(f' {word}' for word in mesh)}: within {far:.1e} of PEFT's", str(got))
    # Ids need no tokenizer: one that Trireme does not read lies beside this model.
    shutil.copytree(folder / "base", folder / "ids")
    (folder / "ids" / "tokenizer.json").unlink()
    (folder / "ids" / "vocab.txt").write_text("[PAD]\n")
    for lines, code, said in ((texts[:2], 0, ""), (texts, 2, "holds its tokenizer as vocab.txt")):
        (folder / "ids.jsonl").write_text("".join(json.dumps(t) + "\n" for t in lines))
        result = r.run([r.program, "evaluate", folder / "ids", "--score", folder / "ids.jsonl", "--predictions", folder / "ids-scores.jsonl", "--precision", "64-true",
                        "--devices", "2"])
        ring.check(result.code == code and said in result.err, f"without a tokenizer, evaluate --score of {len(lines)} lines exits with {code}", str(result))
    found = [json.loads(line) for line in (folder / "ids-scores.jsonl").read_bytes().splitlines()]
    far = max(abs(a - b) for row, (_, values) in zip(found, theirs(base)) for a, b in zip(row["logprobs"], values))
    ring.check(len(found) == 2 and far < 1e-9, f"ids without a tokenizer: within {far:.1e} of transformers'", str(found))
    for line, said in (('{"tokens": [1, 300000]}', '"tokens" holds 300000'), ('{"tokens": [1]}', "no token is left to score"), ('{"prompt": "a"}', 'no text under "completion"'),
                       (json.dumps({"tokens": [1] * 5000}), "tokens; up to")):
        (folder / "texts.jsonl").write_text(line + "\n")
        result = r.run([r.program, "evaluate", folder / "base", "--score", folder / "texts.jsonl"])
        ring.check(result.code == 2 and said in result.err, f"refused: {result.err.strip()[:120]}", str(result))


def draw(curves, path):
    width, height, left, top, right, bottom = 560, 260, 48, 40, 536, 220
    x = lambda step: left + (right - left) * step / STEPS
    y = lambda share: bottom - (bottom - top) * share
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
             "<title>Held-out pairs of which the model prefers the reply with a full stop</title>",
             "<style>text { font: 12px system-ui, sans-serif; fill: #5b6773 } .paper { fill: #ffffff } .grid { stroke: #dde2e7 } path { fill: none; stroke-width: 2 }"
             " .a { stroke: #1f5fd0 } .b { stroke: #c9480b } @media (prefers-color-scheme: dark) { text { fill: #9ba7b3 } .paper { fill: #14191e } .grid { stroke: #2a333b }"
             " .a { stroke: #7fadff } .b { stroke: #ff9d5c } }</style>",
             f'<rect class="paper" width="{width}" height="{height}"/>',
             f'<text x="{left}" y="20">held-out accuracy, by step</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += [f'<line class="grid" x1="{left}" x2="{right}" y1="{y(share):.0f}" y2="{y(share):.0f}"/>',
                  f'<text x="{left - 8}" y="{y(share) + 4:.0f}" text-anchor="end">{share:.0%}</text>']
    parts += [f'<text x="{x(step):.0f}" y="{bottom + 18}" text-anchor="middle">{step}</text>' for step in range(0, STEPS + 1, 10)]
    for (way, curve), style, place in zip(curves.items(), "ab", (0, 1)):
        line = " L".join(f"{x(step):.1f},{y(share):.1f}" for step, share in curve.items())
        parts += [f'<path class="{style}" d="M{line}"/>', f'<path class="{style}" d="M{right - 150},{bottom - 40 + 18 * place} h20"/>',
                  f'<text x="{right - 124}" y="{bottom - 36 + 18 * place}">{way}</text>']
    with open(path, "w") as out:
        out.write("\n".join([*parts, "</svg>"]) + "\n")


def refuses(r):
    folder = r.folder
    same = {"prompt": "p", "chosen": "a", "rejected": "a"}
    for name, lines in {"same.jsonl": [same] * 3, "lacks.jsonl": [{"prompt": "p", "chosen": "a"}], "long.jsonl": [{"prompt": "p" * 300, "chosen": "a", "rejected": "b"}] * 3,
                        "empty.jsonl": [{"prompt": "p", "chosen": "", "rejected": "b"}] * 3}.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "broken.jsonl").write_text("{\"chosen\"\n")
    tuning.make_base("gpt2", folder / "other")
    cases = [
        ({"data": "same.jsonl"}, "left out because both replies are equal"),
        ({"data": "lacks.jsonl"}, 'lacks.jsonl:1: "rejected" is missing'),
        ({"data": "broken.jsonl"}, "broken.jsonl:1: the JSON object that begins here does not end"),
        ({"data": "long.jsonl"}, "left out because the prompt alone has 64 tokens or more"),
        ({"data": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"dpo__loss_type": "[sigmoyd]"}, "the nearest is sigmoid"),
        ({"dpo__loss_type": "[sigmoid, sft]", "dpo__loss_weights": "[1]"}, "dpo.loss_weights has 1 number, but dpo.loss_type names 2"),
        ({"dpo__loss_type": "[sigmoid]", "dpo__loss_weights": "[many]"}, "dpo.loss_weights has many, which is no weight"),
        ({"dpo__loss_type": "[exo_pair]"}, "the loss exo_pair has no value without smoothing"),
        ({"dpo__loss_type": "[robust]", "dpo__label_smoothing": 0.5}, "takes half of the pairs or more as turned round"),
        ({"dpo__beta": 0}, "dpo.beta"),
        ({"dpo__max_length": 100}, "two texts of dpo.max_length 100 tokens do not fit into a row of train.max_seq_length 128"),
        ({"dpo__reference": folder / "other"}, "dpo.reference: "),
        ({"dpo__reference": folder / "nowhere"}, "dpo.reference: "),
        ({"lora__r": 4, "lora__dropout": 0.1}, "pairs are learned without dropout, as in TRL"),
        ({"data__packing": "wrapped"}, "data.packing wrapped cuts texts, and pairs stay whole"),
        ({"data__mixture": "[a, b]", "data__train_data_path": "null"}, "data.mixture has no meaning with task preferences"),
        ({"data__append_eos": "false"}, "data.append_eos has no meaning with task preferences"),
        ({"data__text_field": "body"}, "data.text_field has no meaning with task preferences"),
        ({"data": "."}, " is a folder, and a single file is read: name a file of pairs, or"),
        ({"objective__z_loss": 1e-4}, "objective.* has no meaning with task preferences"),
        ({"devices": 2, "mesh__cp": 2, "mesh__context": "ring"}, "replies of a pair are kept apart, which mesh.context ring cannot; leave mesh.context out"),
    ]
    for settings, sentence in cases:
        data = settings.pop("data", "pairs.jsonl")
        result = r.run(command(r, "refused", data, **settings))
        lines = [line for line in result.err.splitlines() if line]
        ring.check(result.code == 2 and sentence in result.err and len(lines) <= 3 and not (folder / "refused").exists(),
                   f"refused: {lines[0][:150] if lines else ''}", f"{settings} {sentence} {len(lines)} {(folder / 'refused').exists()}\n{result}")


def a_reference_is_checked_in_a_dry_run(r):
    """And a run's folder means its newest good checkpoint, as for a model."""
    for reference, sentence in ((r.folder / "other", "dpo.reference: "), (r.folder / "nowhere", "dpo.reference: ")):
        result = r.run([*command(r, "refused", dpo__reference=reference), "--dry_run"])
        ring.check(result.code == 2 and sentence in result.err and "a reference has the shape of the model" in result.err, "a dry run refuses it, too", str(result))
    (r.folder / "splits").mkdir()
    for name in ("train.jsonl", "val.jsonl"):
        (r.folder / "splits" / name).write_text('{"prompt": "p", "chosen": "a", "rejected": "b"}\n')
    result = r.run([*command(r, "refused", "splits", data__val_data_path=None), "--data", "TextFiles", "--dry_run"])
    ring.check(result.code == 2 and "take --data JSON for a folder with train.jsonl and val.jsonl" in result.err,
               "a dry run refuses a folder of splits where the run would not look for them", str(result))
    result = r.run([*command(r, "refused", dpo__reference=r.folder / "all"), "--dry_run"])
    ring.require(result.code == 0 and "planned peak" in result.out, "a dry run takes a run's folder as reference", str(result))
    losses = {}
    for name, reference in (("run", r.folder / "all"), ("checkpoint", r.folder / "all" / f"step-{STEPS:08}")):
        result = r.run(command(r, f"from-{name}", dpo__reference=reference, train__max_steps=1))
        ring.require(result.code == 0, f"a {name} as reference", str(result))
        losses[name] = ring.metrics(r.folder / f"from-{name}")[1]["loss"]
    ring.check(losses["run"] == losses["checkpoint"], "a run's folder as reference is its newest checkpoint", str(losses))
    first = r.run(command(r, "moves", train__max_steps=1))
    ring.require(first.code == 0, "a run that goes on with another reference", str(first))
    result = r.run([r.program, "pretrain", "--resume", str(r.folder / "moves"), "--dpo.reference", str(r.folder / "all"), "--train.max_steps", "2"])
    ring.check(result.code == 0 and "changed  dpo.reference" in result.out, "a reference that is named on the way is another one", str(result))


def adapters_have_their_rate(r):
    """The default of new adapters is that of an adapter to start from, too."""
    words = [word for pair in zip(command(r, "rates")[3::2], command(r, "rates")[4::2]) if pair[0] != "--optimizer.lr" for word in pair]
    for more in (["--lora.r", "4"], ["--lora.initial_adapter", str(r.folder / "adapters" / f"step-{STEPS:08}")]):
        result = r.run([r.program, "finetune_dpo", str(r.folder / "base"), *words, *more, "--train.max_steps", "1", "--overwrite", "true"])
        ring.check(result.code == 0 and ring.metrics(r.folder / "rates")[1]["lr"] == 1e-5, f"{more[0]}: the first rate is 1e-5", str(result))


def keeps_to_its_command(r):
    """A run goes on with what it learns: a command for something else does not do it in silence, nor take settings that it does not read."""
    folder = r.folder
    resume = lambda subcommand, run, *more: [r.program, subcommand, "--resume", folder / run, "--train.max_steps", str(STEPS + 1), *more]
    full = tuning.command(r, folder / "base", "refused", None, "pairs.jsonl", "finetune_full")
    for words, *said in (
            (resume("finetune_full", "all"), "is a run of task preferences, and trireme finetune_full is for task language", f"trireme pretrain --resume {folder / 'all'}"),
            (resume("finetune_lora", "adapters"), "is a run of task preferences, and trireme finetune_lora is for task language"),
            (resume("grpo", "all"), "is a run of task preferences, and trireme grpo is for task rewards"),
            (resume("pretrain", "all", "--task", "language"), "task was preferences, is language now", "a run keeps its task"),
            (resume("finetune_dpo", "all", "--lora.r", "4"), "trains all weights, and lora.r asks for adapters"),
            (command(r, "refused", lora__target_modules="[q_proj]"), "lora.target_modules is set, but this run has no adapters; give lora.r"),
            (command(r, "refused", grpo__beta=0.1), "grpo.beta is read with task rewards alone (trireme grpo), and this run has task preferences"),
            ([*full, "--dpo.beta", "0.1"], "dpo.beta is read with task preferences alone (trireme finetune_dpo), and this run has task language")):
        result = r.run(words)
        ring.check(result.code == 2 and all(part in result.err for part in said) and not (folder / "refused").exists(), f"refused: {result.err.strip()[:150]}", str(result))


def all_commands_refuse_alike(r):
    """What a run would not read is refused by the commands that show, plan or time one, in the words of those that train."""
    adapter = r.folder / "adapters" / f"step-{STEPS:08}"
    for words, said in (
            (["--lora.target_modules", "[q_proj]"], "lora.target_modules is set, but this run has no adapters; give lora.r"),
            (["--grpo.beta", "0.1"], "grpo.beta is read with task rewards alone (trireme grpo), and this run has task language; set task rewards, or leave grpo.beta out"),
            (["--reward.pattern", "x"], "reward.pattern is read with task rewards alone (trireme grpo), and this run has task language"),
            (["--dpo.beta", "0.1"], "dpo.beta is read with task preferences alone (trireme finetune_dpo), and this run has task language"),
            (["--lora.initial_adapter", adapter, "--lora.r", "4"], f"lora.r is set, but the adapter in {adapter} has a configuration of its own")):
        for command in ("pretrain", "plan", "explain memory", "explain schedule", "explain mesh", "explain config", "bench train", "bench scaling"):
            result = r.run([r.program, *command.split(), r.folder / "base", "--train.max_steps", "1", *words])
            ring.check(result.code == 2 and said in result.err, f"{command} {words[0]} is refused", str(result))


def needs_its_reference(r):
    """Without the model before training there is nothing to compare with."""
    (r.folder / "base").rename(r.folder / "moved")
    result = r.run([r.program, "finetune_dpo", "--resume", r.folder / "all", "--train.max_steps", str(STEPS + 1)])
    ring.check(result.code == 2 and "compares what it learns with it" in result.err and "--dpo.reference" in result.err,
               "a run is not continued without the model that it compares with", str(result))


def main():
    with ring.Ring(sys.argv[1]) as r:
        tuning.make_base("llama 2", r.folder / "base")
        (r.folder / "base" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        write_pairs(r.folder / "pairs.jsonl", 320, 3)
        write_pairs(r.folder / "held-out.jsonl", 100, 4)
        curves = learns(r)
        if sys.argv[2:]:
            draw(curves, sys.argv[2])
        scores(r)
        refuses(r)
        a_reference_is_checked_in_a_dry_run(r)
        adapters_have_their_rate(r)
        keeps_to_its_command(r)
        all_commands_refuse_alike(r)
        needs_its_reference(r)


main()
