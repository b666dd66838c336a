#!/usr/bin/env python3
"""The peer on pairs of replies: TRL's own DPOTrainer under DDP over Gloo, with PEFT's adapters or all weights.

    python peer_trl.py --base FOLDER --targets all-linear --r 8 --steps 6 --json out.json

TRL's own defaults: computing in bf16 by autocast; with adapters the base is in the dtype of its files (bf16). The peer is
not handicapped: its reference is computed before the clock starts (precompute_ref_log_probs), activations are kept, AdamW
is the fused one, each rank is pinned to a core, and a step is timed without the loading of its batch.
"""
import json
import os
import resource
import socket
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../vs_pytorch"))
import peer
from base import END
from shapes import BETA1, BETA2, LEARNING_RATE, MAX_NORM, WEIGHT_DECAY


def trainer_of(arguments, folder):
    import datasets
    import peft
    import torch
    import transformers
    from trl import DPOConfig, DPOTrainer
    datasets.disable_progress_bars()
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.base, dtype=torch.float32 if arguments.full else torch.bfloat16, attn_implementation="sdpa")
    adapters = None if arguments.full else peft.LoraConfig(r=arguments.r, lora_alpha=2 * arguments.r, lora_dropout=0.0, target_modules=arguments.targets, task_type="CAUSAL_LM")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{arguments.base}/tokenizer/tokenizer.json", eos_token=END, pad_token=END)
    steps = arguments.warmup + arguments.steps
    pairs = datasets.Dataset.from_json(f"{arguments.base}/pairs.jsonl")  # its cache is where the ranks meet over tokens
    rows = pairs.select(list(range(len(pairs))) * steps)
    config = DPOConfig(output_dir=folder, use_cpu=True, bf16=True, ddp_backend="gloo", report_to=[], disable_tqdm=True, save_strategy="no", logging_steps=1,
                       max_steps=steps, per_device_train_batch_size=arguments.micro_batch_size, max_length=arguments.max_seq_length // 2,
                       precompute_ref_log_probs=True, gradient_checkpointing=False, optim="adamw_torch_fused", learning_rate=LEARNING_RATE,
                       lr_scheduler_type="constant", adam_beta1=BETA1, adam_beta2=BETA2, weight_decay=WEIGHT_DECAY, max_grad_norm=MAX_NORM)
    return DPOTrainer(model=model, train_dataset=rows, processing_class=tokenizer, args=config, peft_config=adapters)


def train(arguments, rank):
    import torch
    import transformers
    torch.set_num_threads(arguments.threads)
    seconds = []

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.begin = time.perf_counter()

        def on_step_end(self, *_, **__):
            seconds.append(time.perf_counter() - self.begin)
            if len(seconds) == 1 and rank == 0:
                print(f"{peer.FIRST_STEP}, {seconds[0]:.3f} s", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(arguments, folder)
        trainer.add_callback(Clock())
        trainer.train()
    if rank == 0 and arguments.json:
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        result = dict(losses=losses, step_seconds=seconds[arguments.warmup:], warmup_seconds=seconds[:arguments.warmup],
                      tokens_per_step=arguments.devices * arguments.micro_batch_size * arguments.max_seq_length,
                      trained=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad), peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)
    sys.stdout.flush()
    os._exit(0)


def main():
    arguments = peer.parse_arguments()
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as cache:
            os.environ.update(WORLD_SIZE=str(arguments.devices), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), HF_DATASETS_CACHE=cache, HF_DATASETS_OFFLINE="1",
                              TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
            status = peer.start_ranks(arguments)
        sys.exit(status)
    rank, threads, cores = int(os.environ["RANK"]), arguments.threads, sorted(os.sched_getaffinity(0))
    os.environ["LOCAL_RANK"] = str(rank)
    # Before torch starts its threads, so that they stay there too.
    os.sched_setaffinity(0, {cores[(rank * threads + i) % len(cores)] for i in range(threads)})
    train(arguments, rank)


if __name__ == "__main__":
    main()
