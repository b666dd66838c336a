"""A rank or the launcher of trireme generate --prompts is killed, again and again; the same command goes on at once, and
every text is in the file once, with the bits of a run that nobody killed.

generate_killed.py TRIREME MODEL_PROBE
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import ring

ROUNDS = 12 if ring.SLOW else 2  # for each victim
PROMPTS = 100 if ring.SLOW else 40
# The words of a mesh, and the texts for each prompt: data ranks write many times as many as tensor-parallel ones between two kills.
MESHES = ((["--devices", 2], 80 if ring.SLOW else 6), (["--devices", 2, "--mesh.tp", 2], 6))


def lines_of(file):
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def count_of(file):
    return file.read_bytes().count(b"\n") if file.exists() else 0


def kill_when_it_writes(r, command, out, victim, draw):
    """Starts the command and kills the victim once a few more texts are there; False if the command ended before."""
    before, more = count_of(out), draw.randint(1, 60)
    job = subprocess.Popen(command, cwd=r.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ring.environment())
    while job.poll() is None and count_of(out) < before + more:
        time.sleep(0.005)
    if job.poll() is not None:
        return False
    if victim == "launcher":
        job.kill()
    else:
        ranks = [pid for pid in r.processes() if pid != job.pid and "RANK" in environment_of(pid)]
        if ranks:
            os.kill(draw.choice(ranks), signal.SIGKILL)
    code = job.wait(60)
    ring.require(code != 0, f"a command whose {victim} was killed says so", str(code))
    return True


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return [entry.split(b"=")[0].decode() for entry in file.read().split(b"\0")]
    except OSError:
        return []


with ring.Ring(sys.argv[1]) as r:
    run = r.train("run", model=ring.LLAMA | {"max_position_embeddings": 128}, train__max_steps=2)
    draw = random.Random(5)
    file = r.folder / "prompts.jsonl"
    text = r.text.read_text()
    file.write_text("".join(json.dumps({"prompt": text[at:at + draw.randint(1, 30)]}) + "\n" for at in range(0, 4 * PROMPTS, 4)))
    for mesh, samples in MESHES:
        words = [r.program, "generate", run, "--prompts", file, "--samples", samples, "--max_new_tokens", 60, "--batch_size", 4, *mesh]
        whole = r.folder / "whole.jsonl"
        result = r.run([str(w) for w in [*words, "--output", whole]])
        ring.require(result.code == 0, "the whole command succeeds", str(result))
        want = lines_of(whole)
        ring.require([(t["index"], t["sample"]) for t in want] == [(i, s) for i in range(PROMPTS) for s in range(samples)],
                     f"{PROMPTS * samples} texts", str(len(want)))
        for victim in ("rank", "launcher"):
            out = r.folder / f"{victim}.jsonl"
            command, kills = [str(w) for w in [*words, "--output", out]], 0
            while kills < ROUNDS and kill_when_it_writes(r, command, out, victim, draw):
                kills += 1
            there = count_of(out)
            result = r.run(command)
            ring.require(result.code == 0, "the last command succeeds", str(result))
            beside = re.search(r"(?:beside|nothing to write:) ([\d,]+) (?:texts? |that )w(?:as|ere) there", result.err)
            ring.require(beside and int(beside[1].replace(",", "")) >= there, f"{there} texts are not written again", str(result))
            ring.check(kills == ROUNDS and lines_of(out) == want,
                       f"{' '.join(map(str, mesh))}: {kills} times a {victim} was killed, at last with {there} of {len(want)} texts, and each is there once", str(there))
            out.unlink()
        whole.unlink()
