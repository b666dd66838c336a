"""benchmarks/vs_pytorch, vs_peft, vs_grpo and curves: one step of both sides, their arithmetic, and what they refuse."""
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN, CURVES = ROOT / "benchmarks/vs_pytorch/run", ROOT / "benchmarks/curves/run"
sys.path[:0] = [str(RUN.parent), str(CURVES.parent)]

import plan  # noqa: E402
import report  # noqa: E402
import runner  # noqa: E402
import svg  # noqa: E402

TRIREME = Path(os.environ.get("TRIREME_BUILD_DIR", ROOT / "build/release")) / "trireme"
PYTHON = ROOT / ".venv/bin/python"


def judges_lack():
    """Why the peer cannot run here; None when it can."""
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import torch, numpy"], capture_output=True).returncode != 0:
        return "PyTorch is not installed here: scripts/setup --judges"
    return None if TRIREME.exists() else f"there is no {TRIREME}"


def a_run(step_seconds=(1.0, 1.0), tokens=100, rss=200, planned=100, losses=(5.5, 5.0), **other):
    return dict(step_seconds=list(step_seconds), tokens_per_step=tokens, peak_rss_bytes=rss, planned_bytes=planned, losses=list(losses), **other)


class OneStepOfBothSides(unittest.TestCase):
    def test_json_has_every_key_and_the_ratio_is_printed(self):
        lacking = judges_lack()
        if lacking:
            self.skipTest(lacking)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "record.json"
            done = subprocess.run([PYTHON, "-B", RUN, "--trireme", TRIREME, "--model", "tiny", "--peer", "fsdp2", "--precision", "32-true",
                                   "--rounds", "1", "--steps", "1", "--warmup", "6", "--json", file], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"\nratio [0-9.]+ \(rounds ")
            record = json.loads(file.read_text())
        self.assertLessEqual({"date", "processor", "cores", "kernel", "load", "commit", "uncommitted_changes", "trireme", "trireme_sha256",
                              "torch", "command", "groups"}, set(record))
        (own, other), = [list(r.values()) for r in record["groups"]["pair"]]
        for run in (own, other):
            self.assertLessEqual({"command", "load", "losses", "step_seconds", "tokens_per_step", "peak_rss_bytes", "median_seconds",
                                  "exec_to_first_step_seconds", "wall_seconds", "other_cores"}, set(run))
            self.assertEqual((len(run["losses"]), len(run["step_seconds"]), run["tokens_per_step"]), (7, 1, 2048))
        self.assertLessEqual({"planned_bytes", "peak_fraction", "parts"}, set(own))
        self.assertGreater(other["exec_to_first_step_seconds"], 0)
        self.assertLess(other["exec_to_first_step_seconds"], other["wall_seconds"])


class Refused(unittest.TestCase):
    def check(self, losses, *words):
        with self.assertRaises(runner.Failed) as caught:
            runner.check(a_run(losses=losses), "a run", "tiny")
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_losses_of_another_model_or_of_one_that_does_not_learn(self):
        untrained = math.log(256)
        runner.check(a_run(losses=[untrained, untrained - 0.1]), "a run", "tiny")
        runner.check(a_run(losses=[untrained]), "a run", "tiny")
        self.check([untrained + 0.4, untrained], "5.545", "a run went from loss 5.945")
        self.check([untrained, untrained], "learns")
        self.check([untrained, math.nan], "nan")

    def test_a_program_whose_loss_is_wrong_or_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "trireme"
            wrong = json.dumps(a_run(losses=[9.9, 1.0], peak_fraction=0.5))
            for text, word in ((f"for last; do :; done; echo '{wrong}' > $last", "went from loss 9.900"), ("echo broken; exit 3", "status 3")):
                program.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit\n{text}\n")
                program.chmod(0o755)
                done = subprocess.run([sys.executable, "-B", RUN, "--trireme", program, "--model", "tiny", "--rounds", "1"],
                                      capture_output=True, text=True, timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(word, done.stderr)


class Arithmetic(unittest.TestCase):
    def test_a_target_compares_medians_and_gives_the_spread_of_rounds(self):
        rounds = [dict(ours=a_run([1.0, 1.0]), peer=a_run([1.5, 1.5])), dict(ours=a_run([1.0, 1.0]), peer=a_run([2.5, 2.5]))]
        found = report.judge(plan.Target("", "", "tokens", "ours", "peer", at_least=2.0), rounds)
        self.assertEqual(found, dict(value=2.0, low=1.5, high=2.5, rounds=2, reached=True))
        self.assertFalse(report.judge(plan.Target("", "", "tokens", "ours", "peer", at_least=2.01), rounds)["reached"])
        self.assertFalse(report.judge(plan.Target("", "", "rss", "ours", at_most=199), rounds)["reached"])
        self.assertIsNone(report.judge(plan.Target("", "", "rss", "ours", "absent"), rounds))

    def test_memory_saved_is_compared_with_the_plans(self):
        rounds = [dict(less=a_run(rss=150, planned=60), more=a_run(rss=200, planned=100))]
        self.assertAlmostEqual(report.judge(plan.Target("", "", "saved", "less", "more"), rounds)["value"], 1.25)

    def test_processes_that_never_talk_add_their_rates(self):
        both = runner.together([a_run([1.0], tokens=100), a_run([0.5], tokens=100, rss=300)])
        self.assertEqual((both["tokens_per_step"], both["peak_rss_bytes"]), (200, 300))
        self.assertAlmostEqual(both["tokens_per_step"] / both["step_seconds"][0], 300)

    def test_every_target_names_variants_of_its_group(self):
        for target in plan.TARGETS:
            names = {variant.name for variant in plan.GROUPS[target.group].variants}
            self.assertLessEqual({target.variant, target.other} - {""}, names, target.text)


class Tuning(unittest.TestCase):
    def test_the_targets_of_vs_peft_name_its_variants_and_are_judged(self):
        run = ROOT / "benchmarks/vs_peft/run"
        names = subprocess.run([sys.executable, "-B", "-c", "import plan; print(*[v.name for v in plan.GROUPS['lora'].variants], sep='\\n')"],
                               capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": f"{run.parent}:{RUN.parent}"}).stdout.splitlines()
        self.assertEqual(len(names), len(set(names)))
        rounds = [{name: a_run([1.0] if "PEFT" in name or "transformers" in name else [0.5], rss=300 if "PEFT" in name else 100) for name in names}]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "record.json"
            file.write_text(json.dumps(dict(groups=dict(lora=rounds))))
            done = subprocess.run([sys.executable, "-B", run, "--table", file], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.split()[-1] for line in done.stdout.splitlines() if "at least" in line or "at most" in line],
                         ["reached", "reached", "missed", "reached", "reached", "missed", "missed", "missed"], done.stdout)


    def test_every_target_of_vs_peft_names_variants_of_its_group(self):
        run = ROOT / "benchmarks/vs_peft/run"
        program = ("import plan\nfor t in plan.TARGETS:\n    names = {v.name for v in plan.GROUPS[t.group].variants}\n"
                   "    assert {t.variant, t.other} - {''} <= names, t.text\nprint(len(plan.TARGETS))")
        done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{run.parent}:{RUN.parent}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(int(done.stdout), 10)


# A Llama whose next byte is "1" or "2", each as likely, whatever came before.
COIN = """
import json, sys, torch
from pathlib import Path
from safetensors.torch import save_file
folder, width, one = Path(sys.argv[1]), 8, lambda *shape: torch.ones(shape)
(folder / "config.json").write_text(json.dumps(dict(hidden_size=width, num_attention_heads=2, num_key_value_heads=2, intermediate_size=width,
    num_hidden_layers=1, vocab_size=256, max_position_embeddings=16, rope_theta=1e4, rms_norm_eps=1e-5)))
head = torch.zeros(256, width)
head[[ord("1"), ord("2")]] = 20 / width
block = {f"self_attn.{x}_proj": one(width, width) for x in "qkv"} | {f"mlp.{x}_proj": one(width, width) for x in ("gate", "up")}
block |= {"input_layernorm": one(width), "post_attention_layernorm": one(width), "self_attn.o_proj": torch.zeros(width, width), "mlp.down_proj": torch.zeros(width, width)}
save_file({f"model.layers.0.{name}.weight": value for name, value in block.items()} |
          {"model.embed_tokens.weight": one(256, width), "model.norm.weight": one(width), "lm_head.weight": head}, folder / "model.safetensors")
"""


class Rewards(unittest.TestCase):
    def test_a_step_without_a_spread_updates_nothing_and_is_counted(self):
        lacking = judges_lack()
        if lacking:
            self.skipTest(lacking)
        rows = [dict(prompt="a", answer="1"), dict(prompt="b", answer="never"), dict(prompt="c", answer="never")]
        order, steps = random.Random(1), 5
        without = sum(all(row["answer"] == "never" for row in order.sample(rows, 2)) for _ in range(steps))
        self.assertTrue(0 < without < steps)  # in the others, one of the two ranks has nothing to learn from
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            subprocess.run([PYTHON, "-c", COIN, folder], check=True)
            (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            done = subprocess.run([PYTHON, "-B", ROOT / "benchmarks/vs_grpo/peer.py", "--base", folder, "--prompts", folder / "prompts.jsonl", "--batch_size", "2",
                                   "--num_generations", "32", "--completion", "1", "--warmup", "1", "--steps", str(steps - 1), "--json", folder / "out.json"],
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads((folder / "out.json").read_text())
        self.assertEqual((result["without_update"], len(result["rewards"])), (without, steps))


class Curves(unittest.TestCase):
    def test_a_curve_above_its_line_or_a_plan_off_its_line_fails(self):
        points = [dict(x=x, token_us=10.0 + x, flops_per_token=10.0 + x, tokens_per_step=1, planned_bytes=100 + 7 * x, peak_rss_bytes=300,
                       peak_fraction=0.5, parts={}, step_seconds=[1.0]) for x in (2, 4, 8, 16)]
        self.assertEqual(self.conclude(points).returncode, 0)
        slow = [dict(p, token_us=p["token_us"] * (1.3 if p["x"] == 8 else 1)) for p in points]
        self.assertIn("(too much)", self.conclude(slow, 1).stdout)
        large = [dict(p, planned_bytes=p["planned_bytes"] + (20 if p["x"] == 16 else 0)) for p in points]
        self.assertIn("off its line (too much)", self.conclude(large, 1).stdout)

    def conclude(self, points, status=0):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "curves.json"
            file.write_text(json.dumps(dict(sweeps=dict(depth=points))))
            done = subprocess.run([sys.executable, "-B", CURVES, "--table", file, "--pictures", folder], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            xml.etree.ElementTree.parse(Path(folder) / "depth.svg")
        return done

    def test_ticks_cover_the_highest_value_with_round_steps(self):
        for highest in (0.03, 0.7, 1, 9, 10, 99, 228.3, 12345):
            ticks = svg.ticks(highest)
            self.assertGreaterEqual(ticks[-1], highest)
            self.assertLessEqual(len(ticks), 8)


if __name__ == "__main__":
    unittest.main()
