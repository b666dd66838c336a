"""LitGPT's own reader (jsonargparse over its functions) agrees with ours on its files and flags.

litgpt_judge.py TRIREME
Files of the config hub's shape and command lines are drawn at random. Compared are batches, accumulation, schedule,
optimizer, precision, ranks, evaluation and adapters; of files also LitGPT's defaults. TRIREME_SLOW=1 draws 200.
"""

import json
import random
import sys

import judging
import ring

_, litgpt_pretrain, litgpt_full, litgpt_lora = ring.judges("jsonargparse", "litgpt.pretrain", "litgpt.finetune.full", "litgpt.finetune.lora")
from jsonargparse import ArgumentParser

COMMANDS = {"pretrain": litgpt_pretrain.setup, "finetune_full": litgpt_full.setup, "finetune_lora": litgpt_lora.setup}
SAME_NAMES = ["train.save_interval", "train.log_interval", "train.global_batch_size", "train.micro_batch_size", "train.lr_warmup_steps",
              "train.max_tokens", "train.max_steps", "train.epochs", "train.max_seq_length", "train.max_norm", "train.min_lr", "eval.interval",
              "eval.max_iters", "eval.initial_validation", "eval.final_validation", "devices", "num_nodes", "precision", "seed", "out_dir"]


def reader(command):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_function_arguments(COMMANDS[command], as_positional=False)
    return parser


def maybe(draw, keys, key, values, chance=0.6):
    if draw.random() < chance:
        keys[key] = draw.choice(values)


def draw_keys(draw, command):
    devices, nodes, micro, steps = draw.choice([1, 2, 4, 8]), draw.choice([1, 1, 1, 2]), draw.choice([1, 2, 4, 8]), draw.choice([1, 2, 4])
    keys = {"devices": devices, "num_nodes": nodes, "train.global_batch_size": devices * nodes * micro * steps, "train.micro_batch_size": micro}
    keys |= {"model_name": "tiny-llama-1.1b", "train.max_tokens": draw.choice([1000000000, 3000000000000])} if command == "pretrain" else {
        "checkpoint_dir": "llama-32m", "train.epochs": draw.choice([1, 5])}
    maybe(draw, keys, "train.save_interval", [100, 800])
    maybe(draw, keys, "train.log_interval", [1, 10])
    maybe(draw, keys, "train.lr_warmup_steps", [0, 10, 1000])
    maybe(draw, keys, "train.max_seq_length", [256, 512])
    maybe(draw, keys, "train.min_lr", [0.0, 1e-5])
    maybe(draw, keys, "eval.interval", [50, 600])
    maybe(draw, keys, "eval.max_iters", [10, 100])
    maybe(draw, keys, "eval.initial_validation", [True, False])
    maybe(draw, keys, "eval.final_validation", [True, False])
    maybe(draw, keys, "precision", ["bf16-true", "bf16-mixed", "32-true"])
    maybe(draw, keys, "seed", [1, 1337])
    maybe(draw, keys, "out_dir", ["out/a", "out/b"])
    if command == "pretrain":
        maybe(draw, keys, "train.max_norm", [0.5, 1.0])
        maybe(draw, keys, "train.max_steps", [100, 5000])
    if command == "finetune_lora":
        keys["lora_r"] = draw.choice([4, 16])  # explain's default trains no adapters
        for key, values in [("lora_alpha", [16, 32]), ("lora_dropout", [0.0, 0.1]), ("lora_mlp", [True]), ("lora_key", [True, False])]:
            maybe(draw, keys, key, values)
    init = {}
    for key, values in [("lr", [1e-3, 4e-4]), ("weight_decay", [0.0, 0.1]), ("betas", [[0.9, 0.95]])]:
        maybe(draw, init, key, values)
    return keys, init


def tree_of(keys, init):
    tree = {"optimizer": {"class_path": "torch.optim.AdamW", "init_args": init}} if init else {}
    for key, value in keys.items():
        *maps, leaf = key.split(".")
        (tree.setdefault(maps[0], {}) if maps else tree)[leaf] = value
    return tree


def flags_of(keys, init):
    words = ["--optimizer=AdamW", *(f"--optimizer.{key}={json.dumps(value)}" for key, value in init.items())] if init else []
    return words + [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in keys.items()]


def get(arguments, key):
    for name in key.split("."):
        arguments = getattr(arguments, name, None)
    return arguments


def what_litgpt_reads(parser, words, names):
    arguments = parser.parse_args(words)
    found = {key: value for key in names if (value := get(arguments, key)) is not None and value != "auto"}
    found = {key: str(value) if key == "out_dir" else value for key, value in found.items()}
    train = parser.instantiate_classes(arguments).train
    found["train.micro_batch_size"] = train.micro_batch_size
    found["accumulation"] = train.gradient_accumulation_iters(arguments.devices, arguments.num_nodes)
    for key in names:
        if key.startswith("lora_"):
            found["lora." + key[5:]] = found.pop(key)
    return found


def with_optimizer(found, init):
    return found | {f"optimizer.{key}": value for key, value in init.items() if key != "betas"}


with ring.Ring(sys.argv[1]) as r:
    native = set(judging.re.findall(r"^\| `([^`]+)` \|", (judging.ROOT / "docs/settings.md").read_text(), judging.re.M))
    for command in COMMANDS:
        keys = {action.dest for action in reader(command)._actions} - {"help", "config", "print_config", "data.help", "train", "eval", "log"}
        judging.require_all_known("litgpt", keys, native)
    draw, compared = random.Random(24), 0
    for number in range(judging.COUNT):
        command = draw.choice(list(COMMANDS))
        keys, init = draw_keys(draw, command)
        path = r.folder / f"file{number}.yaml"
        path.write_text(json.dumps(tree_of(keys, init)))  # which is YAML too
        given = [key for key in keys if key in SAME_NAMES or key.startswith("lora_")]
        if draw.random() < 0.5:
            if command != "pretrain":  # its fine-tuning commands take it, and do not read it
                given = [key for key in given if key != "train.min_lr"]
            # Defaults are those of the subcommand, and explain's is pretrain.
            theirs = what_litgpt_reads(reader(command), ["--config", str(path)], SAME_NAMES if command == "pretrain" else given)
            if "lr" not in init and command == "pretrain":
                theirs["optimizer.lr"] = 1e-3  # torch.optim.AdamW's
            if "precision" not in keys:
                theirs.pop("precision", None)
            ours = judging.what_we_read(r, "--config", str(path))
        else:
            theirs = what_litgpt_reads(reader(command), flags_of({k: v for k, v in keys.items()}, {}), given)
            ours = judging.what_we_read(r, *flags_of(keys, init))
        ring.require(isinstance(ours, dict), f"{path.name} is taken", f"{path.read_text()}\n{ours}")
        accumulation = int(ours["train.global_batch_size"].replace(",", "")) // (keys["devices"] * keys["num_nodes"]) // int(ours["train.micro_batch_size"])
        compared += judging.compare(ours | {"accumulation": str(accumulation)}, with_optimizer(theirs, init), path)
    ring.check(True, f"LitGPT's reader and Trireme's agree on {compared} values of {judging.COUNT} files and command lines")
