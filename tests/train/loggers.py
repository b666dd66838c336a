"""metrics.csv, a program and Prometheus get what metrics.jsonl has; a program that fails does not stop the run.

loggers.py TRIREME
metrics.csv has the columns of LitGPT. The programs for W&B and MLflow are run as docs/logging.md prints them, with
modules of these names that take what the real ones take, and write it down.
"""

import csv
import json
import math
import pathlib
import re
import sys
import time
import urllib.error
import urllib.request

import ring

SETTINGS = {"train__max_steps": 6, "train__save_interval": 3, "eval__interval": 2}


def numbers(row):
    """A line of metrics.jsonl without what says where the run is."""
    flat = dict(row) | row.get("measures", {})
    return {key: value for key, value in flat.items() if key not in ("measures", "resumed", "measured_anew")}


def table(run):
    with open(run / "logs/csv/version_0/metrics.csv", newline="") as file:
        return [{key: float(value) for key, value in row.items() if value != ""} for row in csv.DictReader(file)]


# What litgpt/pretrain.py hands to the logger, in its order. Of its throughput figures there is tokens_per_second.
LITGPT = ["loss", "iter", "step", "epoch", "iter_time", "remaining_time", "tokens", "total_tokens", "learning_rate"]


def as_litgpt(row, micro_batches, data_ranks):
    """The numbers that LitGPT's table has of a line of metrics.jsonl; without remaining_time and epoch, which are not there."""
    mine = {"loss": row["loss"], "iter": row["step"] * micro_batches, "step": row["step"], "iter_time": row["seconds"] / micro_batches,
            "tokens": row["tokens"] / data_ranks, "total_tokens": row["tokens"], "learning_rate": row["lr"]}
    return mine | ({"val_loss": row["val_loss"], "val_ppl": math.exp(row["val_loss"])} if "val_loss" in row else {})


def is_that_of_metrics(run, steps, micro_batches, data_ranks):
    rows = [row for row in ring.metrics(run).values()]
    expected = [numbers(row) | as_litgpt(row, micro_batches, data_ranks) for row in rows]
    for row in expected:
        del row["lr"]
    found = [{key: value for key, value in row.items() if key not in ("remaining_time", "epoch")} for row in table(run)]
    same = len(found) == len(expected) and all(set(a) == set(b) and all(math.isclose(a[key], b[key], rel_tol=1e-9) for key in a) for a, b in zip(found, expected))
    ring.check(same and len(rows) == steps, f"metrics.csv has the numbers of {steps} steps", f"{found}\n{expected}")


def in_csv(r):
    run = r.train("run", train__loggers="csv", **SETTINGS)
    is_that_of_metrics(run, 6, 8, 1)
    rows = table(run)
    with open(run / "logs/csv/version_0/metrics.csv", newline="") as file:
        columns = next(csv.reader(file))
    ring.check(columns[:len(LITGPT)] == LITGPT and columns[-2:] == ["val_loss", "val_ppl"], "its columns are LitGPT's, then the others", str(columns))
    lines = ring.metrics(run)
    ring.check(math.isclose(lines[2]["tokens_per_second"] * lines[2]["seconds"], lines[2]["tokens"] - lines[1]["tokens"], rel_tol=1e-2),
               "the speed is counted anew from the second step on", f"{lines[1]} {lines[2]}")
    left = [row["remaining_time"] for row in rows]
    ring.check(left[-1] == 0 and all(a > b for a, b in zip(left[1:], left[2:])), "the time that is left becomes less, and is 0 at the end", str(left))
    ring.check({row["epoch"] for row in rows} == {0}, "passes over the data are counted from 0, as in LitGPT", str(rows))
    short = r.train("short", train__loggers="csv", **SETTINGS | {"train__max_steps": 100000, "train__max_time": "3s", "train__save_interval": 100000, "eval__interval": 100000})
    ring.check(all(row["remaining_time"] <= 3 for row in table(short)), "the time that is left ends with train.max_time", str(table(short)[:3]))
    last = r.train("last", train__loggers="csv", **SETTINGS | {"train__max_steps": 100000, "train__max_time": "1s", "train__log_interval": 99999, "train__save_interval": 100000,
                                                               "eval__interval": 100000, "eval__final_validation": "false"})
    ended = max(int(name[5:]) for name in ring.step_folders(last))
    ring.check(max(ring.metrics(last)) == ended == table(last)[-1]["step"], "the last step has a row, though time ended the run", str(table(last)))
    two = r.train("two", train__loggers="csv", devices=2, train__micro_batch_size=2, train__max_seq_length=64, **SETTINGS)
    is_that_of_metrics(two, 6, 2, 2)
    again = r.run([r.program, "pretrain", "--resume", str(run / "step-00000003"), "--train.max_steps", "8"])
    ring.require(again.code == 0, "the run goes on from its third step", str(again))
    is_that_of_metrics(run, 8, 8, 1)
    (run / "logs/csv/version_0/metrics.csv").write_text("step,loss\n1,2.5\n")
    other = r.run([r.program, "pretrain", "--resume", str(run / "step-00000003"), "--train.max_steps", "9"])
    ring.check(other.code == 2 and "does not begin with the columns loss, iter and step; move it away" in other.text, "a table of other columns is refused", str(other))
    refused = r.run(r.command("refused", train__loggers="wandb"))
    ring.check(refused.code == 2 and "train.loggers has wandb" in refused.text, "an unknown logger is refused", str(refused))


def by_a_program(r):
    program = r.folder / "log.py"
    program.write_text("import os, sys\nopen(sys.argv[1], 'w').write(sys.stdin.read())\n"
                       "open(sys.argv[1] + '.run', 'w').write(os.environ['RUN_NAME'] + ' ' + os.environ['RUN_FOLDER'])\n")
    words = json.dumps([sys.executable, str(program), str(r.folder / "seen")])
    run = r.train("program", train__logger_command=words, **SETTINGS)
    ring.check((r.folder / "seen").read_text() == (run / "metrics.jsonl").read_text(), "the program reads metrics.jsonl, to its last line")
    ring.check((r.folder / "seen.run").read_text() == f"pretrain-llama-5m {run}", "it knows the run's name, as LitGPT has it, and its folder", (r.folder / "seen.run").read_text())
    r.train("named", train__logger_command=words, train__run_name="anneal-3", **SETTINGS)
    ring.check((r.folder / "seen.run").read_text() == f"anneal-3 {r.folder / 'named'}", "or the name that the user gave it")
    program.write_text("import sys\nsys.stdin.readline()\nsys.exit(3)\n")
    ended = r.run(r.command("ended", train__logger_command=words, **SETTINGS))
    ring.check(ended.code == 0 and ended.text.count("ended with exit code 3; the run goes on without it") == 1, "a program that ends is told of once", str(ended))
    program.write_text("import time\ntime.sleep(600)\n")
    start = time.monotonic()
    sleeps = r.run(r.command("sleeps", train__logger_command=words, **SETTINGS))
    ring.check(sleeps.code == 0 and 9 < time.monotonic() - start < 60, "a program that does not end is ended after ten seconds", str(sleeps))
    ring.check(sleeps.text.count("did not end within 10 s of the run and is ended") == 1, "and the run says so", str(sleeps))
    ring.check(not [pid for pid in r.processes()], "no process remains")
    missing = r.run(r.command("missing", train__logger_command='["no-such-program"]'))
    ring.check(missing.code == 2 and "there is no program no-such-program" in missing.text, "a program that is not there is refused", str(missing))
    ring.check(not (r.folder / "missing").exists(), "and nothing is written")


WANDB = """
import json, os
def init(project, name, id, resume):
    if resume != "allow" or not id.isalnum() or len(id) > 64:
        raise ValueError("W&B takes no such id")
    return Run(id, name)
class Run:
    def __init__(self, id, name):
        self.file = os.environ["SEEN"] + "." + id
        self.step = json.loads(open(self.file).read().splitlines()[-1])["step"] + 1 if os.path.exists(self.file) else 0
    def log(self, row, step):
        if step < self.step:
            return  # with a warning: W&B's steps only grow
        if not isinstance(step, int) or not all(isinstance(key, str) for key in row):
            raise TypeError(row)
        self.step = step
        with open(self.file, "a") as file:
            file.write(json.dumps({"step": step} | row) + "\\n")
    def finish(self):
        open(self.file + ".finished", "w").close()
"""
MLFLOW = """
import contextlib, json, os, re
def set_experiment(name):
    pass
@contextlib.contextmanager
def start_run(run_name):
    yield
    open(os.environ["SEEN"] + ".finished", "w").close()
def log_metrics(metrics, step):
    for name, value in metrics.items():
        if not re.fullmatch(r"[/\\w.\\- :]+", name) or not isinstance(value, (int, float)) or not isinstance(step, int):
            raise TypeError(f"MLflow takes no {name} {value} of step {step}")
    with open(os.environ["SEEN"], "a") as file:
        file.write(json.dumps({"step": step} | metrics) + "\\n")
"""


def are_those_of_steps(rows, steps):
    return [row["step"] for row in rows] == list(range(1, steps + 1))


def by_the_programs_of_the_docs(r):
    """Each step arrives once, with all of its numbers; also after a resume, where the service is one that goes on."""
    page = (pathlib.Path(__file__).parents[2] / "docs/logging.md").read_text()
    modules = r.folder / "modules"
    modules.mkdir()
    for name, module in (("wandb", WANDB), ("mlflow", MLFLOW)):
        (modules / f"{name}.py").write_text(module)
        [program] = [text for text in re.findall(r"```python\n(.*?)```", page, re.S) if f", {name}\n" in text]
        (r.folder / f"{name}-log.py").write_text(program)
        words = json.dumps([sys.executable, str(r.folder / f"{name}-log.py")])
        seen = r.folder / f"{name}-seen"
        variables = ring.environment(PYTHONPATH=str(modules), SEEN=str(seen))
        first = r.run(r.command(name, train__logger_command=words, **SETTINGS), env=variables)
        ring.require(first.code == 0 and "warn" not in first.text, f"a run with {name} ends", str(first))

        def arrived():
            [file] = [path for path in r.folder.glob(f"{name}-seen*") if path.suffix != ".finished"]
            return [json.loads(line) for line in file.read_bytes().splitlines()]

        rows = [numbers(row) for row in ring.metrics(r.folder / name).values()]
        mine = [{key: value for key, value in row.items() if key in rows[0] or key == "val_loss"} for row in arrived()]
        ring.check(mine == rows and are_those_of_steps(mine, 6), f"{name} gets each of 6 steps once, with its numbers", str(arrived()))
        ring.check(list(r.folder.glob(f"{name}-seen*.finished")), f"and the run of {name} is finished")
        if name == "wandb":
            again = r.run([r.program, "pretrain", "--resume", str(r.folder / name / "step-00000003"), "--train.max_steps", "8"], env=variables)
            ring.require(again.code == 0, "the run goes on from its third step", str(again))
            ring.check(are_those_of_steps(arrived(), 8), "after a resume the same run goes on, and has each step once", str(arrived()))


def at_a_port(r):
    port = 20000 + time.time_ns() % 20000
    process = r.start(r.command("port", train__max_steps=100000, train__prometheus_port=port))
    try:
        def ask(path):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                    return answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code
            except OSError:
                return ""
        ring.wait_for(lambda: "trireme_loss " in str(ask("/metrics")), "the port tells a loss")
        found = dict(line.split() for line in ask("/metrics").splitlines() if not line.startswith("#"))
        ring.check({"trireme_step", "trireme_loss", "trireme_lr", "trireme_tokens_per_second", "trireme_grad_norm"} <= set(found), "all numbers are there", str(found))
        ring.check(float(found["trireme_loss"]) > 0 and int(found["trireme_step"]) > 0, "and they are numbers", str(found))
        ring.check(ask("/other") == 404, "another path has nothing")
        for devices in (1, 2):
            taken = r.run(r.command("taken", devices=devices, train__prometheus_port=port))
            ring.check(taken.code == 2 and "take another port" in taken.text and taken.text.count("\n") == 1 and not (r.folder / "taken").exists(),
                       f"a port that is taken is refused before the start, {devices} ranks", str(taken))
    finally:
        process.kill()
        process.wait()


with ring.Ring(sys.argv[1]) as r:
    in_csv(r)
    by_a_program(r)
    by_the_programs_of_the_docs(r)
    at_a_port(r)
