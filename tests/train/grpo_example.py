"""examples/grpo/sums runs as its first lines say, with all weights and with adapters. It is a few steps here, so that nothing is
learned.

grpo_example.py TRIREME
"""

import json
import os
import pathlib
import subprocess
import sys

import ring

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines_of(file):
    return [json.loads(line) for line in file.read_bytes().splitlines()]


with ring.Ring(sys.argv[1]) as r:
    for name, more in (("weights", {}), ("adapters", {"ADAPTERS": "1"})):
        out = r.folder / name
        done = subprocess.run([ROOT / "examples/grpo/sums", "--train.max_steps", "2"], capture_output=True, text=True, timeout=200,
                              env=ring.environment(TRIREME=r.program, TRIREME_OUT=str(out), BASE_STEPS="8", SEED="3", **more))
        ring.require(done.returncode == 0, f"{name}: the script ends well", done.stdout + done.stderr)
        learned, held_out = lines_of(out / "sums.jsonl"), lines_of(out / "held_out.jsonl")
        prompts = [row["prompt"] for row in learned + held_out]
        right = sum(eval(row["prompt"][:-1]) == int(row["answer"]) for row in learned + held_out)
        ring.check(len(held_out) == 256 and right == len(set(prompts)) == 8100, f"{name}: each of 8,100 sums is asked for once, 256 of them held out")
        wrong = [eval(line.split("=")[0]) - int(line.split("=")[1].rstrip(".")) for line in (out / "text.txt").read_text().split()]
        asked = {line.split("=")[0] + "=" for line in (out / "text.txt").read_text().split()}
        ring.check(set(wrong) == {0, 1} and 0.78 < sum(wrong) / len(wrong) < 0.82 and not asked & {row["prompt"] for row in held_out},
                   f"{name}: four of five results in the text are too small by one, and no held-out sum is there")
        rows = ring.metrics(out / "rewards")
        ring.check("held out, before training:  val_reward" in done.stdout and sorted(rows) == [1, 2] and "val_reward" in rows[2]["measures"],
                   f"{name}: the start and the end are judged", done.stdout[-2000:])
