"""A folder that becomes 4 bits while it is read never stands in memory with all its bits.

quantized_loading.py TRIREME
The peak of a process that reads 300 MiB in bf16 is at most the packed size and 256 MiB, of which LibTorch itself takes the larger part.
"""

import json
import os
import pathlib
import sys

os.environ.update(OMP_NUM_THREADS="1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import ring

torch, safetensors = ring.judges("torch", "safetensors.torch")

MIB, MORE = 1 << 20, 256
WIDTH, MLP, BLOCKS, WORDS = 1024, 4096, 9, 256
BITS = {"bnb.nf4": 4.5, "bnb.nf4-dq": 4.127}


def make_base(folder):
    """A Llama with random weights; returns the elements of its blocks' matrices, and of all others."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": MLP, "num_hidden_layers": BLOCKS,
        "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": WORDS, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))
    shapes = {f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"} | {"mlp.gate_proj": (MLP, WIDTH), "mlp.up_proj": (MLP, WIDTH), "mlp.down_proj": (WIDTH, MLP)}
    matrices = {f"model.layers.{block}.{name}.weight": shape for block in range(BLOCKS) for name, shape in shapes.items()}
    others = {f"model.layers.{block}.{name}_layernorm.weight": (WIDTH,) for block in range(BLOCKS) for name in ("input", "post_attention")}
    others |= {"model.norm.weight": (WIDTH,), "model.embed_tokens.weight": (WORDS, WIDTH), "lm_head.weight": (WORDS, WIDTH)}
    source = torch.Generator().manual_seed(1)
    weights = {name: (0.02 * torch.randn(shape, generator=source)).bfloat16() for name, shape in (matrices | others).items()}
    safetensors.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return sum(weights[name].numel() for name in matrices), sum(weights[name].numel() for name in others)


# A process of its own, because the kernel counts for a child what its parent held when it forked.
WATCH = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"


def peak(r, what, command):
    """Of resident memory, as the kernel counts it for the process and those that it waited for."""
    result = r.run([sys.executable, "-S", "-c", WATCH, *map(str, command)])
    ring.require(result.code == 0, f"{what} succeeds", str(result))
    return int(result.out.split()[-1]) * 1024


def main():
    with ring.Ring(sys.argv[1]) as r:
        r.skip_if_sanitized("memory")
        matrices, others = make_base(r.folder / "base")
        generate = [r.program, "generate", r.folder / "base", "--prompt", "a", "--max_new_tokens", 1, "--launch.threads_per_rank", 1]
        learn = [r.program, "finetune_lora", r.folder / "base", "--data", "TextFiles", "--data.train_data_path", r.text, "--data.packing", "wrapped", "--train.max_seq_length", 32,
                 "--train.max_steps", 1, "--train.global_batch_size", 1, "--train.micro_batch_size", 1, "--eval.final_validation", "false", "--devices", 1, "--launch.threads_per_rank", 1]
        for bits, each in BITS.items():
            for what, command, wide in (("generate", generate, 4), ("finetune_lora", [*learn, "--precision", "bf16-mixed", "--out_dir", r.folder / bits], 2)):
                packed = matrices * each / 8 + others * wide
                found = peak(r, f"{what} --quantize {bits}", [*command, "--quantize", bits])
                ring.check(found <= packed + MORE * MIB,
                           f"{what} --quantize {bits}: {2 * (matrices + others) / MIB:.0f} MiB are read with a peak of {found / MIB:.0f} MiB, {packed / MIB:.0f} of which are the "
                           f"model (at most {MORE} more)")
        whole = peak(r, "generate with all bits", [*generate, "--precision", "bf16-mixed"])
        ring.check(whole > matrices * BITS["bnb.nf4"] / 8 + MORE * MIB, f"with all its bits the same folder takes {whole / MIB:.0f} MiB: the bound tells the two apart")


main()
