"""Keys of other systems whose effect is on losses have it: runs of three steps with and without the key differ.

effects.py TRIREME
Reads the lines of effects.txt that say "loss" (effects_test.cpp reads the others). TRIREME_SLOW=1 tries all of them,
otherwise a seeded sample.
"""

import json
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
import ring

LINES = pathlib.Path(__file__).with_name("effects.txt").read_text().splitlines()
SHAPE = [f"--model.{key}={value}" for key, value in ring.LLAMA.items()]
REST = ["--devices=1", "--data=TextFiles", "--train.max_seq_length=32", "--train.max_steps=3", "--launch.threads_per_rank=1",
        "--precision=32-true", "--eval.final_validation=false"]
SAMPLE = 4


def words_of(line):
    return [word.replace("\\ ", " ") for word in re.split(r"(?<!\\) +", line.strip())]


def effects():
    """(line, dialect, keys without it, key, value) of each line about losses."""
    for line in LINES:
        if line.startswith("["):
            head, base = line[1:].split("] ", 1)
            dialect, base = head.split()[0], dict(word.split("=", 1) for word in words_of(base))
        elif line.endswith(": loss"):
            keys, tried = dict(base), None
            for word in words_of(line.split(" -> ")[0]):
                if word.startswith("!"):
                    keys.pop(word[1:], None)
                elif tried is None:
                    tried = word.split("=", 1)
                else:
                    keys.update([word.split("=", 1)])
            yield line, dialect, keys, *tried


def tree_of(keys):
    tree = {}
    for key, value in keys.items():
        *maps, leaf = key.split(".")
        at = tree
        for name in maps:
            at = at.setdefault(name, {})
        at[leaf] = json.loads(value)
    return tree


class Runs:
    def __init__(self, r):
        self.ring, self.known = r, {}

    def curve(self, dialect, keys):
        """Losses and norms of three steps; a run that was made is not made again."""
        name = json.dumps([dialect, keys], sort_keys=True)
        if name not in self.known:
            out = f"run{len(self.known)}"
            result = self.ring.run([self.ring.program, "pretrain", *self.words(dialect, dict(keys), out), *REST,
                                    f"--data.train_data_path={self.ring.text}", f"--out_dir={self.ring.folder / out}"])
            ring.require(result.code == 0, f"a run with {name}", str(result))
            self.known[name] = [(row["loss"], row["grad_norm"]) for row in ring.metrics(self.ring.folder / out).values()]
            ring.require(len(self.known[name]) == 3, "three steps have metrics", str(result))
        return self.known[name]

    def words(self, dialect, keys, out):
        if dialect == "hydra":
            keys |= {"model.mesh_shape": '[[1],["fsdp"]]'}
            for key in ("training.max_steps", "train.lr_warmup_steps"):
                keys.pop(key)
            return [*(f"{key}={json.loads(value) if value.startswith(chr(34)) else value}" for key, value in keys.items()), *SHAPE,
                    "--train.lr_warmup_steps=0"]
        path = self.ring.folder / (out + (".json" if dialect == "deepspeed" else ".yaml"))
        path.write_text(json.dumps(tree_of(keys)))
        own_shape = dialect == "free-transformer"
        return [*([] if own_shape else ["llama-5m", *SHAPE]), "--config", str(path), "--train.lr_warmup_steps=0"]


with ring.Ring(sys.argv[1]) as r:
    runs, found = Runs(r), list(effects())
    ring.require(len(found) > 20, "effects.txt has lines about losses")
    for line, dialect, keys, key, value in found if ring.SLOW else random.Random(24).sample(found, SAMPLE):
        without, with_it = runs.curve(dialect, keys), runs.curve(dialect, keys | {key: value})
        ring.check(without != with_it, f"{dialect} {key} {value} changes losses or norms", f"{line}\n{without}")
