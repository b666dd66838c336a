#!/usr/bin/env python3
"""The recipe of examples/grpo/sums by TRL's GRPOTrainer, on ranks of Accelerate over Gloo.

    python trl_peer.py --base out/sums/base/step-00002000 --prompts out/sums/sums.jsonl --steps 20 --json out.json

The trainer as it comes, without vLLM: transformers generates, all prompts have one length so that nothing is padded, and nothing is
recomputed. It learns from groups without a spread, too, whose gradient is 0.
"""
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "vs_pytorch"))
from peer import parse_arguments
from ranks import run_ranks


def start_ranks(devices):
    """Runs this file once per rank, each on a core of its own; returns the first exit status that is not 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = dict(os.environ, WORLD_SIZE=str(devices), LOCAL_WORLD_SIZE=str(devices), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                  MKL_NUM_THREADS="1", ACCELERATE_USE_CPU="true", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
    return run_ranks([sys.executable, __file__, *sys.argv[1:]], devices, shared)


def byte_tokenizer():
    """A token for each byte; a full stop ends a text."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.WordLevel({chr(i): i for i in range(256)}, unk_token=chr(0)))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=".", pad_token=chr(0), padding_side="left")


def main():
    arguments = parse_arguments(__doc__)
    if "RANK" not in os.environ:
        sys.exit(start_ranks(arguments.devices))
    rank = int(os.environ["RANK"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(arguments.base, dtype=torch.float32)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = ord("."), 0
    rows = [json.loads(line) for line in open(arguments.prompts)]
    means, ends = [], [time.perf_counter()]

    def exact(completions, answer, **_):
        rewards = [float(text == right) for text, right in zip(completions, answer)]
        means.append(statistics.mean(rewards))
        return rewards

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=arguments.batch_size * arguments.num_generations // arguments.devices, gradient_accumulation_steps=1,
            num_generations=arguments.num_generations, max_completion_length=arguments.completion, temperature=1.0, beta=0.0, epsilon=0.2, loss_type="dapo",
            scale_rewards="group", learning_rate=arguments.lr, adam_beta1=0.9, adam_beta2=0.99, weight_decay=0.0, max_grad_norm=1.0, optim="adamw_torch_fused",
            lr_scheduler_type="constant", max_steps=arguments.warmup + arguments.steps, bf16=arguments.precision == "bf16-mixed", gradient_checkpointing=False,
            use_cpu=True, ddp_backend="gloo", ddp_find_unused_parameters=False, save_strategy="no", logging_steps=1000000, report_to="none", disable_tqdm=True, seed=1)
        trainer = GRPOTrainer(model=model, reward_funcs=exact, args=config, processing_class=byte_tokenizer(),
                              train_dataset=Dataset.from_list([{"prompt": row["prompt"], "answer": row["answer"]} for row in rows]), callbacks=[Clock()])
        trainer.train()
    if rank == 0:
        seconds = [end - begin for begin, end in zip(ends, ends[1:])][arguments.warmup:]
        result = dict(step_seconds=seconds, median_seconds=statistics.median(seconds), rewards=means)
        print(json.dumps({key: value for key, value in result.items() if key != "step_seconds"}))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
