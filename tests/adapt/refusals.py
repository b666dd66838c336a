"""What fine-tuning refuses: one sentence each that names the thing, the rule and the way out, and exit code 2.

refusals.py TRIREME
"""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import tuning
from tuning import peft, ring, safetensors, torch

UGLY = ("Traceback", "terminate called", "std::", "c10::", "Exception raised", "json.exception", "internal error")


def write_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def files(r):
    """Data that lacks what is to be learned."""
    write_lines(r.folder / "no-column.jsonl", *({"question": "the sea?", "output": "calm"} for _ in range(4)))
    write_lines(r.folder / "no-reply.jsonl", *({"messages": [{"role": "user", "content": "the sea?"}]} for _ in range(4)))
    unlearned = [{"role": "user", "content": "the sea?"}, {"role": "assistant", "content": "calm", "weight": 0}]
    write_lines(r.folder / "unlearned.jsonl", *({"messages": unlearned} for _ in range(4)))


def changed_base(base, folder):
    """The base, of which one weight changed."""
    tuning.make_base("llama 2", folder)
    weights = safetensors.load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.weight"][0, 0] += 1
    safetensors.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def refused(r, what, command, *words):
    result = r.run(command)
    said = result.err.strip()
    missing = [word for word in words if word not in said]
    ugly = [word for word in UGLY if word in result.text]
    ring.check(result.code == 2 and not missing and not ugly and said.count("error:") == 1 and len(said.splitlines()) <= 4,
               f"refused: {what}\n        {said}", f"lacks {missing}, says {ugly}\n{result}")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    files(r)
    tuning.write_conversations(r.folder / "chat.jsonl")
    base = tuning.make_base("llama 2", r.folder / "base")
    other = tuning.make_base("smollm2", r.folder / "other")
    adapter = tuning.initial_adapter(base, r.folder / "adapter", tuning.lora_config("llama 2"))
    of_other = tuning.initial_adapter(other, r.folder / "of-other", tuning.lora_config("smollm2"))
    tune = lambda **settings: tuning.command(r, base, "none", **settings)
    run = tuning.tune(r, base, "run", train__max_steps=1)

    shape = ["q_proj", "lora_", "another base"]
    refused(r, "an adapter of another base to start from", tune(adapter=of_other), "of-other", *shape)
    refused(r, "rank 0", tune(lora__r=0), "lora.r", "at least 1")
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"r": 0}))
    refused(r, "an adapter of rank 0", tune(adapter=adapter), "rank", "must be at least 1")
    refused(r, "targets that match nothing", tune(lora__target_modules="qproj"), "qproj", "q_proj")
    refused(r, "a regular expression that matches nothing", tune(lora__target_modules=r".*layers\.77\..*"), "layers", "fits no module", "q_proj")
    embedding = {"lora__r": 4, "lora__target_modules": "[q_proj,embed_tokens]"}
    refused(r, "magnitudes of an embedding", tune(**embedding, lora__dora="true"), "model.embed_tokens", "lora.dora false")
    refused(r, "LoRA+ with an embedding", tune(**embedding, lora__plus_ratio=4), "lora.plus_ratio", "model.embed_tokens")
    refused(r, "a bias of an embedding", tune(**embedding, lora__bias="true"), "lora_bias", "model.embed_tokens")
    gpt2 = tuning.make_base("gpt2", r.folder / "gpt2")
    refused(r, "an adapter of positions", tuning.command(r, gpt2, "none", lora__r=4, lora__target_modules="[c_attn,wpe]"), "transformer.wpe", "lora.target_modules")
    # Its rows do not divide into blocks either, but no format would help.
    refused(r, "blocks of a model that stores its matrices transposed", tuning.command(r, gpt2, "none", lora__r=4, quantize="q8_0"), "models of type gpt2 store their matrices transposed",
            "or leave quantize out")
    refused(r, "a column that is not there", tune(data="no-column.jsonl"), "no-column.jsonl", "instruction")
    refused(r, "conversations without a reply", tune(data="no-reply.jsonl"), "no-reply.jsonl", "nothing would be learned")
    refused(r, "a mask of all zeros", tune(data="unlearned.jsonl"), "unlearned.jsonl", "nothing would be learned")

    changed_base(base, r.folder / "changed")
    checkpoint = run / "step-00000001"
    resumed = lambda of: tuning.command(r, of, "run", resume=checkpoint, train__max_steps=2)
    refused(r, "a run whose base is another now", resumed(r.folder / "changed"), "base")
    refused(r, "all weights in the folder of adapters", [r.program, "finetune_full", "--resume", run, "--train.max_steps", "2"], "trains adapters", "trireme pretrain --resume")
    again = ["finetune_full", base, "--data", "JSON", "--data.json_path", r.folder / "chat.jsonl", "--data.chat_template", "chatml", "--lora.r", 4, "--train.max_steps", 1,
             "--train.max_seq_length", 96, "--out_dir", r.folder / "typed"]
    for resume in ([], ["--resume", "auto"]):
        begun = r.run([r.program, *map(str, [*again, *resume])])
        ring.check(begun.code == 0, "the command that began a run of adapters goes on with it", str(begun))
    command = tuning.command(r, run, "none", lora__r=4)
    refused(r, "an adapter in the place of a model", command, "is an adapter", "--lora.initial_adapter", "trireme merge_lora")
    rewarded = [r.program, "grpo", base, "--grpo.prompts", r.folder / "chat.jsonl", "--grpo.beta", "0.1", "--grpo.reference", checkpoint, "--reward.functions", "[exact]",
                "--grpo.max_prompt_length", "8", "--grpo.max_completion_length", "8"]
    for words in ([], ["--dry_run"]):
        refused(r, "an adapter as reference of rewards", [*rewarded, *words], "grpo.reference: ", "is an adapter, and this run trains all weights", "trireme merge_lora")
    refused(r, "an adapter of another configuration as reference", [*rewarded, "--lora.r", "3"], "grpo.reference: ", "is an adapter of another configuration", "trireme merge_lora")
    generate = lambda adapter: [r.program, "generate", base, "--adapter", adapter, "--prompt", "the"]
    if "generate.adapter" in r.run([r.program, "help", "generate"]).out:
        refused(r, "an adapter of another base to generate with", generate(of_other), "of-other", *shape)
        merge = [r.program, "merge_lora", of_other, "--base", base, "--out", r.folder / "merged"]
        refused(r, "an adapter of another base to merge", merge, "of-other", *shape)
    else:
        print("left out: generate takes no --adapter yet")
    (r.folder / "changed" / "model.safetensors").replace(base / "model.safetensors")
    refused(r, "a checkpoint whose base changed since", resumed(base), "base", "changed")
    if "generate.adapter" in r.run([r.program, "help", "generate"]).out:
        refused(r, "and to generate with", generate(checkpoint), "base", "changed")
    (base / "model.safetensors").unlink()
    refused(r, "a checkpoint whose base is gone", resumed(base), "base")
