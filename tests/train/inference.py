"""Text and judgements of a trained model: ranks write the same, transformers finds the same loss, stop words end a text.

inference.py TRIREME MODEL_PROBE
"""

import json
import math
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import ring

torch, transformers = ring.judges("torch", "transformers")
WINDOW = 48


def generate(r, run, *words, stdin=None):
    result = r.run([r.program, "generate", run, *map(str, words)], **({"input": stdin, "stdin": None} if stdin is not None else {}))
    ring.require(result.code == 0, f"generate {' '.join(map(str, words))}", str(result))
    return result.out


def evaluate(r, run, *words):
    out = r.folder / "report.json"
    result = r.run([r.program, "evaluate", run, "--evaluate.json", out, *map(str, words)])
    ring.require(result.code == 0, f"evaluate {' '.join(map(str, words))}", str(result))
    return json.loads(out.read_text())


def theirs(model, text):
    """Mean loss over windows as `trireme evaluate` reads them."""
    ids, total = torch.tensor(list(text)), 0.0
    for begin in range(0, len(ids) - 1, WINDOW):
        x, y = ids[begin:begin + WINDOW], ids[begin + 1:begin + WINDOW + 1]
        logits = model(x[None, :len(y)]).logits[0]
        total += torch.nn.functional.cross_entropy(logits, y, reduction="sum").item()
    return total / (len(ids) - 1)


def likeliest(model, question):
    def score(choice):
        context, rest = question["context"].encode(), choice.encode()
        logits = model(torch.tensor([list(context + rest)])).logits[0].log_softmax(-1)
        return sum(logits[len(context) - 1 + i, byte].item() for i, byte in enumerate(rest))
    return max(range(len(question["choices"])), key=lambda i: score(question["choices"][i]))


with ring.Ring(sys.argv[1]) as r, torch.no_grad():
    torch.set_num_threads(1)
    run = r.train("run", model=ring.LLAMA, train__max_steps=30, optimizer__lr=1e-2)
    model = transformers.AutoModelForCausalLM.from_pretrained(run / "step-00000030", dtype=torch.float32).eval()

    text = generate(r, run, "--prompt", "the sea", "--max_new_tokens", 40, "--temperature", 0)
    ring.require(len(text.encode()) == len("the sea") + 40 + 1, "40 tokens of one byte follow the prompt", text)
    want = model.generate(torch.tensor([list(b"the sea")]), max_new_tokens=40, do_sample=False, eos_token_id=None)[0]
    ring.check(text.encode() == bytes(want.tolist()) + b"\n", "greedy text is transformers'", text)
    for ranks in (["--devices", 2], ["--devices", 2, "--mesh.pp", 2]):
        ring.check(generate(r, run, "--prompt", "the sea", "--max_new_tokens", 40, "--temperature", 0, *ranks) == text,
                   f"{' '.join(map(str, ranks))}: the same text")
    drawn = [generate(r, run, "--prompt", "Anne", "--max_new_tokens", 30, "--seed", seed) for seed in (1, 1, 2)]
    ring.check(drawn[0] == drawn[1] != drawn[2], "a seed draws the same text again, another one another text", str(drawn))
    word = text[len("the sea") + 10:][:3]
    stopped = generate(r, run, "--prompt", "the sea", "--max_new_tokens", 40, "--temperature", 0, "--stop", json.dumps([word]))
    ring.check(stopped == text[:text.index(word, len("the sea"))] + "\n", f"the text ends before the stop word {word!r}", stopped)

    sample = r.folder / "sample.txt"
    sample.write_bytes(r.text.read_bytes()[:1000])
    report = evaluate(r, run, "--text", sample, "--max_seq_length", WINDOW)["perplexity"]
    loss = theirs(model, sample.read_bytes())
    ring.check(abs(report["loss"] / loss - 1) < 1e-5, f"loss {report['loss']:.6f} is transformers' {loss:.6f}")
    ring.require(abs(report["bits_per_byte"] - loss * 999 / 1000 / math.log(2)) < 1e-4 and abs(report["perplexity"] - math.exp(loss)) < 1e-3,
                 "perplexity and bits per byte follow from it", str(report))
    copies = evaluate(r, run, "--text", sample, "--max_seq_length", WINDOW, "--devices", 2)["perplexity"]
    ring.check(abs(copies["loss"] / loss - 1) < 1e-5, "two copies share the windows and find the same")

    questions = [{"context": c, "choices": [" the sea", " Knightley", " zzz qq"], "answer": a}
                 for a, c in enumerate(("walked to", "stood,", "quite"))]
    file = r.folder / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, questions)))
    (r.folder / "elsewhere").mkdir()
    (r.folder / "report.json").unlink()
    (r.folder / "report.json").symlink_to("elsewhere/report.json")
    right = sum(likeliest(model, q) == q["answer"] for q in questions)
    choice = evaluate(r, run, "--multiple_choice", file)["multiple_choice"]
    ring.check(choice["questions"] == 3 and abs(choice["acc"] - right / 3) < 1e-9, f"{right} of 3 answers are right, as transformers says")
    ring.check((r.folder / "report.json").is_symlink() and json.loads((r.folder / "elsewhere" / "report.json").read_text())["multiple_choice"] == choice,
               "results are written through a link")

    file.write_text(json.dumps({"context": "the sea " * 10, "choices": [" was", " and"], "answer": 0}) + "\n" + json.dumps(questions[0]))
    result = r.run([r.program, "evaluate", str(run), "--multiple_choice", str(file)])
    ring.check(result.code == 0 and "multiple choice: of 2 texts only the newest 65 tokens are read, as the model has 64 positions" in result.err,
               "texts that are cut are told of", str(result))

    file.write_text('{"context": "a", "choices": ["b"], "answer": 0}\n{"context": "a", "choices": [], "answer": 0}\n')
    bad = {"a question without choices": (["evaluate", run, "--multiple_choice", file], ":2: "),
           "no such folder": (["generate", r.folder / "nothing"], "no folder"),
           "ranks that are copies": (["generate", run, "--devices", 2, "--mesh.tp", 1], "one copy"),
           "records as a text": (["evaluate", run, "--text", file], "questions.jsonl holds records, and perplexity is that of plain text"),
           "nothing to evaluate": (["evaluate", run], "--text")}
    for what, (words, said) in bad.items():
        result = r.run([r.program, *map(str, words)])
        ring.check(result.code == 2 and said in result.text, f"refused: {what}", str(result))

    half = r.folder / "half"
    model.to(torch.bfloat16).save_pretrained(half)
    told = {}
    for precision in ("", "32-true", "bf16-mixed"):
        result = r.run([r.program, "generate", str(half), "--prompt", "the sea", "--max_new_tokens", "4", "--temperature", "0", *(["--precision", precision] if precision else [])])
        ring.require(result.code == 0, f"a folder in bfloat16, --precision {precision}", str(result))
        told[precision] = "half is stored in bfloat16 and computes in float32 here" in result.err
    ring.check(told == {"": True, "32-true": False, "bf16-mixed": False}, "a folder in bfloat16 that computes in float32 is told of, unless --precision is given", str(told))
