"""Each of our commands on docs/coming-from.md is taken: its settings are read and could run.

coming_from.py TRIREME
`explain config` stands for training commands (exit code 0: settings, ranks and mesh fit together). Commands of `launch`
are read up to the program, whose settings are then explained; those for one machine also run, on a small model.
"""

import json
import pathlib
import re
import shlex
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
import ring

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/dialects/corpus"
TINY = [f"--model.{key}={value}" for key, value in ring.LLAMA.items()]
FILES = {"ds.json": "deepspeed/guide_stage2_in_memory.json", "accelerate_config.yaml": "accelerate/guide_one_machine.yaml",
         "config_node1.yaml": "accelerate/guide_two_machines.yaml", "configs/baseline.yaml": "free-transformer/baseline.yaml",
         "configs/free_transformer.yaml": "free-transformer/latent.yaml", "configs/guide_24_layers.yaml": "free-transformer/guide_24_layers.yaml",
         "config_hub/pretrain/tinyllama.yaml": "litgpt/tinyllama_hub.yaml", "conf/experiment/quick_test.yaml": "hydra/quick_test.yaml",
         "grpo.yaml": "trl/grpo.yaml"}


def commands():
    text = (ROOT / "docs/coming-from.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line.startswith("trireme "):
                yield shlex.split(line)[1:]


def prepare(folder):
    for name, source in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CORPUS / source, folder / name)
    trl = folder / "grpo.yaml"  # its model is a folder that is not here
    trl.write_text(trl.read_text().replace("Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"))
    (folder / "hosts.txt").write_text("host-a slots=2\nhost-b slots=2\n")
    (folder / "data").mkdir()
    (folder / "data/alpaca.json").write_text(json.dumps([{"instruction": "say", "input": "", "output": "so"}] * 20))
    base = folder / "meta-llama/Llama-2-7b-hf"
    base.mkdir(parents=True)
    (base / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 256,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, **ring.LLAMA}))


def options_and_program(words):
    """The words of `trireme launch` up to its program, and the program."""
    if "--" in words:
        return words[:words.index("--")], words[words.index("--") + 1:]
    at = words.index("pretrain")
    return words[:at], words[at:]


def explain(r, words):
    # Only commands that start ranks take settings of launch by their last part.
    return r.run([r.program, "explain", "config", *["--launch.hostfile" if word == "--hostfile" else word for word in words]])


def task_of(subcommand):  # explain's own is that of pretrain
    return ["--task", "rewards"] if subcommand == "grpo" else []


def make_litgpts_file(r, folder):
    result = r.run(r.command("seed", train__max_steps=1))
    ring.require(result.code == 0, "a model to convert", str(result))
    (r.folder / folder).parent.mkdir(parents=True, exist_ok=True)
    result = r.run([r.program, "convert", str(r.folder / "seed"), str(folder), "--to", "litgpt"])
    ring.require(result.code == 0 and (r.folder / folder / "lit_model.pth").exists(), "LitGPT's folder", str(result))


with ring.Ring(sys.argv[1]) as r:
    prepare(r.folder)
    seen = 0
    for words in commands():
        line = "trireme " + " ".join(words)
        seen += 1
        if words[0] == "convert_config":
            result = r.run([r.program, *words])
        elif "--dry_run" in words:
            result = r.run([r.program, *words])
            ring.require("planned peak" in result.out and "Nothing was started" in result.out, f"a plan: {line}", str(result))
        elif words[0] == "explain":
            result = r.run([r.program, *words])
            # 24 blocks and the encoder's, of width 1024 and the code's MLP of 11008; the padding of the vocabulary does not count.
            millions = 25 * (4 * 1024**2 + 3 * 1024 * 11008 + 2 * 1024) + 1024 * (50000 + 3 + 2 * 64)
            ring.require(f"P = {millions / 1e6:.2f} M" in result.out, "the guide's model of 24 layers and 64 bits plans", str(result))
        elif words[0] == "convert":
            make_litgpts_file(r, pathlib.Path(words[words.index("--checkpoint_path") + 1]).parent)
            result = r.run([r.program, *words])
            out = words[words.index("--output_dir") + 1]
            ring.require(result.code == 0, line, str(result))
            result = r.run([r.program, "evaluate", out, "--text", str(r.text), "--max_seq_length", "32"])
        elif words[0] == "launch":
            options, program = options_and_program(words[1:])
            result = r.run([r.program, "launch", *options, "--help"])
            ring.require(result.code == 0, f"launch knows its options: {line}", str(result))
            more = [] if "--config_file" not in options else ["--config_file", options[options.index("--config_file") + 1]]
            result = explain(r, [*more, *program[1:]])
            ring.require(result.code == 0, f"the program's settings are read: {line}", str(result))
            if any(word.startswith(("--nnodes", "--machine_rank")) for word in options):
                ring.check(True, f"its settings are read: {line}")
                continue
            shape = [] if "configs/baseline.yaml" in program else TINY
            result = r.run([r.program, *words, *shape, f"--data=TextFiles", f"--data.train_data_path={r.text}",
                            f"--out_dir={r.folder / f'run{seen}'}", "--train.max_steps=1", "--train.max_seq_length=32",
                            "--train.global_batch_size=8", "--train.micro_batch_size=2", "--eval.final_validation=false"])
        elif "--resume" in words:
            result = explain(r, words[1:])
            ring.require(result.code == 2 and "checkpoints/tinyllama-pretrain" in result.err, line, str(result))
            ring.check(True, f"its checkpoint is looked for: {line}")
            continue
        else:
            result = explain(r, [*words[1:], *task_of(words[0])])
        ring.check(result.code == 0, f"taken: {line}", str(result))
    ring.check(seen >= 24, f"{seen} commands")
