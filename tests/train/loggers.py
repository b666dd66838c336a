"""metrics.csv, a program and Prometheus get what metrics.jsonl has; a program that fails does not stop the run.

loggers.py TRIREME
"""

import csv
import json
import sys
import time
import urllib.error
import urllib.request

import ring

SETTINGS = {"train__max_steps": 6, "train__save_interval": 3, "eval__interval": 2}


def numbers(row):
    """A line of metrics.jsonl without what says where the run is."""
    flat = dict(row) | row.get("measures", {})
    return {key: value for key, value in flat.items() if key not in ("measures", "resumed", "skipped", "shared_bytes")}


def table(run):
    with open(run / "logs/csv/version_0/metrics.csv", newline="") as file:
        return [{key: float(value) for key, value in row.items() if value != ""} for row in csv.DictReader(file)]


def is_that_of_metrics(run, steps):
    rows = [numbers(row) for row in ring.metrics(run).values()]
    ring.check(table(run) == rows and len(rows) == steps, f"metrics.csv has the numbers of {steps} steps", f"{table(run)}\n{rows}")


def in_csv(r):
    run = r.train("run", train__loggers="csv", **SETTINGS)
    is_that_of_metrics(run, 6)
    again = r.run([r.program, "pretrain", "--resume", str(run / "step-00000003"), "--train.max_steps", "8"])
    ring.require(again.code == 0, "the run goes on from its third step", str(again))
    is_that_of_metrics(run, 8)
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
        taken = r.run(r.command("taken", train__prometheus_port=port))
        ring.check(taken.code == 2 and "take another port" in taken.text, "a port that is taken is refused", str(taken))
    finally:
        process.kill()
        process.wait()


with ring.Ring(sys.argv[1]) as r:
    in_csv(r)
    by_a_program(r)
    at_a_port(r)
