#!/usr/bin/env python3
"""Preferences as TRL computes them: losses, rewards, gradients and steps of AdamW in float64, then the same on meshes.

preferences_judge.py TRIREME [CASE ...]
The judge takes each step's pairs from the run's ledger and gives them to TRL's own collator and loss. TRIREME_SLOW=1:
every loss and every mesh; otherwise a sample.
"""

import itertools
import json
import os
import random
import sys
import unittest.mock

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1", HF_DATASETS_OFFLINE="1")
import tuning
from tuning import peft, ring, torch, transformers

import dropout_mask
import tiny_models
import wide

datasets, dpo, orpo, cpo, utils = ring.judges("datasets", "trl.trainer.dpo_trainer", "trl.experimental.orpo", "trl.experimental.cpo", "trl.experimental.utils")
datasets.disable_progress_bars()
from trl import DPOConfig
from trl.kernels import chunked_logprob


def in_float64(function):
    """With float64 where TRL asks for float32."""
    def called(*values):
        with unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            return function(*values)
    return called


chunked_logprob.torch = wide.WideTorch()
for kind in vars(chunked_logprob).values():
    if isinstance(kind, type) and issubclass(kind, torch.autograd.Function):
        kind.forward, kind.backward = staticmethod(in_float64(kind.forward)), staticmethod(in_float64(kind.backward))
orpo.ORPOTrainer.odds_ratio_loss = in_float64(orpo.ORPOTrainer.odds_ratio_loss)

STEPS, BATCH, LENGTH = 4, 4, 64
EQUAL, MESH = 1e-9, 1e-10
BETA1, BETA2, DECAY = 0.9, 0.999, 0.01
CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Of replies that end the conversation, as Qwen3's own template.
THOUGHT = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
CHATML = CHATML.replace("{{ m['content'] }}", "{% if m['role'] == 'assistant' and loop.last %}" + THOUGHT + "{% endif %}{{ m['content'] }}")
CHATML = CHATML.replace("assistant\n{% endif %}", "assistant\n" + THOUGHT + "{% endif %}")

# name: (losses, weights, other options of TRL's DPOConfig)
LOSSES = {
    "sigmoid": (["sigmoid"], None, {}),
    "sigmoid_norm": (["sigmoid_norm"], None, {"beta": 2.0}),
    "hinge": (["hinge"], None, {"beta": 0.5}),
    "ipo": (["ipo"], None, {"beta": 0.3}),
    "exo_pair": (["exo_pair"], None, {"label_smoothing": 1e-3}),
    "robust": (["robust"], None, {"label_smoothing": 0.1}),
    "nca_pair": (["nca_pair"], None, {}),
    "bco_pair": (["bco_pair"], None, {}),
    "sppo_hard": (["sppo_hard"], None, {}),
    "apo_zero": (["apo_zero"], None, {}),
    "apo_down": (["apo_down"], None, {}),
    "discopop": (["discopop"], None, {}),
    "sigmoid and sft": (["sigmoid", "sft"], [1.0, 0.5], {}),
    "orpo": (["orpo"], None, {}),
    "simpo": (["simpo"], None, {"beta": 2.0, "simpo_gamma": 0.5}),
}
QUICK = [("llama", "sigmoid", "chat"), ("llama", "ipo", "text"), ("gemma3", "sigmoid and sft", "chat"), ("qwen3", "robust", "lora"),
         ("llama", "sigmoid and sft", "long"), ("llama", "sigmoid", "unthinking"), ("llama", "orpo", "text"), ("llama", "simpo", "text"), ("gpt2", "exo_pair", "text")]
FAMILIES = {"llama": "llama 2", "qwen3": "qwen3", "gemma3": "gemma3", "gpt2": "gpt2"}

MESHES = {
    "full_shard 2": ({"devices": 2, "strategy": "full_shard"}, True),
    "two at once": ({"train__micro_batch_size": 2}, False),
    "tp 2 sequence": ({"devices": 2, "mesh__tp": 2, "mesh__sequence_parallel": "true"}, False),
    "pp 2 1f1b": ({"devices": 2, "mesh__pp": 2, "pipeline__schedule": "1f1b"}, False),
    "pp 2 zb_v": ({"devices": 2, "mesh__pp": 2, "pipeline__schedule": "zb_v"}, False),
    "cp 2": ({"devices": 2, "mesh__cp": 2}, False),
    "recompute": ({"recompute": "full"}, True),
}


def make_wide_base(folder):
    """With a vocabulary so large that the head computes in several chunks of rows."""
    config = transformers.LlamaConfig(vocab_size=17_000, hidden_size=32, num_hidden_layers=2, intermediate_size=48, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=1024)
    torch.manual_seed(3)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(300, tuning.SPECIAL))


def write_pairs(path, kind, count=24, seed=5):
    source = random.Random(seed)
    times = 14 if kind == "long" else 1
    words = lambda most: " ".join(source.choice(ring.WORDS) for _ in range(times * source.randint(1, most)))
    with open(path, "w") as out:
        for number in range(count):
            prompt, chosen, rejected = words(2), words(2) + ".", words(2) + "!"
            if kind in ("chat", "unthinking"):
                said = lambda role, text: [{"role": role, "content": text}]
                record = {"prompt": said("user", prompt), "chosen": said("assistant", chosen), "rejected": said("assistant", rejected)}
                if kind == "unthinking":
                    record["chat_template_kwargs"] = {"enable_thinking": False}
                elif number % 2:  # the prompt is what both begin with
                    record = {k: record["prompt"] + record[k] for k in ("chosen", "rejected")}
            else:
                record = {"prompt": prompt, "chosen": " " + chosen, "rejected": " " + rejected}
            out.write(json.dumps(record) + "\n")
    return path


class Judged:
    def __init__(self, r, family, loss, kind):
        self.r, self.what = r, f"{family}, {loss}, {kind}"
        self.losses, self.weights, self.options = LOSSES[loss]
        self.lora = kind == "lora"
        self.kind = "chat" if kind == "lora" else kind
        self.length = 256 if kind == "long" else LENGTH
        self.base = r.folder / (f"{family}-wide" if kind == "long" else family)
        if not self.base.exists():
            make_wide_base(self.base) if kind == "long" else tuning.make_base(FAMILIES[family], self.base)
            (self.base / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        self.name = FAMILIES[family]
        self.pairs = write_pairs(r.folder / f"{self.kind}.jsonl", self.kind)
        self.adapter = None
        if self.lora:
            self.adapter = r.folder / "start"
            config = tuning.lora_config(self.name, target_modules="all-linear", lora_dropout=0.1)  # which nobody applies
            tuning.initial_adapter(self.base, self.adapter, config)  # the reference has it, too
        self.one = self.tune("one", train__save_interval=1, save__keep_last=0)

    def tune(self, what, **settings):
        out = f"{self.what} {what}".replace(" ", "-").replace(",", "")
        ours = {"dpo__loss_type": f"[{', '.join(self.losses)}]", "train__max_steps": STEPS, "train__max_seq_length": 2 * self.length,
                "train__global_batch_size": BATCH} | {f"dpo__{k}": v for k, v in self.options.items()}
        if self.weights:
            ours["dpo__loss_weights"] = str(self.weights)
        return tuning.tune(self.r, self.base, out, self.adapter, data=self.pairs.name, subcommand="finetune_dpo", **(ours | settings))

    def records(self):
        """{step: numbers of its pairs}"""
        steps = {}
        for path in (self.one / "ledger").glob("rank*.jsonl"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                for sample in row["samples"]:
                    steps.setdefault(row["step"], []).extend(part["documents"][0] for part in sample["parts"])
        return steps

    def tokenizer(self):
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(self.base / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|im_end|>")
        tokenizer.chat_template = CHATML
        return tokenizer

    def theirs(self):
        """(model in float64, loss of the pairs with these numbers, metrics)"""
        model = tuning.load_base(self.base)
        if self.lora:
            model = peft.PeftModel.from_pretrained(model, self.adapter, is_trainable=True)
        wide.widen(model)
        read = [json.loads(line) for line in self.pairs.read_bytes().splitlines()]
        records = datasets.Dataset.from_list([record if "prompt" in record else dpo.extract_prompt(record) for record in read])
        common = {"output_dir": str(self.r.folder / "trl"), "report_to": [], "use_cpu": True, "bf16": False, "fp16": False, "max_length": self.length,
                  "per_device_train_batch_size": BATCH, "gradient_checkpointing": False}
        if self.losses[0] in ("orpo", "simpo"):
            return model, *self.without_reference(model, records, common)
        reference = None if self.lora else wide.widen(tuning.load_base(self.base))
        trainer = dpo.DPOTrainer(model=model, ref_model=reference, train_dataset=records, processing_class=self.tokenizer(),
                                 args=DPOConfig(loss_type=self.losses, loss_weights=self.weights, **common, **self.options))

        def loss(numbers):
            inputs = trainer.data_collator([trainer.train_dataset[i] for i in numbers])
            torch.set_default_dtype(torch.float64)  # of exo_pair's share
            try:
                return trainer._compute_loss(trainer.model, inputs, False)
            finally:
                torch.set_default_dtype(torch.float32)

        return trainer.model, loss, lambda key: trainer._metrics["eval"][key][-1] if trainer._metrics["eval"].get(key) else trainer._metrics["train"][key][-1]

    def without_reference(self, model, records, common):
        is_orpo = self.losses == ["orpo"]
        kind, config = (orpo.ORPOTrainer, orpo.ORPOConfig) if is_orpo else (cpo.CPOTrainer, cpo.CPOConfig)
        more = self.options if is_orpo else {"loss_type": "simpo", "cpo_alpha": 0.0} | self.options
        # These trainers put one more end of text behind the template's; it is left out here.
        ends = (lambda eos, *replies: replies) if self.kind == "chat" else utils.add_eos_token_if_needed
        with unittest.mock.patch.object(orpo.orpo_trainer, "add_eos_token_if_needed", ends), unittest.mock.patch.object(cpo.cpo_trainer, "add_eos_token_if_needed", ends):
            trainer = kind(model=model, train_dataset=records, processing_class=self.tokenizer(), args=config(**common, **more))
        metrics = {}

        def loss(numbers):
            batch = trainer.data_collator([trainer.train_dataset[i] for i in numbers])
            value, found = trainer.get_batch_loss_metrics(model, batch)
            metrics.update(found)
            return value

        return loss, lambda key: float(metrics[key])

    def against_trl(self):
        model, loss_of, metric = self.theirs()
        model.eval()
        values = [p for p in model.parameters() if p.requires_grad]
        groups = [{"params": [p for p in values if p.dim() == 2], "weight_decay": DECAY}, {"params": [p for p in values if p.dim() != 2], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=tuning.RATE, betas=(BETA1, BETA2), eps=1e-8)
        ours, records, rows = tuning.losses(self.one), self.records(), ring.metrics(self.one)
        worst, worst_reward, gradients = 0.0, 0.0, {}
        for step in range(1, STEPS + 1):
            loss = loss_of(records[step])
            optimizer.zero_grad()
            loss.backward()
            if step == 1:
                gradients = {self.ours_of(n): p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
            worst = max(worst, abs(ours[step - 1] - loss.item()))
            ring.require(worst <= EQUAL, f"{self.what}: loss of step {step} within {worst:.1e} of TRL's", f"{ours[step - 1]!r} {loss.item()!r}")
            for name in ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"):
                worst_reward = max(worst_reward, abs(rows[step]["measures"][name] - metric(name)))
            optimizer.step()
        moments = tuning.trained(self.one / "step-00000001")
        prefix = "" if self.lora or f"{next(iter(gradients))}.exp_avg" in moments else "transformer."
        found = {name: moments.get(f"{name}.exp_avg", moments.get(f"{name.removeprefix('transformer.')}.exp_avg")) for name in gradients}
        missing = [n for n, m in found.items() if m is None]
        ring.require(not missing, f"{self.what}: the checkpoint has all gradients", f"{missing[:3]} {sorted(moments)[:4]} {prefix}")
        off = max(((found[n] / (1 - BETA1) - g).norm() / max(g.norm(), 1e-30)).item() for n, g in gradients.items() if g.norm() > 0)
        last = tuning.trained(self.one / f"step-{STEPS:08}")
        apart = max(tuning.far(self.judged(n, last.get(f"{n}.master", last.get(f"{n.removeprefix('transformer.')}.master"))), self.judged(n, p.detach()))
                    for n, p in ((self.ours_of(n), p) for n, p in model.named_parameters() if p.requires_grad))
        ring.check(max(off, apart, worst_reward) <= EQUAL,
                   f"{self.what}: {STEPS} losses within {worst:.1e} of TRL's, rewards {worst_reward:.1e}, {len(gradients)} gradients within {off:.1e}, values {apart:.1e}")

    @staticmethod
    def judged(name, values):
        """Without GPT-2's biases of keys: their gradients are 0, and AdamW makes steps of the noise in them, which no two programs share."""
        if not name.endswith("c_attn.bias"):
            return values
        query, _, value = values.chunk(3)
        return torch.cat([query, value])

    @staticmethod
    def ours_of(name):
        return name.removeprefix(tuning.PREFIX).replace(".default", "")

    def on_mesh(self, mesh, one=None, **more):
        settings, exact = MESHES[mesh]
        other = self.tune(f"packed {mesh}" if more else mesh, **(settings | more))
        tuning.check_mesh(f"{self.what}, {mesh}", other, one or self.one, exact, MESH, STEPS)

    def packed(self):
        more = {"data__packing": "best_fit", "train__global_batch_size": 2}
        one = self.tune("packed", **more)
        for mesh in MESHES if ring.SLOW else ("full_shard 2", "cp 2"):
            if mesh != "two at once":
                self.on_mesh(mesh, one, **more)


def resumes(judged):
    """A run that stops after two steps and goes on equals one that does not, although its references' file is gone."""
    run = judged.tune("resumed", train__max_steps=2)
    for cache in (run / "tokens").glob("references-*.bin"):
        cache.unlink()
    result = judged.r.run([judged.r.program, "pretrain", "--resume", str(run), "--out_dir", str(run), "--train.max_steps", str(STEPS)])
    ring.require(result.code == 0, "a run is resumed without its references' file", str(result))
    a, b = tuning.trained(run / f"step-{STEPS:08}"), tuning.trained(judged.one / f"step-{STEPS:08}")
    ring.check(a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in b), f"{judged.what}: a resumed run has the bits of one that was not stopped")


def smoothed(r):
    """Label smoothing, z-loss and NEFTune beside PyTorch's, in ten steps of fine-tuning, and on tensor-parallel ranks."""
    smoothing, z, alpha, steps, seed = 0.1, 1e-3, 5.0, 10, 42
    base, settings = r.folder / "smoothed-base", {"objective__label_smoothing": smoothing, "objective__z_loss": z, "objective__neftune_alpha": alpha,
                                                  "seed": seed, "subcommand": "finetune_full"}
    tuning.make_base("gemma3", base)
    tuning.write_conversations(r.folder / "chat.jsonl")
    one = tuning.tune(r, base, "smoothed", **settings)
    model, batches = wide.widen(tuning.load_base(base)), tuning.Batches(one)
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": DECAY}, {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=tuning.RATE, betas=(BETA1, BETA2), eps=1e-8)
    worst = 0.0
    for step, ours in enumerate(tuning.losses(one), 1):
        ids, targets, positions, documents = batches.step(step)
        rows, width = ids.shape[1], model.config.hidden_size
        keys = dropout_mask.keys_of(seed, step, range(ids.shape[0]), rows, "embedding.noise")
        noise = torch.from_numpy(2.0 * dropout_mask.hashes(keys, width) / 2**32 - 1) * alpha / (rows * width) ** 0.5
        hook = model.get_input_embeddings().register_forward_hook(lambda module, given, out: out + noise)
        logits = model(input_ids=ids, attention_mask=tuning.attention_masks(model, documents), position_ids=positions, use_cache=False).logits.flatten(0, 1)
        hook.remove()
        learned = targets.flatten() != -100
        loss = torch.nn.functional.cross_entropy(logits, targets.flatten(), label_smoothing=smoothing, reduction="sum", ignore_index=-100)
        loss = (loss + z * logits.logsumexp(1).square()[learned].sum()) / learned.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worst = max(worst, abs(ours - loss.item()))
    ring.check(worst <= EQUAL, f"label smoothing, z-loss and NEFTune: {steps} losses within {worst:.1e} of PyTorch's")
    for mesh in ("full_shard 2", "tp 2 sequence"):
        other = tuning.tune(r, base, f"smoothed-{mesh.replace(' ', '-')}", **(settings | MESHES[mesh][0]))
        tuning.check_mesh(f"label smoothing, z-loss and NEFTune, {mesh}", other, one, MESHES[mesh][1], MESH, steps)


def main():
    with ring.Ring(sys.argv[1]) as r:
        every = [*itertools.product(FAMILIES, LOSSES, ("chat", "text", "lora")), ("llama", "sigmoid", "unthinking")]
        for number, case in enumerate(tuning.chosen_cases(sys.argv[2:], every, QUICK)):
            judged = Judged(r, *case)
            judged.against_trl()
            if (number == 0 and not sys.argv[2:]) or ring.SLOW:
                for mesh in MESHES:
                    judged.on_mesh(mesh)
                judged.packed()
                resumes(judged)
            elif judged.lora:
                resumes(judged)
            elif judged.losses == ["orpo"]:
                judged.on_mesh("cp 2")
            elif judged.length > LENGTH:
                for mesh in ("full_shard 2", "two at once"):
                    judged.on_mesh(mesh)
        if not sys.argv[2:]:
            smoothed(r)


main()
