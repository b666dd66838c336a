"""The comparison with transformers sees every mistake: changed folders move our logits, or are refused, or are inert."""

import json
import random
import shutil

import mutations
import probe
import ring

MOVED = 20 * 1e-4   # standard deviations of the logits: twenty times what architectures.py allows
SAMPLE = 4          # of each model's fields and swaps, where not all are asked for
AT_ONCE = 200       # folders, and jobs of one probe
PATHS = ("generated", "trained")


class Proof:
    def __init__(self, ask, folder):
        self.ask, self.folder = ask, folder / "mutated"
        self.count = {"moved": 0, "refused": 0, "inert": 0}
        self.least = float("inf")

    def of_models(self, models):
        work = [(model, m) for model in models for m in self.mutations_of(model)]
        plain = self.ask([probe.job(m.name, m.folder, m.tokens[:1], generated=True, trained=True) for m in models])
        for first in range(0, len(work), AT_ONCE):
            self.judge(work[first:first + AT_ONCE], plain)
        ring.check(True, f"of {len(work)} changed fields and swapped tensors {self.count['moved']} move the logits by at least "
                   f"{self.least:.1e} standard deviations (at least {MOVED:.0e} wanted), {self.count['refused']} are refused by name, "
                   f"{self.count['inert']} are inert as listed")

    def mutations_of(self, model):
        config = json.loads((model.folder / "config.json").read_text())
        older = config["model_type"] not in ("phi3", "gpt_neox")  # older files of these have words of their own
        fields = [*mutations.of_config(config), *(mutations.of_config(mutations.in_older_words(config)) if older else ())]
        unknown = [m.name for m in fields if m.config is None]
        ring.require(not unknown, f"{model.name}: every field of config.json is in a table of mutations.py", str(unknown))
        swaps = mutations.swaps(model.folder / "model.safetensors")
        ring.require(len(swaps) > 50, f"{model.name}: tensors of one shape", str(swaps))
        if ring.SLOW:
            return fields + swaps
        source = random.Random(model.name)
        return source.sample(fields, SAMPLE) + source.sample(swaps, SAMPLE)

    def judge(self, work, plain):
        self.folder.mkdir()
        jobs = []
        for number, (model, m) in enumerate(work):
            folder = mutations.folder_with(model.folder, self.folder / str(number), m.config, m.swap)
            jobs.append(probe.job(str(number), folder, model.tokens[:1], generated=True, trained=True))
        replies = self.ask(jobs)
        for number, (model, m) in enumerate(work):
            self.judge_one(model, m, replies[str(number)], plain[model.name])
        shutil.rmtree(self.folder)

    def judge_one(self, model, m, reply, plain):
        what = f"{model.name}: {m.name}"
        if "error" in reply:
            ring.require(not m.inert, f"{what} is inert, as listed", reply["error"])
            ring.require(m.swap is None and m.is_named_by(reply["error"]), f"{what} is refused by name", reply["error"])
            self.count["refused"] += 1
            return
        distance = [((reply[p] - plain[p]).abs().max() / plain[p].std()).item() if reply[p].shape == plain[p].shape else
                    float("inf") for p in PATHS]
        if m.inert or m.idle:
            ring.require(max(distance) == 0, f"{what} is inert, as listed", f"moves the logits by {distance}")
            self.count["inert"] += 1
            return
        ring.require(min(distance) >= MOVED, f"{what} moves the logits", f"by {distance} standard deviations, less than {MOVED}")
        self.count["moved"] += 1
        self.least = min(self.least, *distance)
