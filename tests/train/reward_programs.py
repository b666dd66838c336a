"""Programs as rewards of trireme grpo, bad input with two ranks, and kills: of a rank, of the reward's program and of the launcher.
After each kill the same command goes on; the curve and the weights are those of a run that nobody disturbed.

reward_programs.py TRIREME
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

KILLS = 50 if ring.SLOW else 3
STEPS = 16
NOT_COMPARED = ("sampling_s", "sampled_tokens_per_s", "judging_s", "epoch_loss")  # a pass that began before a kill has no epoch_loss
PHASES = {"memory/training_bytes": "  training", "memory/logprobs_bytes": "  log-probabilities", "memory/sampling_bytes": "  answers, with their cache"}
JUDGE = """
import json, os, subprocess, sys, time
mode, folder = sys.argv[1], os.path.dirname(sys.argv[0])
with open(os.path.join(folder, "started"), "a") as file:
    file.write(f"{os.getpid()}\\n")
for line in sys.stdin:
    asked = json.loads(line)
    if mode == "starts others":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", os.path.join(folder, "other")])
    if mode in ("sleeps", "starts others") or mode == "sleeps later" and asked["step"] > 2:
        time.sleep(1000)
    is_third = asked["prompt_number"] % 3 == 0
    held_out = asked["step"] == 0 and (mode == "dies held out" or mode == "dies held out at times" and is_third)
    if mode == "dies" or mode == "dies at times" and is_third or held_out:
        print("the judge is tired", file=sys.stderr)
        sys.exit(3)
    if mode == "thinks" and os.environ["RANK"] == "0":
        time.sleep(4.5)
        mode = "counts"
    if mode == "babbles":
        print("let me think about that")
    left_out = mode == "leaves all out" or mode == "leaves out" and asked["sample"] == 0
    print("null" if left_out else sum(map(ord, asked["completion"])) % 97 / 97, flush=True)
"""


def write_prompts(r):
    file = r.folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": " ".join(ring.WORDS[(7 * i + k) % len(ring.WORDS)] for k in range(1 + i % 2)), "answer": "e"}) + "\n" for i in range(12)))
    return file


class Judged:
    def __init__(self, r):
        self.r = r
        self.base = r.train("base", model=ring.LLAMA | {"max_position_embeddings": 64}, train__max_steps=2)
        self.prompts = write_prompts(r)
        self.judge = r.folder / "judge.py"
        self.judge.write_text(JUDGE)

    def command(self, out, mode="counts", **settings):
        values = {"devices": 2, "precision": "32-true", "out_dir": self.r.folder / out, "grpo.prompts": self.prompts, "grpo.batch_size": 4, "grpo.num_generations": 4,
                  "grpo.num_iterations": 2, "grpo.max_prompt_length": 24, "grpo.max_completion_length": 12, "reward.functions": "[command]",
                  "reward.command": f'["{sys.executable}", "{self.judge}", "{mode}"]', "reward.command_timeout": "20s", "train.max_steps": STEPS, "train.lr_warmup_steps": 0,
                  "optimizer.lr": 1e-3, "launch.threads_per_rank": 1, "comm.timeout": "60s"}
        values |= {k.replace("__", "."): v for k, v in settings.items()}
        return [self.r.program, "grpo", str(self.base), *ring.options(values)]

    def started(self):
        file = self.r.folder / "started"
        pids = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return [int(pid) for pid in pids]

    def is_alive(self, pid):
        return pid in self.r.processes()


def curve(folder):
    """What each step learned from and came to, without times and means of passes."""
    return {step: [row["loss"], row["grad_norm"], row["lr"], {name: value for name, value in row["measures"].items() if name not in NOT_COMPARED}]
            for step, row in ring.metrics(folder).items()}


def programs_judge(j):
    r = j.r
    curves = []
    for ranks in (1, 2):
        result = r.run(j.command(f"ranks-{ranks}", devices=ranks, train__max_steps=4))
        ring.require(result.code == 0, f"a program judges on {ranks} ranks", str(result))
        ring.check(len(j.started()) == ranks, "one process a rank serves the whole run", str(result))
        curves.append({step: row["measures"]["rewards/command"] for step, row in ring.metrics(r.folder / f"ranks-{ranks}").items()})
    ring.check(curves[0] == curves[1] and max(curves[0].values()) > 0, f"with equal rewards: {curves[0]}", str(curves))
    r.require_nothing_is_left("ranks-2", "after the run")

    result = r.run(j.command("at-times", mode="dies at times", train__max_steps=4))
    failed = [row["measures"]["failed_groups"] for row in ring.metrics(r.folder / "at-times").values()]
    ring.check(result.code == 0 and max(failed) > 0 and re.search(r"of 4 groups have no reward and are left out; command: reward.command .* ended with exit code 3", result.err),
               f"a program that dies at times costs its groups, which are counted and told: {failed}", str(result))
    result = r.run(j.command("leaves-out", mode="leaves out", train__max_steps=2))
    ring.check(result.code == 0, "an answer may be left out of its group", str(result))
    result = r.run(j.command("leaves-all-out", mode="leaves all out", train__max_steps=1))
    ring.check(result.code == 1 and "no answer of step 1 could be rewarded: a reward left every answer out" in result.err,
               "a reward that leaves every answer out stops the run", str(result))
    result = r.run(j.command("held-out", mode="dies held out at times", train__max_steps=1, grpo__val_prompts=j.prompts))
    ring.require(result.code == 0, "held-out groups may fail", str(result))
    ring.check(ring.metrics(r.folder / "held-out")[1]["measures"].get("val_failed_groups") == 4, "their number is told", str(result))

    told = {}
    for mode in ("counts", "dies held out at times", "dies held out"):
        out = mode.replace(" ", "-")
        result = r.run(j.command(f"held-{out}", mode=mode, train__max_steps=1, grpo__val_prompts=j.prompts, grpo__eval_samples=2))
        ring.require(result.code == 0, f"a program that {mode} judges held-out prompts", str(result))
        told[mode] = (ring.metrics(r.folder / f"held-{out}")[1]["measures"], result.err)
    names = {"val_reward", "val_mean@2", "val_rewards/command"}
    ring.check(names <= set(told["counts"][0]) and "held out" not in told["counts"][1], "held-out rewards are told", str(told))
    ring.check(names <= set(told["dies held out at times"][0]) and re.search(r"held out, val_reward: 4 of 12 groups have no reward and are left out; command: .* ended with exit code 3",
                                                                            told["dies held out at times"][1]),
               "held-out groups that fail are left out of the mean, with a warning", str(told))
    ring.check(not names & set(told["dies held out"][0]) and "held out, val_mean@2: 12 of 12 groups have no reward" in told["dies held out"][1],
               "where all of them fail, there is a warning and no number", str(told))

    result = r.run(j.command("thinks", mode="thinks", train__max_steps=2, comm__timeout="3s"))
    ring.check(result.code == 0, "a rank whose program takes longer than comm.timeout is waited for", str(result))
    told = ring.metrics(r.folder / "thinks")[1]["measures"]
    ring.check(told["judging_s"] > 4 > told["sampling_s"] > 0, f"its time is that of judging, not of writing: {told['judging_s']:.2f} and {told['sampling_s']:.2f} s", str(told))

    for mode, said in (("sleeps", r"gave 0 of 4 rewards within 1 s; allow more with reward.command_timeout"), ("dies", r"ended with exit code 3 after 0 of 4 rewards"),
                       ("babbles", r'printed "let me think about that" as reward 1 of 4; it must print one number')):
        j.started()
        result = r.run(j.command("never", mode=mode, reward__command_timeout="1s"))
        sentence = re.search(rf"no answer of step 1 could be rewarded: command: reward\.command .*{said}", result.err)
        ring.check(result.code == 1 and sentence and result.seconds < 40, f"a program that {mode} stops the run, which says why", str(result))
        r.require_nothing_is_left("never", f"a program that {mode}")


def tokens_are_of_rows_with_answers(j):
    """Three answers lie in three rows, however many ranks divide them."""
    r = j.r
    for ranks in (1, 2):
        result = r.run(j.command(f"rows-{ranks}", devices=ranks, grpo__batch_size=1, grpo__num_generations=3, train__max_steps=2, train__max_seq_length=40, train__micro_batch_size=1))
        ring.require(result.code == 0, f"three answers are learned on {ranks} ranks", str(result))
        told = {step: row["tokens"] for step, row in ring.metrics(r.folder / f"rows-{ranks}").items()}
        ring.check(told == {1: 3 * 40, 2: 2 * 3 * 40}, f"tokens on {ranks} ranks are those of the rows with answers", str(told))


def signals_leave_nothing(j):
    """One rank has no launcher that would end what a program has started."""
    r = j.r
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        process = r.start(j.command("twice", mode="starts others", devices=1, reward__command_timeout="900s"))
        ring.wait_for(lambda: any(b"/other" in read_bytes(f"/proc/{pid}/cmdline") for pid in r.processes()), "the program starts another one",
                      detail=lambda: (r.folder / "start.err").read_text())
        process.send_signal(number)
        if number == signal.SIGKILL:
            result = r.finish(process)
            ring.check(result.code == -number, "SIGKILL ends a rank at once", str(result))
            r.require_nothing_is_left("twice", "after SIGKILL")
            continue
        time.sleep(1.5)  # signals within a second are one request
        process.send_signal(number)
        result = r.finish(process)
        ring.check(result.code == -number, f"a second {number.name} ends a rank at once", str(result))
        r.require_nothing_is_left("twice", f"after a second {number.name}")


def a_stop_does_not_wait_for_rewards(j):
    """The step is given up in time for the last complete one to be saved, and the resumed run makes its answers again."""
    r = j.r
    settings = dict(grpo__num_iterations=1, train__max_steps=4)
    for ranks in (1, 2):
        out, whole = f"stopped-{ranks}", f"unstopped-{ranks}"
        result = r.run(j.command(whole, devices=ranks, **settings))
        ring.require(result.code == 0, "a run without a stop", str(result))
        job = r.start(j.command(out, mode="sleeps later", devices=ranks, launch__grace="3s", reward__command_timeout="900s", **settings))
        ring.wait_for(lambda: read_bytes(r.folder / out / "metrics.jsonl").count(b"\n") == 2, "two steps", detail=lambda: (r.folder / "start.err").read_text())
        time.sleep(1)
        asked = time.monotonic()
        job.send_signal(signal.SIGTERM)
        result = r.finish(job)
        took = time.monotonic() - asked
        ring.check(result.code == 75 and took < 30 and ring.step_folders(r.folder / out)[-1] == "step-00000002",
                   f"{ranks} ranks: a stop during rewards saves the last complete step, {took:.1f} s after the signal", str(result))
        r.require_nothing_is_left(out, "after a stop during rewards")
        result = r.run(j.command(out, devices=ranks, resume="true", **settings))
        ring.check(result.code == 0 and curve(r.folder / out) == curve(r.folder / whole), "and the resumed run learns what one without a stop does", str(result))


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def a_profile_has_the_writing_of_all_its_answers(j):
    """A window of one step, which begins a rollout of its own. A third of the groups have no answer."""
    result = j.r.run(j.command("profiled", mode="dies at times", grpo__num_iterations=1, train__max_steps=4, profile="true", profile__steps=1))
    ring.require(result.code == 0 and "writing answers" in result.out, "a profile of trireme grpo has a row of its own for answers", str(result))
    report = json.loads((j.r.folder / "profiled/profile.json").read_text())
    row = ring.metrics(j.r.folder / "profiled")
    wrote, learned = row[4]["measures"]["sampling_s"], row[4]["tokens"] - row[3]["tokens"]
    ring.check(report["first_step"] == 4 and 0 < 0.9 * wrote <= report["phases"]["answers"] <= report["step_seconds"],
               f"of every step of the window: {report['phases']['answers']:.3f} s, of these {wrote:.3f} of writing", str(report))
    ring.check(abs(report["tokens_per_second"] * report["step_seconds"] / learned - 1) < 1e-6, f"it counts the {learned} tokens of rows with answers", str(report))


def other_settings_want_other_answers(j):
    r = j.r
    result = r.run(j.command("changed", train__max_steps=3))
    ring.require(result.code == 0, "a run that ends between two steps of a rollout", str(result))
    result = r.run(j.command("changed", train__max_steps=4, resume="true", grpo__beta=0.1))
    ring.check(result.code == 0 and "new ones are written" in result.text, "goes on with other settings and other answers", str(result))
    result = r.run(j.command("changed", train__max_steps=None, train__epochs=9, resume="true", grpo__batch_size=2))
    ring.check(result.code == 2 and "grpo.batch_size was 4, is 2 now, and train.epochs counts steps of one size" in result.err, "with epochs a rollout keeps its size", str(result))


def passes_end_once(j):
    """12 prompts, 4 a rollout, two steps each: a pass is six steps, also where a run stops inside a rollout."""
    r = j.r
    result = r.run(j.command("passes", train__max_steps=None, train__epochs=2))
    rows = ring.metrics(r.folder / "passes")
    told = {step: row["measures"]["epoch_loss"] for step, row in rows.items() if "epoch_loss" in row["measures"]}
    want = {last: sum(rows[step]["loss"] for step in range(last - 5, last + 1)) / 6 for last in (6, 12)}
    ring.check(result.code == 0 and sorted(rows) == list(range(1, 13)) and told.keys() == want.keys() and all(abs(told[k] - v) < 1e-5 for k, v in want.items()),
               f"each pass has a mean loss, told once: {told}", f"{want}\n{result}")
    first = r.run(j.command("parted", train__max_steps=3))
    rest = r.run(j.command("parted", resume="true", train__max_steps=12, train__epochs=2))
    ends = re.findall(r"epoch +(\d) ended with step (\d+)", rest.out)
    ring.check(first.code == rest.code == 0 and ends == [("1", "6"), ("2", "12")], f"a run that goes on inside a rollout ends its passes there, too: {ends}", f"{first}\n{rest}")


def bad_input_is_refused(j):
    r = j.r
    silent = r.folder / "silent.jsonl"
    silent.write_text('{"question": "?"}\n')
    long, talk = r.folder / "long.jsonl", r.folder / "talk.jsonl"
    long.write_text(json.dumps({"prompt": "a" * 60}) + "\n")
    talk.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n")
    some = r.folder / "some.jsonl"
    some.write_text(j.prompts.read_text() + long.read_text())
    result = r.run(j.command("some-long", train__max_steps=1, grpo__val_prompts=some, grpo__system="Be brief."))
    ring.check(result.code == 0 and "12 held out, 1 too long and left out (grpo.max_prompt_length " in result.out, "held-out prompts that are too long are told", str(result))
    ring.check("grpo.system has no effect, because no prompt is a conversation" in result.out, "a system message is told that no prompt can have", str(result))
    unanswered = r.folder / "unanswered.jsonl"
    unanswered.write_text('{"prompt": "a"}\n')
    for sentence, said, settings in (
            ("a file of prompts that is not there", "no-such.jsonl", {"grpo__prompts": r.folder / "no-such.jsonl"}),
            ("a line without a prompt", "silent.jsonl", {"grpo__prompts": silent}),
            ("a reward that nobody knows", "best", {"reward__functions": "[best]", "reward__command": None}),
            ("a program that is not there", "there is no program no-such-judge", {"reward__command": "[no-such-judge]"}),
            ("a program that no reward names", "reward.command has no effect: no answer is given to the program; name command in reward.functions", {"reward__functions": "[exact]"}),
            ("drawn answers to prompts that are not held out", "grpo.eval_samples has no effect: nothing is held out", {"grpo__eval_samples": 4}),
            ("prompts that are all too long", "grpo.prompts: ", {"grpo__max_prompt_length": 1}),
            ("held-out prompts that are all too long", "grpo.val_prompts: ", {"grpo__val_prompts": long}),
            ("an expression that cannot be read", "reward.pattern: ", {"reward__functions": "[format]", "reward__pattern": "(a", "reward__command": None, "reward__command_timeout": None}),
            ("conversations without a template", "grpo.chat_template", {"grpo__prompts": talk}),
            ("a reference of another shape", "grpo.reference: ", {"grpo__beta": 0.1, "grpo__reference": r.folder}),
            ("a template of conversations", "that of prompts is grpo.chat_template", {"data__chat_template": "alpaca"}),
            ("which messages are learned", "data.learn has no meaning with task rewards", {"data__learn": "messages"}),
            ("a seed of data", "data.seed has no meaning with task rewards: the order of prompts follows from seed", {"data__seed": 3}),
            ("a share that is held out", "data.val_split_fraction has no meaning with task rewards", {"data__val_split_fraction": 0.2}),
            ("which part is held out", "data.val_split has no meaning with task rewards", {"data__val_split": "last"}),
            ("a record of data", "data.ledger has no meaning with task rewards", {"data__ledger": "true"}),
            ("a part of the evaluation", "eval.max_iters has no meaning with task rewards: each evaluation answers all of grpo.val_prompts", {"eval__max_iters": 2}),
            ("a group of one", "nothing to be compared with", {"grpo__num_generations": 1})):
        result = r.run(j.command("refused", **settings))
        ring.check(result.code == 2 and said in result.err and result.err.count("\n") <= 6 and not (r.folder / "refused").exists(), f"{sentence} is refused", str(result))
    result = r.run(j.command("refused", reward__functions="[exact]", reward__command=None, reward__command_timeout=None, grpo__prompts=unanswered, grpo__batch_size=1))
    ring.check(result.code == 2 and 'grpo.prompts: no line of ' in result.err and 'has a key "answer", which the reward exact reads; name another one with reward.answer_key' in result.err,
               "prompts without the right answer are refused before the start", str(result))
    named = r.folder / "named.jsonl"
    named.write_text('{"prompt": "a", "answer": "Paris"}\n')
    result = r.run(j.command("refused", reward__functions="[number]", reward__command=None, reward__command_timeout=None, grpo__prompts=named, grpo__batch_size=1))
    ring.check(result.code == 2 and 'grpo.prompts: no line of ' in result.err and 'has a number under "answer", which the reward number compares with' in result.err,
               "prompts whose right answers are no numbers are refused before the start", str(result))
    r.require_nothing_is_left("refused", "after refusals")


def kills_change_nothing(j):
    r, draw = j.r, random.Random(11)
    whole = r.run(j.command("whole", train__save_interval=1, save__keep_last=2))
    ring.require(whole.code == 0, "a run that nobody disturbs", str(whole))
    command = j.command("killed", train__save_interval=1, save__keep_last=2, resume="auto")
    kills, starts = dict.fromkeys(("rank", "program", "launcher"), 0), 0
    while sum(kills.values()) < KILLS:
        victim = draw.choice(sorted(kills)) if ring.SLOW else sorted(kills)[sum(kills.values()) % 3]
        j.started()
        job = subprocess.Popen(command, cwd=r.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ring.environment())
        starts += 1
        at = time.monotonic() + draw.uniform(0.5, whole.seconds)
        while job.poll() is None and time.monotonic() < at:
            time.sleep(0.01)
        if job.poll() is None:
            found = {"launcher": [job.pid], "program": [pid for pid in j.started() if j.is_alive(pid)]}
            found["rank"] = [pid for pid in r.processes() if pid != job.pid and is_rank(pid) and pid not in found["program"]]
            if found[victim]:
                os.kill(draw.choice(found[victim]), signal.SIGKILL)
                kills[victim] += 1
        if victim == "program":
            job.wait(120)
        else:
            job.wait(60)
        r.require_nothing_is_left("none", f"after a kill of the {victim}")
        if job.returncode == 0:
            if sum(kills.values()) >= KILLS:
                break
            subprocess.run(["rm", "-rf", str(r.folder / "killed")], check=True)
    result = r.run(command)
    ring.require(result.code == 0, "the last command succeeds", str(result))
    ring.check(curve(r.folder / "killed") == curve(r.folder / "whole"), f"{kills} kills in {starts} starts: the curve is that of the undisturbed run, bit for bit",
               f"{curve(r.folder / 'killed')}\n{curve(r.folder / 'whole')}")
    last = f"step-{STEPS:08}"
    one, other = ring.tensors(r.folder / "whole" / last), ring.tensors(r.folder / "killed" / last)
    ring.check(all(one[name].tobytes() == other[name].tobytes() for name in one), "and so are the weights")


def other_systems_words_run(judged):
    """agent-tunix's words and TRL's file on a folder of Gemma 3's kind: first the plan, then the run that it shows."""
    r = judged.r
    gemma = r.train("gemma", model=ring.LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "max_position_embeddings": 64}, train__max_steps=2)
    rewards = ["--reward.functions", "[exact]", "--launch.threads_per_rank", "1", "--precision", "32-true"]
    words = [r.program, "grpo", str(gemma), "model.mesh_shape=[[2,1],[fsdp,tp]]", "grpo.num_generations=4", "grpo.beta=0.08", "generation.max_prompt_length=24",
             "generation.max_generation_steps=12", "generation.temperature=0.9", "generation.top_k=50", "optimizer.learning_rate=3e-4", "training.micro_batch_size=2",
             f"training.train_data_dir={judged.prompts}", "training.num_batches=3", "training.eval_every_n_steps=10", *rewards]
    trl = r.folder / "grpo.yaml"
    trl.write_text(f"model_name_or_path: {gemma}\ndataset_name: {judged.prompts}\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 1\nnum_generations: 4\n"
                   "max_prompt_length: 24\nmax_completion_length: 12\nmax_steps: 3\nlearning_rate: 1.0e-4\nloss_type: dr_grpo\nbf16: false\n")
    file = [r.program, "grpo", "--config", str(trl), "--devices", "2", *rewards]
    for name, command in (("agent-tunix's words", words), ("TRL's file", file)):
        out = r.folder / f"others-{name[0]}"
        plan = r.run([*command, "--out_dir", str(out), "--dry_run"])
        ring.check(plan.code == 0 and "2 prompts of 4 answers each, at most 24 tokens of prompt and 12 tokens of answer" in plan.out and "answers, with their cache" in plan.out
                   and not out.exists(), f"{name}: --dry_run shows a plan and writes nothing", str(plan))
        run = r.run([*command, "--out_dir", str(out)])
        planned = [line for line in plan.out.splitlines() if line.startswith("planned peak")][0].split()[2]
        ring.check(run.code == 0 and sorted(ring.metrics(out)) == [1, 2, 3] and f"{float(planned):.0f} MiB a rank planned" in run.out,
                   f"{name}: the run has three steps, and the memory of its plan ({planned} MiB)", str(run))
        phases = {key: [line.split()[-7] for line in plan.out.splitlines() if line.startswith(start)] for key, start in PHASES.items()}
        told = {key: [f"{row['measures'][key] / 2**20:.2f}" for row in ring.metrics(out).values()] for key in PHASES}
        ring.check(all(told[key] == phases[key] * 3 for key in PHASES), f"{name}: metrics tell the memory of each phase as the plan does: {phases}", f"{told}\n{plan.out}")
    for name, command in (("two ranks", words), ("one rank", [*words[:3], "model.mesh_shape=[[1],[fsdp]]", *words[4:], "training.wandb_project=sums"])):
        project = "sums" if name == "one rank" else "tunix-grpo"
        run = r.run(command)
        logs = list((r.folder / "outputs" / project).glob("20??-??-??/??-??-??/train.log"))
        ring.require(run.code == 0 and len(logs) == 1, f"{name}: the run lies in outputs/{project}/DATE/TIME", f"{run}\n{logs}")
        log, out = logs[0].read_text(), logs[0].parent
        ring.check(log.count("loss") >= 3 and sorted(ring.metrics(out)) == [1, 2, 3] and list((out / "logs/tensorboard").iterdir()) and not (r.folder / "out").exists(),
                   f"{name}: outputs/{project}/DATE/TIME/train.log has the run's steps, and the folder has all else", log[-1000:])
    result = r.run([r.program, "generate", str(gemma), "--prompt", "the sea", "--dry_run"])
    ring.check(result.code == 2 and "leave dry_run out" in result.err, "a command that does not train refuses dry_run", str(result))


def is_rank(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(entry.startswith(b"RANK=") for entry in file.read().split(b"\0"))
    except OSError:
        return False


with ring.Ring(sys.argv[1]) as r:
    judged = Judged(r)
    programs_judge(judged)
    tokens_are_of_rows_with_answers(judged)
    a_profile_has_the_writing_of_all_its_answers(judged)
    other_settings_want_other_answers(judged)
    passes_end_once(judged)
    signals_leave_nothing(judged)
    a_stop_does_not_wait_for_rewards(judged)
    bad_input_is_refused(judged)
    other_systems_words_run(judged)
    kills_change_nothing(judged)
