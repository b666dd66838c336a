"""Every command of the pages that teach, and of the comments in configs/, is run as it stands there, and prints what the page says.

commands.py TRIREME [--write] [PAGE ...]
A page shows commands in blocks of ```sh. A block of ```text behind one holds lines of the last command's output, in order; a line "..."
stands for any number of others. A picture that a command draws (--output NAME.svg) is the one that lies beside the page. If the block begins with "error:", the command has to be refused.

- Commands that only explain, plan or print run as they are.
- Commands that train run with --dry_run, which reads and checks all settings and plans the mesh and the memory.
- Of other commands, the options have to stand in the command's own help. Those in REAL run as they are, on a run of one step.

--write puts the program's output into the blocks without "...", and draws the pictures. One planted fault of each kind has to be noticed.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/train"), str(ROOT / "tests/tools")]
import documentation  # noqa: E402
import ring  # noqa: E402

TRAINS = ("pretrain", "finetune_lora", "finetune_full", "finetune_dpo", "grpo")
PRINTS = ("explain", "plan", "help", "version", "convert_config")
MORE = ("docs/evaluation.md",)  # beside the pages that teach
REAL = (("checkpoint", "list"), ("checkpoint", "verify"), ("evaluate", "out/mine"), ("report", "hang"))
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n*```text\n(.*?)^```\n)?", re.M | re.S)
CHAT = [{"messages": [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"{n}."}]} for n in range(40)]
PAIRS = [{"prompt": f"{n} and", "chosen": f" {n + 1}.", "rejected": " no."} for n in range(40)]
SUMS = [{"prompt": f"{n}+{n}=", "answer": f"{2 * n}"} for n in range(40)]
GOALS = [{"goal": f"Read book {n}.", "sol1": "Open it.", "sol2": "Close it.", "label": n % 2} for n in range(40)]
REVIEWS = [{"text": f"Book {n}.", "label": "good" if n % 2 else "bad"} for n in range(40)]
SMALL = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
         "head_dim": 32, "max_position_embeddings": 64, "tie_word_embeddings": False}  # examples/grpo/sums
SMOLLM2 = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
           "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
           "rope_theta": 100000.0, "tie_word_embeddings": True}


class Example:
    """A command of a page, and the lines that the page says it prints."""

    def __init__(self, page, line, block):
        self.page, self.line, self.expected, self.block = page, line, None, block
        self.words = shlex.split(line, comments=True)

    def __str__(self):
        return f"{self.page}: {self.line}"

    def picture(self):
        """The file beside the page that the command draws."""
        name = self.words[self.words.index("--output") + 1] if "--output" in self.words else ""
        return ROOT / pathlib.Path(self.page).parent / name if name.endswith(".svg") else None


def examples(page, text):
    found = []
    for block in BLOCK.finditer(text):
        lines = [line.strip() for line in block.group(1).replace("\\\n", " ").splitlines()]
        commands = [line for line in lines if re.search(r"(?:^|\s)trireme\s", line) and not line.startswith("#")]
        here = [Example(page, line, block) for line in commands]
        if block.group(2) is not None and here:
            here[-1].expected = block.group(2).splitlines()
        found += here
    return found


def configured(root):
    """The commands in the comments of configs/*.yaml."""
    return [Example(str(path), line, None) for path in documentation.files(root, "configs/*.yaml")
            for line in re.findall(r"^#   (trireme .*)$", documentation.read(root, path), re.M)]


def arguments(words):
    """The words of trireme itself, without what stands before it and what pipes or redirects behind it."""
    words = words[words.index("trireme") + 1:]
    for end in ("|", ">", ">>", "&&", "&"):
        if end in words:
            words = words[:words.index(end)]
    return words


def lacks(expected, printed):
    """The first expected line that is not printed, or not behind the line before it."""
    left = iter(line.rstrip() for line in printed.splitlines())
    return next((line for line in map(str.rstrip, expected) if line != "..." and not any(line == other for other in left)), None)


def without_style(picture):
    """What a picture shows; its colours may have more names than it uses."""
    return re.sub(r"<style>.*?</style>", "", picture, flags=re.S)


def prepare(r):
    folder = r.folder
    for name in ("configs", "examples", "tests", "data"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    for path in ("my_texts", "models/smollm2", "out/sums/base"):
        (folder / path).mkdir(parents=True)
    (folder / "my_texts/one.txt").write_text(r.text.read_text())
    (folder / "my.txt").write_text(r.text.read_text()[:3000])
    (folder / "models/smollm2/config.json").write_text(json.dumps(SMOLLM2))
    (folder / "out/sums/base/config.json").write_text(json.dumps(SMOLLM2 | SMALL))
    for name, rows in (("chat.jsonl", CHAT), ("pairs.jsonl", PAIRS), ("reviews.jsonl", REVIEWS), ("piqa.jsonl", GOALS), ("sums.jsonl", SUMS), ("sums-held-out.jsonl", SUMS)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source, name in (("deepspeed/guide_stage2_in_memory.json", "ds.json"), ("accelerate/guide_one_machine.yaml", "accelerate_config.yaml"),
                         ("accelerate/fsdp2.yaml", "fsdp2.yaml"), ("litgpt/lora.yaml", "lora.yaml")):
        (folder / name).write_text((ROOT / "tests/dialects/corpus" / source).read_text())
    (folder / "hosts.txt").write_text("host-a slots=4\nhost-b slots=4\n")
    command = [r.program, "pretrain", "llama-5m", "--data", "TextFiles", "--data.train_data_path", "my_texts/", "--train.max_steps", "1", "--train.max_seq_length", "32",
               "--train.global_batch_size", "4", "--train.micro_batch_size", "2", "--train.save_interval", "1", "--eval.final_validation", "false", "--devices", "2", "--out_dir", "out/mine"]
    result = r.run(command)
    ring.require(result.code == 0, "a run of one step, for commands that read one", str(result))


def helps(r, memory, words):
    """What trireme help says of a command."""
    name = " ".join(words[:2]) if words[0] in ("checkpoint", "data", "bench", "report") and len(words) > 1 else words[0]
    if name not in memory:
        texts = [r.run([r.program, *name.split(), "--help"]).text, r.run([r.program, "help", name.split()[0]]).text]
        memory[name] = "\n".join(texts)
    return memory[name]


def fault(r, memory, example):
    """A sentence and what the program said, if the command does not do what its page says."""
    words = arguments(example.words)
    environment = ring.environment(LC_ALL="C.UTF-8", COLUMNS="120", OMP_NUM_THREADS="1", **dict(word.split("=", 1) for word in example.words[:example.words.index("trireme")] if re.match(r"[A-Z_]+=", word)))

    def run(given):
        """Pages repeat commands: each runs once."""
        key = (*given, *sorted(set(environment.items()) - set(os.environ.items())))
        if key not in memory:
            memory[key] = r.run([r.program, *given], env=environment)
        return memory[key]
    refused = bool(example.expected) and example.expected[0].startswith("error:")
    program = words[words.index("--") + 1:] if words[0] == "launch" and "--" in words else []
    if words[0] == "launch" and (not program or program[0] not in TRAINS):
        if program:
            words = [*words[:words.index("--")], "--help"]
        elif "-m" in words:
            words = [*words[:words.index("-m")], "--help"]
        result = run(words)
    elif program:
        result = run([*words[:words.index("--")], "--help"])
        if result.code == 0:
            more = words[1:words.index("--")] if "--config_file" in words else []
            result = run([program[0], *more, *program[1:], "--dry_run", "true"])
    elif any(word.startswith(("--print", "--launch.print", "--help")) for word in words) or words[0] in PRINTS or any(tuple(words[:2]) == real for real in REAL):
        result = run(words)
    elif words[0] in TRAINS:
        if not refused:  # where the page begins a run, none is yet
            words = [f"{word}-to-come" if before == "--out_dir" else word for before, word in zip(["", *words], words)]
        result = run([*words, "--dry_run", "true"])
        if not refused and result.code == 0 and "Nothing was started" not in result.out:
            return "prints no plan", str(result)
    else:
        settings = re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs/settings.md").read_text(), re.M) if words[0] in ("doctor", "bench", "generate", "evaluate", "merge_lora") else []
        known = set(re.findall(r"--[\w.]+", helps(r, memory, words))) | {f"--{key}" for key in settings}
        unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in known]
        return (f"has options that its help does not know: {unknown}", helps(r, memory, words)[-2000:]) if unknown else None
    if refused != (result.code == 2) or not refused and result.code != 0:
        return f"ends with {result.code}", str(result)
    picture = example.picture()
    if picture:
        example.drawn = (r.folder / picture.name).read_text()
        if not picture.is_file() or without_style(picture.read_text()) != without_style(example.drawn):
            return f"draws another picture than {picture.name}", str(result)
    missing = lacks(example.expected or [], result.err if refused else result.out)
    example.printed = result.err if refused else result.out
    return None if missing is None else (f"does not print this line (at this place): {missing!r}", str(result))


def write(example):
    """The page's block becomes what was printed; the text of the page."""
    path = ROOT / example.page
    text = path.read_text()
    block, old = example.block.group(0), example.block.group(2)
    at = block.rindex("```text\n" + old) + len("```text\n")
    printed = "\n".join(line.rstrip() for line in example.printed.rstrip("\n").splitlines()) + "\n"
    path.write_text(text.replace(block, block[:at] + printed + block[at + len(old):], 1))


PLANTED = {"ends with 2": "```sh\ntrireme explain mesh llama-5m --devices 2 --mesh.tpp 2\n```\n",
           "does not print this line": "```sh\ntrireme explain mesh llama-5m --devices 2\n```\n\n```text\nmesh pp 2\n```\n",
           "ends with 0": "```sh\ntrireme explain mesh llama-5m --devices 2\n```\n\n```text\nerror: no\n```\n",
           "options that its help does not know": "```sh\ntrireme generate out/mine --promt x\n```\n",
           "draws another picture": "```sh\ntrireme explain schedule llama-5m --format svg --output none.svg\n```\n",
           "ends with 2 ": "```sh\ntrireme finetune_lora models/smollm2 --data JSON --data.json_path chat.jsonl --lora.rank 8\n```\n"}

if __name__ == "__main__":
    with ring.Ring(sys.argv[1]) as r:
        writes = "--write" in sys.argv
        chosen = [word for word in sys.argv[2:] if not word.startswith("--")]
        prepare(r)
        found = [one for page in [*documentation.teaching(ROOT), *documentation.files(ROOT, *MORE)] if not chosen or str(page) in chosen for one in examples(str(page), documentation.read(ROOT, page))]
        found += [one for one in configured(ROOT) if not chosen or one.page in chosen]
        memory = {}
        for expected, text in PLANTED.items():
            [planted] = examples("planted", text)
            noticed = fault(r, memory, planted)
            ring.require(noticed and expected.strip() in noticed[0], f"a planted fault is noticed: {expected}", str(noticed))
        with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
            faults = list(pool.map(lambda one: fault(r, memory, one), found))
        for example, wrong in zip(found, faults):
            if writes and hasattr(example, "drawn"):
                example.picture().write_text(example.drawn)
            elif writes and example.expected is not None and "..." not in example.expected and hasattr(example, "printed"):
                write(example)
            elif wrong:
                print(f"FAILED  {example}\n        {wrong[0]}\n{wrong[1]}", flush=True)
        if any(faults) and not writes:
            sys.exit(1)
        shown = sum(one.expected is not None for one in found)
        print(f"ok      {len(found)} commands of {len({one.page for one in found})} pages, {shown} with their output")
        ring.require(chosen or len(found) > 100, "the pages have commands")
