#!/usr/bin/env python3
"""Learning from rewards in float64: the answers of a run, judged by an independent computation and by TRL's own loss.

rewards_judge.py TRIREME [CASE ...]
A run answers prompts once and takes four steps on the answers. The judge reads them from a checkpoint, computes log-probabilities with
transformers, then advantages, losses, gradients and steps of SGD, and compares. Of answers in 4 bits it quantizes the model by the
formula, and takes the weights for how they were drawn from TRL's own lines. TRIREME_SLOW=1: every case and every mesh; otherwise
a sample.
"""

import ast
import inspect
import json
import math
import os
import sys
import textwrap
import types
import unittest.mock

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1", HF_DATASETS_OFFLINE="1")
import tuning
from tuning import peft, ring, torch

import wide
from four_bits import FP4, NF4, dequantized

[grpo_trainer] = ring.judges("trl.trainer.grpo_trainer")

PROMPTS, ANSWERS, MINI, LONGEST = 4, 4, 2, 12
STEPS = 2 * PROMPTS // MINI  # two iterations
RATE, EQUAL, MESH = 0.2, 1e-9, 1e-10
FAMILIES = {"llama": "llama 2", "gemma3": "gemma3"}

# name: settings of grpo.*
CASES = {
    "grpo": {},
    "grpo warm": {"temperature": 0.7, "top_k": 20, "beta": 0.1, "kl_loss_mode": "mse_kl", "advantage_epsilon": 1e-4},
    "dapo": {"loss_agg_mode": "token-mean", "epsilon": 0.02, "epsilon_high": 0.028, "beta": 0, "overlong_buffer": 4, "dynamic_sampling": "drop"},
    "dapo of rollouts": {"loss_agg_mode": "rollout-token-mean", "epsilon": 0.02, "beta": 0.05, "kl_loss_mode": "low_var_kl"},
    "dr grpo": {"loss_agg_mode": "sequence-mean-token-scale", "advantage_estimator": "drgrpo", "beta": 0.02, "kl_loss_mode": "low_var_kl"},
    "rloo": {"loss_agg_mode": "seq-mean-token-sum", "advantage_estimator": "rloo", "beta": 0.05, "kl_loss_mode": "kl", "epsilon": 0.01, "epsilon_c": 1.05, "top_p": 0.9},
    "gspo": {"loss_algo": "gspo-token", "epsilon": 0.003, "kl_loss_mode": "low_var_kl"},
    "gspo unbiased": {"loss_algo": "gspo-token", "epsilon": 0.003, "use_bias_correction_kl": "true", "beta": 0.3, "kl_loss_mode": "low_var_kl"},
    "batch": {"scale_rewards": "batch", "loss_agg_mode": "sequence-mean-token-sum-norm", "mask_truncated_completions": "true"},
    "masked": {"mask_truncated_completions": "true", "masked_completions_count": "true", "kl_loss_mode": "low_var_kl"},
    "masked dr grpo": {"loss_agg_mode": "sequence-mean-token-scale", "advantage_estimator": "drgrpo", "beta": 0, "mask_truncated_completions": "true", "masked_completions_count": "true"},
    "unbiased": {"loss_agg_mode": "token-mean", "use_bias_correction_kl": "true", "beta": 0.1, "kl_loss_mode": "low_var_kl", "epsilon": 0.01, "use_rollout_logps": "false"},
    "nf4 token": {"rollout_quantize": "bnb.nf4", "sampler_is_threshold": 1.01, "loss_agg_mode": "token-mean", "beta": 0.05, "kl_loss_mode": "low_var_kl", "epsilon": 0.01},
    "nf4 token mask": {"rollout_quantize": "bnb.nf4", "sampler_is": "token_mask", "sampler_is_threshold": 1.02, "sampler_is_min": 0.98, "loss_agg_mode": "token-mean", "beta": 0},
    "fp4 answers": {"rollout_quantize": "bnb.fp4", "sampler_is": "sequence_truncate", "sampler_is_threshold": 1.05, "sampler_is_min": 0.97, "kl_loss_mode": "low_var_kl"},
    "fp4 answer mask": {"rollout_quantize": "bnb.fp4", "sampler_is": "sequence_mask", "sampler_is_threshold": 1.02, "loss_algo": "gspo-token", "epsilon": 0.003,
                        "use_bias_correction_kl": "true", "beta": 0.3, "kl_loss_mode": "low_var_kl"},
    "nf4 uncorrected": {"rollout_quantize": "bnb.nf4", "sampler_is": "none", "beta": 0, "temperature": 0.8},
    "unscaled": {"scale_rewards": "none", "loss_agg_mode": "token-mean", "beta": 0.04},
}
# Which of TRL's losses is the same one.
THEIRS = {"grpo": "grpo", "masked": "grpo", "masked dr grpo": "dr_grpo", "dapo": "dapo", "dapo of rollouts": "dapo", "dr grpo": "dr_grpo", "unscaled": "dapo", "unbiased": "dapo", "gspo": "grpo", "gspo unbiased": "grpo", "nf4 token": "dapo", "nf4 token mask": "dapo",
          "fp4 answers": "grpo", "fp4 answer mask": "grpo", "nf4 uncorrected": "grpo"}
CODES = {"bnb.nf4": NF4, "bnb.fp4": FP4}
# Values of 4 bits are products in float32.
IN_FOUR_BITS = 1e-6
QUICK = [("llama", "dapo", "full"), ("llama", "dapo of rollouts", "full"), ("gemma3", "grpo warm", "full"), ("llama", "gspo", "lora"), ("llama", "gspo unbiased", "full"), ("llama", "rloo", "lora"), ("llama", "unscaled", "full"), ("llama", "nf4 token", "full"), ("gemma3", "nf4 token mask", "lora"), ("llama", "fp4 answers", "lora"),
         ("llama", "fp4 answer mask", "full"), ("llama", "nf4 uncorrected", "full"), ("llama", "unbiased", "full"), ("llama", "masked", "full"), ("llama", "masked dr grpo", "full")]
OF_ANSWERS = ("full_shard 2", "tp 2 sequence", "pp 2 1f1b")  # whole weights are collected from all ranks
MESHES = {
    "full_shard 2": ({"devices": 2, "strategy": "full_shard"}, True),
    "two rows at once": ({"train__micro_batch_size": 2}, False),
    "tp 2 sequence": ({"devices": 2, "mesh__tp": 2, "mesh__sequence_parallel": "true"}, False),
    "pp 2 1f1b": ({"devices": 2, "mesh__pp": 2, "pipeline__schedule": "1f1b"}, False),
    "pp 2 zb_v": ({"devices": 2, "mesh__pp": 2, "pipeline__schedule": "zb_v"}, False),
    "recompute": ({"recompute": "full"}, True),
    "cp 2": ({"devices": 2, "mesh__cp": 2}, False),
    "cp 2, tp 2": ({"devices": 4, "mesh__cp": 2, "mesh__tp": 2, "strategy": "full_shard"}, False),
    "4 ranks": ({"devices": 4, "strategy": "full_shard"}, True),
}


def write_prompts(path):
    with open(path, "w") as out:
        for number in range(9):
            out.write(json.dumps({"prompt": " ".join(ring.WORDS[(number * 7 + i) % len(ring.WORDS)] for i in range(1 + number % 3)), "answer": "x"}) + "\n")
    return path


class Judged:
    def __init__(self, r, family, case, kind):
        self.r, self.what, self.case, self.lora = r, f"{family}, {case}, {kind}", case, kind == "lora"
        self.settings = CASES[case]
        # The sum over an answer's tokens has a gradient so many times as long. At the rate of means, weights go to where logits are thousands,
        # and ratios differ in the last bits of those.
        self.rate = RATE / (LONGEST if "token-sum" in self.option("loss_agg_mode", "") else 1)
        self.base = r.folder / family
        if not self.base.exists():
            tuning.make_base(FAMILIES[family], self.base)
            (self.base / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        self.prompts = write_prompts(r.folder / "prompts.jsonl")
        self.adapter = None
        if self.lora:
            self.adapter = r.folder / f"{family}-start"
            config = tuning.lora_config(FAMILIES[family], target_modules="all-linear", lora_dropout=0.1)  # which nobody applies
            tuning.initial_adapter(self.base, self.adapter, config)
        self.one = self.tune("one")
        self.rollout = self.task(1)

    def command(self, what, **settings):
        values = {"devices": 1, "precision": "64-true", "out_dir": self.r.folder / f"{self.what} {what}".replace(" ", "-").replace(",", ""), "grpo.prompts": self.prompts,
                  "grpo.batch_size": PROMPTS, "grpo.mini_batch_size": MINI, "grpo.num_generations": ANSWERS, "grpo.num_iterations": 2, "grpo.temperature": 1,
                  "grpo.max_prompt_length": 24, "grpo.max_completion_length": LONGEST, "grpo.stop": "[e, t]", "reward.functions": "[length]", "reward.length": 6, "train.micro_batch_size": 1,
                  "train.max_steps": STEPS, "train.lr_warmup_steps": 0, "train.lr_decay": "constant", "train.max_norm": "null", "optimizer.name": "SGD",
                  "optimizer.lr": self.rate, "optimizer.weight_decay": 0, "optimizer.momentum": 0, "launch.threads_per_rank": 1, "comm.timeout": "60s", "train.save_interval": 1, "save.keep_last": 0}
        values |= {f"grpo.{k}": v for k, v in self.settings.items()} | {k.replace("__", "."): v for k, v in settings.items()}
        if self.adapter:
            values["lora.initial_adapter"] = self.adapter
        words = [self.r.program, "grpo", str(self.base)]
        for key, value in values.items():
            words += [f"--{key}", str(value)]
        return words, values["out_dir"]

    def tune(self, what, **settings):
        words, out = self.command(what, **settings)
        result = self.r.run(words)
        ring.require(result.code == 0, f"{self.what}: the run {what} succeeds", str(result))
        return out

    def task(self, step, run=None):
        return json.loads(json.loads(((run or self.one) / f"step-{step:08}" / "trireme_state.json").read_text())["task"])

    def model(self):
        model = tuning.load_base(self.base)
        if self.lora:
            model = peft.PeftModel.from_pretrained(model, self.adapter, is_trainable=True)
        model.get_input_embeddings().padding_idx = None  # the model may write that token, too
        return wide.widen(model).eval()

    def sampler(self):
        """What wrote the answers: the model, adapters merged, with the matrices of its blocks in 4 bits."""
        code = CODES.get(self.option("rollout_quantize", "none"))
        model = self.model()
        if code is None:
            return model
        model = model.merge_and_unload() if self.lora else model
        with torch.no_grad():
            for name, matrix in model.named_parameters():
                if ".layers." in name and matrix.dim() == 2:
                    matrix.copy_(dequantized(matrix, code))
        return model

    def how(self):
        named = self.option("sampler_is", "none" if self.option("rollout_quantize", "none") == "none" else "token_truncate")
        return {"token": "token_truncate"}.get(named, named)

    def correction(self, answer):
        """Of each token."""
        how, most, least = self.how(), self.option("sampler_is_threshold", 2.0), self.option("sampler_is_min", 0.0)
        apart = torch.tensor(answer["logprobs"], dtype=torch.float64) - torch.tensor(answer["sampled"] or answer["logprobs"], dtype=torch.float64)
        if how == "none":
            return torch.ones_like(apart)
        ratio = (apart.sum().expand_as(apart) if "sequence" in how else apart).exp()
        return ratio.clamp(least, most) if "truncate" in how else ratio * ((least <= ratio) & (ratio <= most))

    def corrections_as_measured(self):
        """The measures of all answers that count: one weight a token, or one an answer."""
        every = [a for step in range(1, PROMPTS // MINI + 1) for _, a, _ in self.counted(step)]
        weights = torch.cat([self.correction(a)[: 1 if "sequence" in self.how() else None] for a in every])
        apart = torch.tensor([x - y for a in every for x, y in zip(a["logprobs"], a["sampled"])], dtype=torch.float64).abs()
        return {"min": weights.min(), "mean": weights.mean(), "max": weights.max(), "logp_difference": apart.mean(), "logp_difference_max": apart.max()}

    def theirs_of(self, old, sampled, mask):
        """TRL's weights, by the lines of its trainer."""
        body = textwrap.dedent(inspect.getsource(grpo_trainer.GRPOTrainer._generate_and_score_completions))
        [block] = [node for node in ast.walk(ast.parse(body)) if isinstance(node, ast.If) and "vllm_importance_sampling_correction" in ast.unparse(node.test)
                   and "nan_to_num" in ast.unparse(node)]
        settings = types.SimpleNamespace(vllm_importance_sampling_mode=self.how(), vllm_importance_sampling_clip_max=self.option("sampler_is_threshold", 2.0),
                                         vllm_importance_sampling_clip_min=self.option("sampler_is_min", None))
        names = {"self": settings, "torch": torch, "math": math, "old_per_token_logps": old, "sampling_per_token_logps": sampled, "completion_mask": mask, "tool_mask": None}
        exec(compile(ast.Module(block.body, []), "TRL", "exec"), names)
        return names["vllm_importance_sampling_ratio"]

    def option(self, name, default):
        return self.settings.get(name, default)

    def logprobs(self, model, prompt, answer):
        """Of each token of an answer, at the temperature of sampling."""
        ids = torch.tensor([prompt + answer])
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1:-1] / self.option("temperature", 1.0)
        return logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0]

    def advantages(self):
        """By group; of answers without a reward none."""
        groups = [torch.tensor([a["reward"] for a in g["answers"]], dtype=torch.float64) for g in self.rollout["groups"]]
        everything, eps = torch.cat(groups), self.option("advantage_epsilon", 1e-6)
        for rewards in groups:
            above = rewards - rewards.mean()
            kind, scale = self.option("advantage_estimator", "grpo"), self.option("scale_rewards", "group")
            if kind == "rloo":
                above = torch.stack([rewards[i] - torch.cat([rewards[:i], rewards[i + 1:]]).mean() for i in range(len(rewards))])
            elif kind == "grpo" and scale != "none":
                above = above / ((rewards if scale == "group" else everything).std() + eps)
            yield above

    def masks(self, answer):
        return self.option("mask_truncated_completions", "false") == "true" and answer["truncated"]

    def counted(self, step):
        """(prompt, answer, advantage) of the answers that step `step` learns from."""
        return [row for row in self.compared(step) if not self.masks(row[1])]

    def compared(self, step):
        """The same, with those that are masked."""
        first = (step - 1) * MINI % PROMPTS
        for group, advantages in list(zip(self.rollout["groups"], self.advantages()))[first:first + MINI]:
            rewards = [a["reward"] for a in group["answers"]]
            if self.option("dynamic_sampling", "none") == "drop" and max(rewards) == min(rewards):
                continue
            for answer, advantage in zip(group["answers"], advantages):
                yield group["tokens"], answer, advantage

    def tokens_of_rollout(self):
        return sum(len(a["tokens"]) for step in range(1, PROMPTS // MINI + 1) for _, a, _ in self.counted(step))

    def loss(self, model, reference, step):
        """(loss, measures) of a step."""
        low, high, dual, beta = self.option("epsilon", 0.2), self.option("epsilon_high", self.option("epsilon", 0.2)), self.option("epsilon_c", None), self.option("beta", 0.04)
        by_answer, kls, clipped, ratios = [], [], [], []
        for prompt, answer, advantage in self.counted(step):
            logp, old = self.logprobs(model, prompt, answer["tokens"]), torch.tensor(answer["logprobs"], dtype=torch.float64)
            delta = logp - old
            whole = delta.mean().exp()
            if self.option("loss_algo", "grpo") == "gspo-token":
                delta = logp - logp.detach() + delta.mean().detach()
            ratio = delta.exp()
            one, two = -advantage * ratio, -advantage * ratio.clamp(1 - low, 1 + high)
            loss = torch.maximum(one, two)
            bounded = two > one
            if dual is not None and advantage < 0:
                bounded = bounded | (loss > -advantage * dual)
                loss = loss.clamp(max=(-advantage * dual).item())
            kl = torch.zeros_like(loss)
            if beta:
                with torch.no_grad():
                    expected = self.logprobs(reference, prompt, answer["tokens"])
                above = logp - expected
                weight = whole if self.option("loss_algo", "grpo") == "gspo-token" else ratio
                kl = (weight if self.option("use_bias_correction_kl", "false") == "true" else 1) * {"kl": above, "mse_kl": 0.5 * above ** 2, "low_var_kl": (-above).exp() + above - 1}[self.option("kl_loss_mode", "low_var_kl")]
            weight = self.correction(answer)
            by_answer.append(loss * weight + beta * kl)
            kls.append(kl.detach()), clipped.append((bounded & (weight > 0)).double()), ratios.append(ratio.detach())
        mode, count = self.option("loss_agg_mode", "sequence-mean-token-mean"), len(by_answer)
        if self.option("masked_completions_count", "false") == "true":
            count = len(list(self.compared(step)))
        if mode == "token-mean":
            loss = torch.cat(by_answer).mean()
        elif mode == "rollout-token-mean":
            loss = torch.cat(by_answer).sum() / (self.tokens_of_rollout() * MINI / PROMPTS)
        elif mode == "sequence-mean-token-mean":
            loss = torch.stack([l.mean() for l in by_answer]).sum() / count
        else:
            loss = torch.stack([l.sum() for l in by_answer]).sum() / count / (LONGEST if mode == "sequence-mean-token-scale" else 1)
        return loss, {"kl": torch.cat(kls).mean().item(), "clip_ratio": torch.cat(clipped).mean().item(), "ratio": torch.cat(ratios).mean().item()}

    def trl(self, model, reference, step):
        """TRL's loss of the same answers. In TRL a rollout serves steps_per_generation steps, and its dapo counts the tokens of all of them. With
        token-mean a step counts its own, which is TRL's loss of a rollout of one step."""
        steps = PROMPTS // MINI if self.option("loss_agg_mode", "") == "rollout-token-mean" else 1
        rows = list(self.compared(step))  # TRL masks the tokens of an answer, and keeps its row
        longest = max(len(a["tokens"]) for _, a, _ in rows)
        padded = lambda values: torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
        logps = padded([self.logprobs(model, p, a["tokens"]) for p, a, _ in rows])
        mask = padded([torch.full((len(a["tokens"]),), 0 if self.masks(a) else 1, dtype=torch.float64) for _, a, _ in rows])
        inputs = {"prompt_ids": torch.zeros(len(rows), 1, dtype=torch.long), "prompt_mask": torch.ones(len(rows), 1), "completion_ids": torch.zeros(len(rows), longest, dtype=torch.long),
                  "completion_mask": mask, "advantages": torch.stack([a for _, _, a in rows]), "num_items_in_batch": mask.sum() if steps == 1 else torch.tensor(float(self.tokens_of_rollout()), dtype=torch.float64),
                  "old_per_token_logps": padded([torch.tensor(a["logprobs"], dtype=torch.float64) for _, a, _ in rows])}
        beta = self.option("beta", 0.04)
        if beta:
            with torch.no_grad():
                inputs["ref_per_token_logps"] = padded([self.logprobs(reference, p, a["tokens"]) for p, a, _ in rows])
        corrects = self.how() != "none"
        if corrects:
            inputs["importance_sampling_ratio"] = self.theirs_of(inputs["old_per_token_logps"], padded([torch.tensor(a["sampled"], dtype=torch.float64) for _, a, _ in rows]), mask)
        trainer = unittest.mock.MagicMock()
        trainer._get_per_token_logps_and_entropies.return_value = (logps, torch.zeros_like(logps), None)
        trainer.configure_mock(top_entropy_quantile=1.0, off_policy_mask_threshold=None, beta=beta, loss_type=THEIRS[self.case], use_vllm=corrects, vllm_importance_sampling_correction=corrects, aux_loss_enabled=False,
                               importance_sampling_level="sequence" if self.option("loss_algo", "grpo") == "gspo-token" else "token", epsilon_low=self.option("epsilon", 0.2),
                               epsilon_high=self.option("epsilon_high", self.option("epsilon", 0.2)), max_completion_length=LONGEST, current_gradient_accumulation_steps=1,
                               _entropy_bonus_enabled=False)
        trainer.args.configure_mock(use_bias_correction_kl=self.option("use_bias_correction_kl", "false") == "true", delta=None, steps_per_generation=steps)
        trainer.accelerator.num_processes = 1
        trainer.accelerator.gather = trainer.accelerator.gather_for_metrics = lambda x: x
        return grpo_trainer.GRPOTrainer._compute_loss(trainer, types.SimpleNamespace(training=True), inputs)

    def against_formulas(self):
        model, reference = self.model(), self.model()  # as TRL copies the adapter that it is given
        values = {n: p for n, p in model.named_parameters() if p.requires_grad}
        optimizer = torch.optim.SGD(values.values(), lr=self.rate)
        rows = ring.metrics(self.one)
        with torch.no_grad():
            far = lambda model, key: max((self.logprobs(model, g["tokens"], a["tokens"]) - torch.tensor(a[key], dtype=torch.float64)).abs().max().item()
                                         for g in self.rollout["groups"] for a in g["answers"])
            in_bits = self.option("rollout_quantize", "none") != "none"
            corrects = self.how() != "none"
            drawn = far(self.sampler(), "sampled" if corrects else "logprobs")
            ring.require(drawn <= (IN_FOUR_BITS if in_bits else EQUAL), f"{self.what}: log-probabilities of sampling within {drawn:.1e} of transformers'")
            if in_bits:
                apart = far(model, "sampled" if corrects else "logprobs")
                ring.require(apart > 1e-3, f"{self.what}: those of the weights in all their bits are up to {apart:.1e} away")
            if corrects:
                anew = far(model, "logprobs")
                ring.require(anew <= EQUAL, f"{self.what}: computed anew they are within {anew:.1e} of transformers'")
                wanted, told = self.corrections_as_measured(), rows[1]["measures"]
                off = max(abs(told[f"sampler_is/{k}"] - v.item()) for k, v in wanted.items())
                ring.require(off <= EQUAL and told["sampler_is/cut"] > 0, f"{self.what}: metrics tell the weights within {off:.1e}, of which bounds changed {told['sampler_is/cut']:.0%}", str(told))
        off = max(abs(a["advantage"] - v.item()) for g, adv in zip(self.rollout["groups"], self.advantages()) for a, v in zip(g["answers"], adv))
        ring.require(off <= EQUAL, f"{self.what}: advantages within {off:.1e}")
        if self.option("mask_truncated_completions", "false") == "true":
            masked = [self.masks(a) for g in self.rollout["groups"] for a in g["answers"]]
            ring.require(any(masked) and not all(masked), f"{self.what}: {sum(masked)} of {len(masked)} answers are masked")
        worst, apart, apart_trl, seen = 0.0, 0.0, 0.0, set()
        for step in range(1, STEPS + 1):
            if not self.counted(step):  # equal rewards, or masks, leave no answer of the step
                ring.require(rows[step].get("loss") is None and rows[step]["grad_norm"] == 0, f"{self.what}: step {step} has no answer to learn from, and no loss", str(rows[step]))
                continue
            loss, measures = self.loss(model, reference, step)
            if self.case in THEIRS:
                theirs = self.trl(model, reference, step)
                want = torch.autograd.grad(theirs, list(values.values()), retain_graph=True)
                have = torch.autograd.grad(loss, list(values.values()), retain_graph=True)
                apart_trl = max(apart_trl, abs(theirs.item() - loss.item()), *((a - b).abs().max().item() for a, b in zip(want, have)))
            optimizer.zero_grad()
            loss.backward()
            norm = torch.stack([p.grad.norm() for p in values.values()]).norm().item()
            ours = rows[step]
            pairs = [(ours["loss"], loss.item()), (ours["grad_norm"], norm), *((ours["measures"][k], v) for k, v in measures.items())]
            worst = max(worst, *(abs(x - y) / max(1, abs(y)) for x, y in pairs))
            seen.add(measures["clip_ratio"] > 0)
            ring.require(worst <= EQUAL, f"{self.what}: step {step} within {worst:.1e}", f"{ours} {loss.item()!r} {norm!r} {measures}")
            if step <= PROMPTS // MINI and step == 1:
                off = abs(ours["measures"]["ratio"] - 1)
                if in_bits and not corrects:
                    ring.require(off > 1e-6, f"{self.what}: the first ratio is that of all bits to 4", str(off))
                else:
                    # In float64 LibTorch multiplies, whose sums depend on the number of rows on some processors; on_mesh() asks for the very bits.
                    ring.require(off <= 1e-12, f"{self.what}: the first ratio is 1", str(off))
            optimizer.step()
            # The next step begins at the run's own values: steps that go far would make much of the last bits of this one.
            after = tuning.trained(self.one / f"step-{step:08}")
            for name, p in values.items():
                ours = after[f"{name.removeprefix(tuning.PREFIX).replace('.default', '')}.master"]
                apart = max(apart, tuning.far(ours, p.detach()))
                p.data.copy_(ours)
        ring.check(max(apart, apart_trl) <= EQUAL, f"{self.what}: {STEPS} steps within {worst:.1e} of the formulas, values within {apart:.1e}"
                   + (f", TRL's losses and gradients within {apart_trl:.1e}" if self.case in THEIRS else "") + (", some ratios are clipped" if True in seen else ""))

    def on_mesh(self, mesh):
        """Bits are compared in float32, where Trireme's own kernels multiply: then a row has the same bits in any batch. On a
        processor without such kernels values are compared, in float64."""
        settings, exact = MESHES[mesh]
        exact = exact and ring.multiplies_alike()
        one = self.one
        if exact:
            settings = settings | {"precision": "32-true"}
            self.narrow = one = getattr(self, "narrow", None) or self.tune("32-true", precision="32-true")
            ratio = ring.metrics(one)[1]["measures"]["ratio"]
            ring.require(ratio == 1 or self.option("rollout_quantize", "none") != "none" or self.how() != "none", f"{self.what}: the first ratio is exactly 1", str(ratio))
        other = self.tune(mesh, **settings)
        tuning.check_mesh(f"{self.what}, {mesh}", other, one, exact, MESH, STEPS)

    def ratio_begins_at_one(self):
        """Where ranks divide the sequences that they learn from, sums have another order than in sampling."""
        first = {}
        for kept in ("true", "false"):
            run = self.tune(f"logps {kept}", devices=2, mesh__cp=2, precision="32-true", train__max_steps=1, grpo__use_rollout_logps=kept)
            first[kept] = ring.metrics(run)[1]["measures"]["ratio"]
        ring.check(abs(first["true"] - 1) < 1e-5 and first["false"] == 1, f"{self.what}: with cp 2, log-probabilities that are computed anew make the first ratio exactly 1 "
                   f"(those of sampling: 1 {first['true'] - 1:+.0e})", str(first))

    def ratio_in_bfloat16(self):
        """Logits in bfloat16 are divided by the temperature in float32, in sampling and in training."""
        run = self.tune("bf16", precision="bf16-mixed", train__max_steps=1)
        ratio = ring.metrics(run)[1]["measures"]["ratio"]
        exact = ring.multiplies_alike() and not ring.processor_has("amx_bf16")  # whose products are LibTorch's
        ring.check(ratio == 1 if exact else abs(ratio - 1) < 1e-2, f"{self.what}: the first ratio in bfloat16 is {'exactly' if exact else 'about'} 1", str(ratio))

    def plans_the_sampler(self):
        """explain memory has a line for answers in 4 bits, and the run tells the same bytes."""
        words, _ = self.command("explained")
        result = self.r.run([words[0], "explain", "memory", words[2], "--task", "rewards", *words[3:]])
        lines = [line for line in result.out.splitlines() if line.startswith("  answers in few bits")]
        told = ring.metrics(self.one)[1]["measures"]["memory/quantized_sampling_bytes"]
        ring.check(result.code == 0 and len(lines) == 1 and f"{told / 2 ** 20:.2f}" in lines[0], f"{self.what}: explain memory has {lines}, as metrics tell ({told:.0f} bytes)", str(result))

    def resumes(self):
        """A run that stops between two steps of a rollout goes on with the same answers."""
        run = self.tune("resumed", train__max_steps=1)
        result = self.r.run([self.r.program, "pretrain", "--resume", str(run), "--out_dir", str(run), "--train.max_steps", str(STEPS)])
        ring.require(result.code == 0, "a run is resumed inside a rollout", str(result))
        a, b = tuning.trained(run / f"step-{STEPS:08}"), tuning.trained(self.one / f"step-{STEPS:08}")
        ring.check(a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in b), f"{self.what}: a run that is resumed inside a rollout has the bits of one that was not stopped")


def main():
    with ring.Ring(sys.argv[1]) as r:
        every = [(f, c, k) for f in FAMILIES for c in CASES for k in ("full", "lora")]
        for number, case in enumerate(tuning.chosen_cases(sys.argv[2:], every, QUICK)):
            judged = Judged(r, *case)
            judged.against_formulas()
            if case[1] == "grpo warm":
                judged.ratio_in_bfloat16()
            if (number == 0 and not sys.argv[2:]) or ring.SLOW:
                for mesh in MESHES:
                    judged.on_mesh(mesh)
                judged.resumes()
                if case[1] != "nf4 uncorrected":
                    judged.ratio_begins_at_one()
            elif case[1] == "nf4 token":
                for mesh in OF_ANSWERS:
                    judged.on_mesh(mesh)
                judged.resumes()
                judged.plans_the_sampler()


main()
