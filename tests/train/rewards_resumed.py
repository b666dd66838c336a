"""trireme grpo stops while answers are written, and goes on with other prompts, other settings and what it must not change.

rewards_resumed.py TRIREME
"""

import json
import re
import signal
import sys
import time

import ring

SMALL = ring.LLAMA | {"max_position_embeddings": 4096}


def write_prompts(r, name, count):
    file = r.folder / name
    file.write_text("".join(json.dumps({"prompt": " ".join(ring.WORDS[(5 * i + k) % len(ring.WORDS)] for k in range(1 + i % 2)), "answer": "e"}) + "\n" for i in range(count)))
    return file


class Learner:
    def __init__(self, r):
        self.r = r
        self.base = r.train("base", model=SMALL, train__max_steps=1, train__max_seq_length=64)
        self.prompts = write_prompts(r, "prompts.jsonl", 8)

    def command(self, out, **settings):
        values = {"devices": 1, "precision": "32-true", "out_dir": self.r.folder / out, "grpo.prompts": self.prompts, "grpo.batch_size": 4, "grpo.num_generations": 2,
                  "grpo.num_iterations": 2, "grpo.max_prompt_length": 24, "grpo.max_completion_length": 6, "reward.functions": "[length]", "reward.length": 3, "train.epochs": 1,
                  "train.lr_warmup_steps": 0, "optimizer.lr": 1e-4, "launch.threads_per_rank": 1, "comm.timeout": "60s"}
        values |= {k.replace("__", "."): v for k, v in settings.items()}
        return [self.r.program, "grpo", str(self.base), *ring.options(values)]

    def steps(self, out):
        return sorted(ring.metrics(self.r.folder / out))


def a_stop_does_not_wait_for_answers(l):
    """Texts of thousands of tokens, of which none would be finished in the time that a stop leaves."""
    r = l.r
    long = dict(grpo__max_completion_length=4000, grpo__num_generations=64, grpo__temperature=0.01, launch__grace="2s", train__max_steps=1)
    for name, settings in (("one rank", {}), ("two ranks", {"devices": 2, "strategy": "full_shard"}), ("tensor-parallel ranks", {"devices": 2, "mesh.tp": 2}), ("stages", {"devices": 2, "mesh.pp": 2}),
                           ("held-out prompts", {"grpo.val_prompts": l.prompts, "eval.initial_validation": "true", "grpo.eval_samples": 64})):
        out = name.replace(" ", "-")
        job = r.start(l.command(out, **(long | settings)))
        ring.wait_for(lambda: "rollout  " in (r.folder / "start.out").read_text(), "it begins", detail=lambda: (r.folder / "start.err").read_text())
        time.sleep(1.5)
        asked = time.monotonic()
        job.send_signal(signal.SIGTERM)
        result = r.finish(job)
        took = time.monotonic() - asked
        ring.check(result.code == 75 and took < 15 and "stopped before the first step" in result.text, f"{name}: a stop ends the writing of answers, {took:.1f} s after the signal", str(result))
        r.require_nothing_is_left(out, "after a stop while answers are written")


def other_prompts_have_passes_of_their_own(l):
    """8 prompts, 4 a rollout, 2 steps each: 4 steps a pass. Then 12 others: 6."""
    r = l.r
    result = r.run(l.command("moved"))
    ring.require(result.code == 0 and l.steps("moved")[-1] == 4, "a pass over 8 prompts", str(result))
    others = write_prompts(r, "others.jsonl", 12)
    result = r.run(l.command("moved", resume="true", grpo__prompts=others))
    ring.check(result.code == 2 and "learned from other data" in result.err and "--data.on_change restart" in result.err, "other prompts are refused", str(result))
    result = r.run(l.command("moved", resume="true", grpo__prompts=others, data__on_change="restart"))
    ring.check(result.code == 0 and l.steps("moved")[-1] == 4 + 6, f"with a permission their pass is learned whole: {l.steps('moved')}", str(result))
    told = re.findall(r"epoch +(\d) ended with step (\d+)", result.out)
    ring.check(told == [("1", "10")], f"it ends with its last step: {told}", str(result))
    result = r.run(l.command("moved", resume="true", grpo__prompts=others, train__epochs=2))
    ring.check(result.code == 0 and l.steps("moved")[-1] == 4 + 12, "and passes are counted on from there", str(result))
    result = r.run(l.command("inside", train__max_steps=3))
    ring.require(result.code == 0, "a run that ends inside a rollout", str(result))
    result = r.run(l.command("inside", resume="true", grpo__prompts=others, data__on_change="restart"))
    ring.check(result.code == 0 and l.steps("inside")[-1] == 3 + 6, f"other prompts begin a rollout at once: {l.steps('inside')}", str(result))


def answers_that_are_left_out_are_written_again(l):
    """The steps that an old rollout has left are replaced by a whole rollout with the same prompts."""
    r = l.r
    result = r.run(l.command("left", train__max_steps=1))
    ring.require(result.code == 0, "a run that ends inside a rollout", str(result))
    result = r.run(l.command("left", resume="true", grpo__temperature=0.7))
    ring.check(result.code == 0 and "new ones are written" in result.text and l.steps("left")[-1] == 1 + 4, f"the pass is learned whole: {l.steps('left')}", str(result))
    told = re.findall(r"epoch +(\d) ended with step (\d+)", result.out)
    ring.check(told == [("1", "5")], f"and ends once: {told}", str(result))


def what_makes_other_prompts_is_refused(l):
    r = l.r
    result = r.run(l.command("kept", train__max_steps=2))
    ring.require(result.code == 0, "a run to go on with", str(result))
    for name, said, settings in (("another seed", "seed was 42 and is 7", {"seed": 7}), ("shorter prompts", "prompts that are asked was 8 and is ", {"grpo.max_prompt_length": 5})):
        result = r.run(l.command("kept", resume="true", **settings))
        ring.check(result.code == 2 and said in result.err and "--data.on_change restart" in result.err, f"{name} on the way: refused", str(result))


with ring.Ring(sys.argv[1]) as r:
    learner = Learner(r)
    other_prompts_have_passes_of_their_own(learner)
    answers_that_are_left_out_are_written_again(learner)
    what_makes_other_prompts_is_refused(learner)
    a_stop_does_not_wait_for_answers(learner)
