"""The samples of every step depend on settings and data alone: not on ranks, workers, kills or resumes.

data_order.py TRIREME

TRIREME_SLOW=1: 100 steps straight against 37, kill -9 and a resume elsewhere; otherwise 30 against 9.
"""

import json
import os
import random
import re
import signal
import sys

import ring

STEPS, KILL_AFTER = (100, 37) if ring.SLOW else (30, 9)
BATCH = 12


def ledger(out):
    """{(step, micro-batch): (samples, checksum)} of all ranks; what a run did twice it must have done alike."""
    found = {}
    for path in sorted((out / "ledger").glob("rank*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            key = row["step"], row["micro_batch"]
            value = json.dumps(row["samples"]), row["checksum"]
            ring.require(found.setdefault(key, value) == value or not row["samples"], f"{path}: step and micro-batch {key} always the same")
    return {key: value for key, value in found.items() if value[0] != "[]"}


def write_sources(r):
    """Two texts of many documents; the second is small, so that a run sees it several times."""
    source = random.Random(3)
    for name, documents in (("large", 400), ("small", 60)):
        with open(r.folder / f"{name}.jsonl", "w") as out:
            for _ in range(documents):
                text = " ".join(source.choice(ring.WORDS) for _ in range(source.randint(1, 40)))
                out.write(json.dumps({"text": text}) + "\n")
    (r.folder / "mixture.yaml").write_text(
        "data:\n  mixture:\n    - {path: large.jsonl, weight: 0.75}\n    - {path: small.jsonl, weight: 0.25}\n")


def command(r, out, **settings):
    values = {"train__global_batch_size": BATCH, "train__max_steps": STEPS, "train__save_interval": 10 if ring.SLOW else 5,
              "data__ledger": "true", "eval__final_validation": "false"} | settings
    words = r.command(out, **values)
    if "data__mixture" not in settings and settings.get("mixed", True):
        at = words.index("--data.train_data_path")
        del words[at:at + 2]
        words += ["--config", str(r.folder / "mixture.yaml")]
    return [word for word in words if word not in ("--mixed", "True", "False")]


def straight(r, name, **settings):
    result = r.run(command(r, name, **settings))
    ring.require(result.code == 0, f"the run {name} succeeds", str(result))
    return ledger(r.folder / name)


def steps_of(out):
    """Steps in metrics.jsonl, whose last line may be half written."""
    path = out / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def killed_and_resumed(r, name, first, then, **settings):
    """kill -9 of a rank after KILL_AFTER steps; goes on from the newest checkpoint with other ranks and workers."""
    out = r.folder / name
    launcher = r.start(command(r, name, **settings, **first))
    ring.wait_for(lambda: steps_of(out) >= KILL_AFTER, f"{KILL_AFTER} steps", interval=0.002)
    for pid in r.ranks(first["devices"])[-1:] if first["devices"] > 1 else r.processes():
        os.kill(pid, signal.SIGKILL)
    done = r.finish(launcher)
    reached = steps_of(out)
    ring.require(done.code in (128 + signal.SIGKILL, -signal.SIGKILL) and reached < STEPS, f"{name}: killed before its end", str(done))
    result = r.run(command(r, name, **settings, **then, resume="true"))
    ring.require(result.code == 0, f"{name}: goes on", str(result))
    at = int(re.search(r"resumed .* at step (\d+)", result.out)[1])
    return ledger(out), reached, at


def compare(want, got, what):
    ring.require(sorted(want) == sorted(got), f"{what}: the same steps and micro-batches", f"{len(want)} and {len(got)}")
    different = [key for key in want if want[key] != got[key]]
    ring.check(not different, f"{what}: identical sample ids and tokens in each of {STEPS} steps", str(different[:3]))


def any_ranks_and_workers(r, packing):
    settings = {"data__packing": packing, "data__reset_attention_mask": "true" if packing == "best_fit" else "false"}
    want = straight(r, f"straight-{packing}", devices=1, data__num_workers=1, **settings)
    ring.require(len(want) == STEPS * BATCH, "the ledger has every micro-batch")
    ways = [({"devices": 1, "data__num_workers": 1}, {"devices": 2, "data__num_workers": 3}),
            ({"devices": 2, "data__num_workers": 2}, {"devices": 1, "data__num_workers": 0})]
    if ring.SLOW:
        ways += [({"devices": 3, "data__num_workers": 0}, {"devices": 4, "data__num_workers": 8}),
                 ({"devices": 2, "mesh.pp": 2}, {"devices": 2, "strategy": "no_shard", "data__num_workers": 4})]
    for number, (first, then) in enumerate(ways if packing == "wrapped" or ring.SLOW else ways[:1]):
        got, reached, at = killed_and_resumed(r, f"killed-{packing}-{number}", first, then, **settings)
        compare(want, got, f"{packing}: {first['devices']} ranks killed at step {reached}, resumed at {at} on {then['devices']}, "
                f"workers {first.get('data__num_workers', 1)} and {then['data__num_workers']}")
    return want


def mixture_has_its_shares(want):
    """Of every prefix of the run."""
    samples = sorted((s for rows, _ in want.values() for s in json.loads(rows)), key=lambda s: s["sample"])
    small = 0
    for count, sample in enumerate(samples, 1):
        small += sample["parts"][0]["source"].endswith("small.jsonl")
        ring.require(abs(small - count / 4) <= 0.5 + 1e-9, f"after {count} samples {small} are of the source with a quarter")
    ring.check(samples[-1]["sample"] + 1 == len(samples), f"of each of {len(samples)} prefixes a quarter is of the smaller source")


def epochs_cover_each_sample_once(r):
    out = r.run(command(r, "epochs", devices=2, mixed=False, data__train_data_path=r.folder / "small.jsonl", train__global_batch_size=4,
                        data__packing="best_fit", train__max_steps="null", train__epochs=3, train__save_interval=0))
    ring.require(out.code == 0, "three epochs", str(out))
    epochs = {}
    for rows, _ in ledger(r.folder / "epochs").values():
        for sample in json.loads(rows):
            epochs.setdefault(sample["epoch"], []).append(sample["index"])
    total = max(max(indices) for indices in epochs.values()) + 1
    for epoch in range(2):
        ring.check(sorted(epochs[epoch]) == list(range(total)), f"epoch {epoch}: each of {total} samples once")
    ring.check(len(set(epochs[2])) == len(epochs[2]) > total - 4, "the last epoch, as far as whole batches go, repeats none")


def the_ledger_command_says_the_same(r, want):
    for step in (1, KILL_AFTER, STEPS):
        words = command(r, "straight-wrapped", devices=1, data__packing="wrapped", data__reset_attention_mask="false")
        line = [r.program, "data", "ledger", *words[2:], "--step", str(step), "--json"]
        result = r.run(line)
        listed = [json.loads(row) for row in result.out.splitlines()]
        trained = [s for micro in range(BATCH) for s in json.loads(want[step, micro][0])]
        ring.check(result.code == 0 and listed == trained, f"trireme data ledger lists step {step} as it was trained", str(result))
    result = r.run([r.program, "data", "ledger", *words[2:], "--step", "2"])
    ring.check(result.code == 0 and f"step 2: samples {BATCH} to {2 * BATCH - 1}, " in result.out and "document" in result.out,
               "and for people", str(result))
    print(result.out[:600])
    result = r.run([r.program, "data", "ledger", *words[2:], "--step", "2", "--task", "preferences"])
    ring.check(result.code == 2 and "lists the samples of task language" in result.err, "another task's samples are not listed", str(result))
    result = r.run([r.program, "data", "ledger", *words[2:], "--step", "2", "--model.num_labels", "2"])
    ring.check(result.code == 2 and "lists the samples of task language" in result.err, "nor those of a model with labels", str(result))
    result = r.run([r.program, "data", "ledger", *words[2:]])
    ring.check(result.code == 2 and "needs --step N" in result.err, "without a step it says what it needs", str(result))


def the_ledger_command_follows_a_resume(r):
    """With another batch, samples are counted from the checkpoint on."""
    common = {"devices": 1, "data__reset_attention_mask": "false"}
    straight(r, "other-batch", **common, train__global_batch_size=4, train__max_steps=6)
    now = ["--train.global_batch_size", "8", "--train.max_steps", "9"]
    result = r.run([r.program, "pretrain", "--resume", "other-batch", *now, "--devices", "1"])
    ring.require(result.code == 0, "goes on with another batch", str(result))
    trained = ledger(r.folder / "other-batch")
    at = ["--resume", "other-batch/step-00000006"]
    for step, words, batch in ((8, [*at, *now], 8), (3, at, 4)):
        result = r.run([r.program, "data", "ledger", *words, "--step", str(step), "--json"])
        rows = [s for key in sorted(key for key in trained if key[0] == step) for s in json.loads(trained[key][0])]
        ring.check(result.code == 0 and len(rows) == batch and [json.loads(row) for row in result.out.splitlines()] == rows,
                   f"trireme data ledger {' '.join(words)} lists step {step} as it was trained", str(result))
    result = r.run([r.program, "data", "ledger", "--resume", "other-batch", "--step", "8"])
    ring.check(result.code == 2 and "error: step 8 lies before other-batch/step-00000009" in result.err and "--resume CHECKPOINT" in result.err,
               "a step whose batches are not known is refused", str(result))


def other_data_is_refused(r):
    common = {"devices": 1, "data__packing": "wrapped", "resume": "true", "train__max_steps": STEPS + 2, "data__reset_attention_mask": "false"}
    for change, named in (({"data__seed": 7}, "data.seed was 42 and is 7"),
                          ({"train__max_seq_length": 16}, "train.max_seq_length was 32 and is 16"),
                          ({"data__packing": "best_fit"}, "data.packing was wrapped and is best_fit"),
                          ({"data__mixture": "[0.5 large.jsonl, 0.5 small.jsonl]"}, "the weights of data.mixture was 0.75, 0.25 and is 0.5, 0.5")):
        settings = common | change
        words = command(r, "straight-wrapped", **settings)
        if "data__mixture" in change:
            at = words.index("--data.train_data_path")
            del words[at:at + 2]
        result = r.run(words)
        ring.check(result.code == 2 and named in result.err and "--data.on_change restart" in result.err, f"refused: {named}", str(result))
    result = r.run(command(r, "straight-wrapped", **common, data__seed=7, data__on_change="restart"))
    ring.check(result.code == 0 and "order    begins at sample 0 of the new data: data.seed was 42 and is 7" in result.out,
               "--data.on_change restart begins the new order at its first sample, and says so", str(result))
    rows = [json.loads(line) for line in (r.folder / "straight-wrapped/ledger/rank0.jsonl").read_bytes().splitlines()]
    first = [row for row in rows if row["step"] == STEPS + 1]
    ring.check(first[0]["samples"][0]["sample"] == 0, f"step {STEPS + 1} learned from sample 0")


def bad_mixtures_are_refused(r):
    for mixture, sentence in (("[0.5 large.jsonl, small.jsonl]", "gives 1 of 2 sources a weight"),
                              ("[0 large.jsonl, 1 small.jsonl]", "the weight of large.jsonl must be above 0"),
                              ("[0.5 large.jsonl, 0.5 lost.jsonl]", "lost.jsonl")):
        words = command(r, "bad", devices=1, data__mixture=mixture)
        at = words.index("--data.train_data_path")
        result = r.run(words[:at] + words[at + 2:])
        ring.check(result.code == 2 and sentence in result.err and not (r.folder / "bad").exists(), f"refused: {sentence}", str(result))
        for other in ([*words[:at], *words[at + 2:], "--dry_run"], [r.program, "explain", "memory", *words[2:at], *words[at + 2:]]):
            result = r.run(other)
            ring.check(sentence == "lost.jsonl" or result.code == 2 and sentence in result.err, f"by {other[1]} {other[-1]}, too", str(result))
    (r.folder / "odd.yaml").write_text("data:\n  mixture:\n    - {file: large.jsonl}\n")
    words = command(r, "bad", devices=1)
    words[words.index(str(r.folder / "mixture.yaml"))] = str(r.folder / "odd.yaml")
    result = r.run(words)
    ring.check(result.code == 2 and "data.mixture has an item that is a map" in result.err and "it takes paths, or {path: PATH, weight: NUMBER}" in result.err, "refused: a source without a path", str(result))
    result = r.run(command(r, "bad", devices=1, data__mixture="[0.5 large.jsonl, 0.5 small.jsonl]"))
    ring.check(result.code == 2 and "both say what to learn from" in result.err, "refused: a mixture beside one path", str(result))
    result = r.run(command(r, "bad", devices=2, mesh__cp=2, mesh__context="ring", data__reset_attention_mask="true"))
    ring.check(result.code == 2 and "data.reset_attention_mask keeps each document to itself, which mesh.context ring cannot" in result.err, "refused: documents apart in a ring", str(result))


with ring.Ring(sys.argv[1]) as r:
    write_sources(r)
    want = any_ranks_and_workers(r, "wrapped")
    mixture_has_its_shares(want)
    the_ledger_command_says_the_same(r, want)
    the_ledger_command_follows_a_resume(r)
    any_ranks_and_workers(r, "best_fit")
    epochs_cover_each_sample_once(r)
    other_data_is_refused(r)
    bad_mixtures_are_refused(r)
