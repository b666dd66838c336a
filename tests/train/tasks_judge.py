"""trireme evaluate --tasks finds what lm-evaluation-harness finds: prompts, log-probabilities and accuracies of every task.

tasks_judge.py TRIREME MODEL_PROBE

The rows are made here in the form of the data sets, with what their texts have: marks of WikiHow, double spaces, letters
of two bytes, a space before an answer. The harness makes its requests from its own YAML files and asks transformers.
"""

import json
import math
import random
import sys

from harness import ConfigurableTask, harness_task, judge_of, make_model, sentence, torch, transformers, words, write
import ring

QUESTIONS, EXAMPLES = 12, 3
SHOTS = 2
WINDOW = 32
SUBJECTS = ("abstract_algebra", "world_religions")
# The harness's files.
FILES = {"arc_challenge": ["arc/arc_challenge"], "arc_easy": ["arc/arc_easy"], "boolq": ["super_glue/boolq/default"],
         "commonsense_qa": ["commonsense_qa/default"], "copa": ["super_glue/copa/default"], "hellaswag": ["hellaswag/hellaswag"],
         "lambada_openai": ["lambada/lambada_openai"], "mmlu": [f"mmlu/default/mmlu_{subject}" for subject in SUBJECTS],
         "openbookqa": ["openbookqa/openbookqa"], "piqa": ["piqa/piqa"], "sciq": ["sciq/sciq"], "winogrande": ["winogrande/default"]}


def lettered(draw, count):
    return {"text": [words(draw, 1, 4) for _ in range(count)], "label": list("ABCDE"[:count])}


def row(draw, task, number):
    """A row of the task's data set."""
    if task in ("arc_challenge", "arc_easy"):
        choices = lettered(draw, draw.choice((3, 4)))
        return {"id": str(number), "question": sentence(draw)[:-1] + "?", "choices": choices, "answerKey": draw.choice(choices["label"])}
    if task == "openbookqa":
        choices = lettered(draw, 4)
        return {"question_stem": words(draw, 3, 8) + draw.choice(("", " ")), "choices": choices, "answerKey": draw.choice(choices["label"])}
    if task == "commonsense_qa":
        return {"question": " " + sentence(draw), "choices": lettered(draw, 5), "answerKey": draw.choice("ABCDE")}
    if task == "boolq":
        return {"passage": sentence(draw, 9, 20), "question": words(draw, 3, 6), "label": draw.randint(0, 1)}
    if task == "copa":
        return {"premise": sentence(draw) + draw.choice(("", " ")), "choice1": sentence(draw), "choice2": sentence(draw),
                "question": draw.choice(("cause", "effect")), "label": draw.randint(0, 1)}
    if task == "hellaswag":
        return {"activity_label": words(draw, 1, 2), "ctx_a": f"[header] {words(draw, 2, 4)} [title] {sentence(draw)}  [step] {sentence(draw)}",
                "ctx_b": words(draw, 1, 3), "endings": [f"{sentence(draw)} [substeps]  {sentence(draw)}" for _ in range(4)],
                "label": str(draw.randint(0, 3))}
    if task == "lambada_openai":
        # Some bring the token that begins texts, so that no tokenizer puts another one before them.
        return {"text": ("<s>" if number % 3 == 0 else "") + words(draw, 5, 12)}
    if task == "piqa":
        return {"goal": sentence(draw), "sol1": sentence(draw), "sol2": sentence(draw, 6, 15), "label": draw.randint(0, 1)}
    if task == "sciq":
        return {"question": sentence(draw), "distractor1": words(draw, 1, 2), "distractor2": words(draw, 1, 2), "distractor3": words(draw, 1, 2),
                "correct_answer": words(draw, 1, 2), "support": draw.choice(("", " ", "\n  ")) + (sentence(draw) if number % 3 else "")}
    if task == "winogrande":
        return {"sentence": f"{words(draw, 3, 5)} _ {words(draw, 2, 5)}.", "option1": words(draw, 1, 1), "option2": words(draw, 1, 2),
                "answer": draw.choice("12")}
    return {"question": draw.choice(("", " ")) + sentence(draw), "subject": SUBJECTS[number % 2], "choices": [words(draw, 1, 4) for _ in range(4)],
            "answer": draw.randint(0, 3)}


def judged(model, file, rows, examples, shots):
    """The harness's results for a task: of each question its choices' log-probabilities, and the means of its metrics."""
    yaml = harness_task(file)
    # The rows are ours, and examples are the first of theirs; everything else is the harness's.
    config = {key: value for key, value in yaml.items() if key not in ("tag", "group", "task_alias", "metadata", "include")} | {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": {"test": str(rows), "train": str(examples)}},
                     "training_split": None, "validation_split": None, "test_split": "test", "fewshot_split": "train",
                     "fewshot_config": {"sampler": "first_n"}, "num_fewshot": shots}
    task = ConfigurableTask(config=config)
    task.build_all_requests(limit=None, rank=0, world_size=1)
    answers = model.loglikelihood(task.instances, disable_tqdm=True)
    texts, metrics = [], {}
    for number, document in task.doc_iterator():
        own = [a for i, a in zip(task.instances, answers) if i.doc_id == number]
        texts.append([logprob for logprob, _ in own])
        for metric, value in task.process_results(document, own).items():
            metrics.setdefault(metric, []).append(value)
    return texts, metrics


with ring.Ring(sys.argv[1]) as r:
    draw = random.Random(11)
    for task in FILES:
        write(r.folder / f"{task}.jsonl", [row(draw, task, i) for i in range(QUESTIONS)])
        write(r.folder / f"{task}_examples.jsonl", [row(draw, task, i) for i in range(EXAMPLES * (2 if task == "mmlu" else 1))])
    for bos in (False, True):
        folder = r.folder / f"model{int(bos)}"
        folder.mkdir()
        make_model(folder, bos)
        hf = judge_of(folder, batch_size=4)
        for shots in (0, SHOTS):
            command = [r.program, "evaluate", folder, "--tasks", "[" + ", ".join(f"{t}={r.folder / t}.jsonl" for t in FILES) + "]", "--json",
                       r.folder / "result.json", "--predictions", r.folder / "questions.jsonl", "--devices", 1 + bos]
            if shots:
                command += ["--num_fewshot", shots, "--fewshot", "[" + ", ".join(f"{t}={r.folder / t}_examples.jsonl" for t in FILES) + "]"]
            result = r.run([str(word) for word in command])
            ring.require(result.code == 0, "evaluate --tasks succeeds", str(result))
            found = json.loads((r.folder / "result.json").read_text())["tasks"]
            lines = [json.loads(line) for line in (r.folder / "questions.jsonl").read_bytes().splitlines()]
            apart, wrong = 0.0, []
            for task, theirs in FILES.items():
                texts, metrics = [], {}
                for file in theirs:
                    rows, examples = (r.folder / f"{task}{end}.jsonl" for end in ("", "_examples"))
                    if task == "mmlu":  # a data set for each subject
                        subject = file.partition("mmlu_")[2]
                        for path in (rows, examples):
                            mine = [json.loads(line) for line in path.read_bytes().splitlines()]
                            write(path.with_suffix(f".{subject}.jsonl"), [own for own in mine if own["subject"] == subject])
                        rows, examples = (path.with_suffix(f".{subject}.jsonl") for path in (rows, examples))
                    more, more_metrics = judged(hf, file, rows, examples, shots)
                    texts += more
                    for metric, values in more_metrics.items():
                        metrics[metric] = metrics.get(metric, []) + values
                own = [line["logprobs"] for line in lines if line["task"] == task]
                if task == "mmlu":  # in the order of the rows, of which every second has the other subject
                    own = own[::2] + own[1::2]
                ring.require([len(t) for t in own] == [len(t) for t in texts], f"{task}: as many choices", f"{own} {texts}")
                apart = max(apart, max(abs(a - b) for t, o in zip(texts, own) for a, b in zip(t, o)))
                for metric in ("acc", "acc_norm"):
                    if (metric in metrics) != (metric in found[task]) or (
                            metric in metrics and abs(sum(metrics[metric]) / len(metrics[metric]) - found[task][metric]) > 1e-9):
                        wrong.append(f"{task} {metric} {metrics.get(metric)} {found[task]}")
                if "acc" in metrics:
                    mean = sum(metrics["acc"]) / QUESTIONS
                    error = math.sqrt(sum((v - mean) ** 2 for v in metrics["acc"]) / (QUESTIONS - 1) / QUESTIONS)
                    if abs(error - found[task]["acc_stderr"]) > 1e-9:
                        wrong.append(f"{task} stderr {error} {found[task]}")
                if "perplexity" in metrics and abs(math.exp(-sum(metrics["perplexity"]) / QUESTIONS) / found[task]["perplexity"] - 1) > 1e-4:
                    wrong.append(f"{task} perplexity {metrics['perplexity']} {found[task]}")
            ring.check(apart < 1e-4 and not wrong,
                       f"{len(FILES)} tasks, {shots} examples, {'a tokenizer that begins texts' if bos else 'a plain one'}: the harness's log-probabilities"
                       f" within {apart:.1e}, its accuracies", "\n".join(wrong))

    # Each window of a text begins as the tokenizer begins texts, and the files of a folder are documents.
    folder, texts = r.folder / "model1", r.folder / "texts"
    texts.mkdir()
    parts = [" ".join(sentence(draw) for _ in range(9)) for _ in range(2)]
    for number, part in enumerate(parts):
        (texts / f"{number}.txt").write_text(part)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    first, second = (tokenizer.encode(part, add_special_tokens=False) for part in parts)
    ids, nats = first + [tokenizer.eos_token_id] + second, 0.0
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    for begin in range(0, len(ids), WINDOW):
        window = torch.tensor([tokenizer.bos_token_id] + ids[begin:begin + WINDOW])
        with torch.no_grad():
            nats += torch.nn.functional.cross_entropy(model(window[None, :-1]).logits[0], window[1:], reduction="sum").item()
    result = r.run([r.program, "evaluate", str(folder), "--text", str(texts), "--max_seq_length", str(WINDOW), "--json", str(r.folder / "result.json"), "--devices", "2"])
    ring.require(result.code == 0, "evaluate --text of a folder", str(result))
    found = json.loads((r.folder / "result.json").read_text())["perplexity"]
    ring.check(found["tokens"] == len(ids) and found["bytes"] == sum(len(part.encode()) for part in parts) and abs(found["loss"] * len(ids) / nats - 1) < 1e-4,
               f"windows of a text begin with <s>: loss {found['loss']:.5f}, transformers' {nats / len(ids):.5f}", str(found))

    run = r.folder / "model0"
    (r.folder / "bad.jsonl").write_text('{"goal": "a", "sol1": "b", "sol2": "c", "label": 2}\n')
    tokenizer = transformers.AutoTokenizer.from_pretrained(run)
    whole = next(w for w in ring.WORDS if len(w) > 2 and len(tokenizer.encode("a " + w)) <= len(tokenizer.encode("a " + w[:-1])))
    write(r.folder / "joined.jsonl", [{"context": "a", "choices": [" b", " c"], "answer": 0}, {"context": "a " + whole[:-1], "choices": [" b", whole[-1]], "answer": 0}])
    refused = {"a choice without a token of its own": (["--multiple_choice", r.folder / "joined.jsonl"],
                                                       f'joined.jsonl:2: choice "{whole[-1]}" has no token of its own'),
               "a name that is no task": (["--tasks", f"pica={r.folder}/piqa.jsonl"], "there is no task pica (did you mean piqa?); NAME=FILE names one of arc_challenge"),
               "a file that is not there": (["--tasks", f"piqa={r.folder}/nothing.jsonl"], "evaluate.tasks: "),
               "an answer that is no choice": (["--tasks", f"piqa={r.folder}/bad.jsonl"], 'bad.jsonl:1: "label" is no number from 0 to 1'),
               "rows of another task": (["--tasks", f"arc_easy={r.folder}/piqa.jsonl"], 'piqa.jsonl:1: there is no object under "choices"'),
               "a task twice": (["--tasks", f"[piqa={r.folder}/piqa.jsonl, piqa={r.folder}/piqa.jsonl]"], "names piqa twice"),
               "examples of another task": (["--tasks", f"piqa={r.folder}/piqa.jsonl", "--num_fewshot", 1, "--fewshot",
                                             f"[piqa={r.folder}/piqa_examples.jsonl, copa={r.folder}/copa_examples.jsonl]"], "copa is not among evaluate.tasks"),
               "a file of examples without a number": (["--tasks", f"piqa={r.folder}/piqa.jsonl", "--fewshot", f"piqa={r.folder}/piqa_examples.jsonl"],
                                                       "none is asked for; set evaluate.num_fewshot"),
               "examples without a file": (["--tasks", f"piqa={r.folder}/piqa.jsonl", "--num_fewshot", 2], "--evaluate.fewshot piqa=FILE.jsonl"),
               "more examples than there are": (["--tasks", f"piqa={r.folder}/piqa.jsonl", "--num_fewshot", 9, "--fewshot",
                                                 f"piqa={r.folder}/piqa_examples.jsonl"], "has 3 rows, and evaluate.num_fewshot asks for 9")}
    for what, (more, said) in refused.items():
        result = r.run([r.program, "evaluate", str(run), *map(str, more)])
        ring.check(result.code == 2 and said in result.text and result.text.count("\n") == 1, f"refused: {what}", str(result))
