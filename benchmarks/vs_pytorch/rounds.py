"""Rounds of a group's variants, on a machine that is noted, kept in a file of JSON: what `run` here and in vs_peft share."""
import datetime
import hashlib
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from runner import ROOT, Setup


def add_arguments(parser):
    """What every comparison takes."""
    parser.add_argument("--trireme", default=str(ROOT / "build/release/trireme"), help="the program")
    parser.add_argument("--threads", type=int, default=1, help="threads a rank, on both sides")
    parser.add_argument("--rounds", type=int, help="rounds of each group (default: the group's own, or 3)")
    parser.add_argument("--steps", type=int, help="timed steps of one run (default: the variant's own)")
    parser.add_argument("--warmup", type=int, help="steps before the clock starts")
    parser.add_argument("--prefix", default=os.environ.get("BENCH_PREFIX", ""), help="put before every command, for instance 'nice -n -5'")
    parser.add_argument("--max_other", type=float, default=0.1, help="cores that other programs may use during a run; else it is run again")
    parser.add_argument("--json", help="file for all figures; rounds are added to those that it holds")
    parser.add_argument("--table", help="measure nothing, print the tables of this JSON file")
    parser.add_argument("--markdown", action="store_true", help="tables as Markdown")


def processor():
    for line in Path("/proc/cpuinfo").read_text().split("\n"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def machine(arguments):
    """Date, machine and versions; the program is named by its hash too, as it may be newer than the last commit."""
    return dict(date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), processor=processor(),
                cores=len(os.sched_getaffinity(0)), kernel=os.uname().release, load=os.getloadavg()[0], commit=output_of("git", "rev-parse", "HEAD"),
                uncommitted_changes=bool(output_of("git", "status", "--porcelain", "--", "trireme", "CMakeLists.txt")),
                trireme=output_of(arguments.trireme, "--version"), trireme_sha256=hashlib.sha256(Path(arguments.trireme).read_bytes()).hexdigest(),
                torch=output_of(sys.executable, "-c", "import importlib.metadata as m; print(m.version('torch'))"),
                command=shlex.join(sys.argv))


def undisturbed(variant, setup, max_other, measure):
    """A run during which other programs left the cores alone; after three tries the run that they disturbed least."""
    tries = []
    for attempt in range(3):
        tries.append(measure(variant, setup))
        if tries[-1]["other_cores"] <= max_other:
            break
        print(f"  {variant.name}: other programs used {tries[-1]['other_cores']:.2f} cores" + (", again" if attempt < 2 else ""), flush=True)
    return min(tries, key=lambda run: run["other_cores"])


def run_group(arguments, group, keep, measure, python_for):
    """Rounds of a group as [{variant: run}]; calls keep(rounds) after every run."""
    prefix, rounds = shlex.split(arguments.prefix), []
    changes = {key: number for key, number in (("steps", arguments.steps), ("warmup", arguments.warmup)) if number is not None}
    for number in range(arguments.rounds or group.rounds):
        rounds.append({})
        for variant in group.variants:
            python = python_for(variant)
            if python is None:
                print(f"  {variant.name}: not installed (scripts/setup --bench), left out", flush=True)
                continue
            fixed = variant.first_line and variant.side != "peer"  # its one step is what it measures
            variant = variant if fixed else replace(variant, **changes)
            run = undisturbed(variant, Setup(arguments.trireme, python, prefix, arguments.threads), arguments.max_other, measure)
            rounds[-1][variant.name] = run
            keep(rounds)
            step = f"{run['median_seconds']:.3f} s a step" if run["step_seconds"] else f"{run['exec_to_first_step_seconds']:.2f} s to the first step"
            print(f"  round {number + 1}  {variant.name}: {step}", flush=True)
    return rounds


def run_groups(arguments, groups, measure, python_for):
    """{group: rounds} of groups, added to those of --json, which holds every run as soon as it is done."""
    if not os.access(arguments.trireme, os.X_OK):
        sys.exit(f"bench: there is no program {arguments.trireme}: run make build, or name it with --trireme")
    record = machine(arguments)
    print(f"{record['processor']}, {record['cores']} cores, load {record['load']:.2f}"
          + ("  (other programs are running: times will be off)" if record["load"] > 0.7 and not arguments.prefix else ""), flush=True)
    file = Path(arguments.json) if arguments.json else None
    record["groups"] = json.loads(file.read_text())["groups"] if file and file.exists() else {}
    done = {}
    for key, group in groups.items():
        print(group.title, flush=True)
        held = record["groups"].get(key, [])

        def keep(rounds):
            record["groups"][key] = held + rounds
            if file:
                file.write_text(json.dumps(record, indent=1) + "\n")

        done[key] = held + run_group(arguments, group, keep, measure, python_for)
    return done
