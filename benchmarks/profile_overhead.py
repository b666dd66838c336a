"""What --profile, or the loggers, cost a whole run: the same training with and without them, in turns.

profile_overhead.py TRIREME [--what profile|loggers] [--pairs 5] [--steps 60] [SETTINGS OF trireme pretrain ...]

Each pair is two runs of llama-5m (2 sequences of 256 tokens, float32, one thread), the one with first in every second
pair. A run's figure is the median time of its steps, the first three left out; with --profile all of them are measured.
Prints each pair's ratio and their median. Other programs move a pair by some percent: observe_bench times the work itself.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

WARMUP = 3
RUN = ["--devices", "1", "--precision", "32-true", "--train.max_seq_length", "256", "--train.global_batch_size", "2", "--train.micro_batch_size", "2",
       "--launch.threads_per_rank", "1", "--train.log_interval", "1", "--eval.final_validation", "false", "--eval.interval", "1000000"]


def words_of(what, steps):
    if what == "loggers":
        return ["--train.loggers", "[tensorboard, csv]", "--train.logger_command", json.dumps(["sh", "-c", "cat > /dev/null"])]
    return ["--profile", "--profile.steps", str(steps)]


def median_ms(program, folder, steps, words):
    command = [program, "pretrain", "llama-5m", *RUN, "--out_dir", str(folder), "--train.max_steps", str(steps + WARMUP), "--overwrite", *words]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRIREME_")}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return 1e3 * statistics.median(row["seconds"] for row in rows[WARMUP:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--what", choices=["profile", "loggers"], default="profile")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    options, more = parser.parse_known_args()
    program = str(options.program.resolve())
    with tempfile.TemporaryDirectory(prefix="profile-overhead-") as folder:
        ratios, plain = [], []
        for pair in range(options.pairs):
            took = {}
            for name in ("without", "with") if pair % 2 == 0 else ("with", "without"):
                words = words_of(options.what, options.steps) if name == "with" else []
                took[name] = median_ms(program, pathlib.Path(folder) / name, options.steps, [*words, *more])
            ratios.append(took["with"] / took["without"])
            plain.append(took["without"])
            print(f"pair {pair + 1}: {took['without']:.2f} ms a step without, {took['with']:.2f} with: {100 * (ratios[-1] - 1):+.2f} %", flush=True)
        print(f"{options.what}: {100 * (statistics.median(ratios) - 1):+.2f} % (pairs {100 * (min(ratios) - 1):+.2f} to {100 * (max(ratios) - 1):+.2f}); "
              f"steps without differ by {100 * (max(plain) / min(plain) - 1):.1f} % among themselves")


if __name__ == "__main__":
    main()
