"""trireme evaluate --tasks writes what lm-evaluation-harness lets transformers write: the answers of gsm8k and of tasks in files, what
filters take out of them, and which are right.

written_judge.py TRIREME MODEL_PROBE

Targets are made of the answers, so that some are right: a tiny model knows nothing.
"""

import json
import random
import sys

from harness import ConfigurableTask, harness_task, judge_of, keep_tokens, load_yaml, make_model, mean_stderr, part_at_a_tie, sentence, words, write
import ring

QUESTIONS, EXAMPLES, SHOTS = 8, 3, 2
# Tasks besides gsm8k, in files that the harness reads, too.
WRITTEN = {
    "own": """
task: own
tag: [written]
dataset_path: json
dataset_kwargs: {data_files: {test: "@ROWS", train: "@EXAMPLES"}}
test_split: test
fewshot_split: train
fewshot_config: {sampler: first_n}
output_type: generate_until
description: "Answer about {{kind}}.\\n"
doc_to_text: "Q: {{ question }} ({{number}})\\nA:"
doc_to_target: answers
target_delimiter: "\\n"
fewshot_delimiter: "\\n##\\n"
generation_kwargs: {until: ["ou", "t t", "\\n\\n"], max_gen_toks: 24, do_sample: false, temperature: 0.7}
filter_list:
  - {name: first, filter: [{function: regex, regex_pattern: "[A-Za-z]{2,}", fallback: none}, {function: take_first}]}
  - {name: group, filter: [{function: regex, regex_pattern: "(?i)([aeiou]{2,})|([^\\\\W\\\\d]+)(?=\\\\s|$)", group_select: -1}, {function: take_first}]}
  - {name: stripped, filter: [{function: remove_whitespace}, {function: take_first}]}
  - {name: raw, filter: [{function: take_first}]}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true, ignore_punctuation: true, ignore_numbers: true,
     regexes_to_ignore: ["^\\\\s+", "(?s)x.*$"]}
""",
    # Without a filter and a metric of its own, and with prompts that are too long for the model.
    "long": """
dataset_path: json
dataset_kwargs: {data_files: {test: "@ROWS", train: "@EXAMPLES"}}
test_split: test
fewshot_split: train
fewshot_config: {sampler: first_n}
description: "@LONG"
doc_to_text: question
doc_to_target: "{{first}}"
generation_kwargs: {max_gen_toks: 12, until: []}
""",
    # Its prompts bring the token that begins texts, so that no tokenizer puts another one before them.
    "begun": """
dataset_path: json
dataset_kwargs: {data_files: {test: "@ROWS", train: "@EXAMPLES"}}
test_split: test
fewshot_split: train
fewshot_config: {sampler: first_n}
doc_to_text: "<s>Q: {{question}}\\nA:"
doc_to_target: first
generation_kwargs: {max_gen_toks: 12, until: ["\\n"]}
"""}


def row_of(draw, number):
    """A row of all tasks; with_targets() completes it."""
    return {"question": sentence(draw), "number": number, "kind": draw.choice(("cats", "Zoë")), "answers": [words(draw, 1, 2), "12 apples"],
            "first": words(draw, 1, 2), "answer": f"{sentence(draw)}\n#### {draw.randint(0, 99)}"}


def with_targets(row, number, found):
    """The row, with targets that some filters find in the text that is written: {task: {filter: answer}}."""
    hidden = found["own"][("first", "group", "stripped", "raw")[number % 4]]
    shown = (hidden, f"  {hidden.upper()}7!", hidden + ".", "nothing")[number // 4 % 4]
    row["answers"] = [row["answers"][0], shown] if number % 2 else [shown]
    row["first"] = found["long"]["none"] if number % 3 == 0 else "nothing"
    row["answer"] = f"So it is.\n#### {found['gsm8k'][('flexible-extract', 'strict-match')[number % 2]] if number % 3 else '$7,000.'}"
    return row


def judged_writing(model, kept, config, shots, ours):
    """The harness's results for a task whose answers are written: the texts, and of each filter its answers and the metric's values. Where
    only rounding tells two tokens apart, our text is the one to be judged."""
    task = ConfigurableTask(config={key: value for key, value in config.items() if key not in ("tag", "task_alias", "metadata")} | {"num_fewshot": shots})
    task.build_all_requests(limit=None, rank=0, world_size=1)
    texts = model.generate_until(task.instances, disable_tqdm=True)
    texts = [own if own != text and part_at_a_tie(model, kept, own, text) else text for own, text in zip(ours, texts)]
    for instance, text in zip(task.instances, texts):
        instance.resps = [text]
    task.apply_filters()
    answers, values = {}, {}
    for (_, document), instance in zip(task.doc_iterator(), task.instances):
        for name, answer in instance.filtered_resps.items():
            answers.setdefault(name, []).append(answer)
            values.setdefault(name, []).append(float(task.process_results(document, [answer])["exact_match"]))
    return texts, answers, values


with ring.Ring(sys.argv[1]) as r:
    draw = random.Random(12)
    drafts = [row_of(draw, number) for number in range(QUESTIONS)]
    write(r.folder / "written_examples.jsonl", [row_of(draw, number) for number in range(EXAMPLES)])
    long_words = sentence(draw, 700, 700)

    def declare(file, rows):
        """Writes the rows, and the tasks that ask them. The harness's library remembers what a file's name held before."""
        write(file, rows)
        for name, yaml in WRITTEN.items():
            for mark, text in (("@ROWS", file), ("@EXAMPLES", r.folder / "written_examples.jsonl"), ("@LONG", long_words)):
                yaml = yaml.replace(mark, str(text))
            (r.folder / f"{name}.yaml").write_text(yaml)

    def written(model, file, shots, *more):
        """Our results, our lines by task, and what else was said."""
        named = {"gsm8k": file} | {name: r.folder / f"{name}.yaml" for name in WRITTEN}
        command = [r.program, "evaluate", r.folder / model, "--tasks", "[" + ", ".join(f"{name}={file}" for name, file in named.items()) + "]",
                   "--json", r.folder / "result.json", "--predictions", r.folder / "lines.jsonl", *more]
        if shots:
            command += ["--num_fewshot", shots, "--fewshot", "[" + ", ".join(f"{name}={r.folder}/written_examples.jsonl" for name in named) + "]"]
        result = r.run([str(word) for word in command])
        ring.require(result.code == 0, "evaluate --tasks writes answers", str(result))
        lines = [json.loads(line) for line in (r.folder / "lines.jsonl").read_bytes().splitlines()]
        return json.loads((r.folder / "result.json").read_text())["tasks"], {name: [one for one in lines if one["task"] == name] for name in named}, result

    for bos in (False, True):
        model = f"model{int(bos)}"
        (r.folder / model).mkdir()
        make_model(r.folder / model, bos)
        hf = judge_of(r.folder / model, batch_size=1)
        kept = keep_tokens(hf)
        for shots in (0, SHOTS):
            file = r.folder / f"{model}_{shots}.jsonl"
            declare(file, drafts)
            _, lines, _ = written(model, file, shots)  # targets are not in the prompts, so they can be made of the answers
            rows = [with_targets(dict(row), number, {name: of[number]["answers"] for name, of in lines.items()}) for number, row in enumerate(drafts)]
            declare(file, rows)
            found, lines, said = written(model, file, shots)
            gsm8k = harness_task("gsm8k/gsm8k") | {
                "dataset_path": "json", "dataset_name": None, "training_split": None, "fewshot_config": {"sampler": "first_n"},
                "dataset_kwargs": {"data_files": {"test": str(file), "train": str(r.folder / "written_examples.jsonl")}}}
            ring.require("long: of" in said.err and "the newest 500 tokens are read" in said.err, "prompts that are cut are told of", said.err)
            wrong, right = [], 0
            for name in lines:
                config = gsm8k if name == "gsm8k" else load_yaml(r.folder / f"{name}.yaml", resolve_func=True)
                ours = [line["text"] for line in lines[name]]
                texts, answers, values = judged_writing(hf, kept, config, shots, ours)
                if ours != texts:
                    wrong.append(f"{name} texts\n{ours}\n{texts}")
                for kind in answers:
                    key, error = (f"exact_match{end}{',' + kind if kind != 'none' else ''}" for end in ("", "_stderr"))
                    if [line["answers"][kind] for line in lines[name]] != answers[kind]:
                        wrong.append(f"{name} {kind} answers {[line['answers'][kind] for line in lines[name]]} {answers[kind]}")
                    if [line["exact_match"][kind] for line in lines[name]] != values[kind] or abs(sum(values[kind]) / len(values[kind]) - found[name][key]) > 1e-9 \
                            or abs(mean_stderr(values[kind]) - found[name][error]) > 1e-9:
                        wrong.append(f"{name} {kind} {values[kind]} {lines[name]} {found[name]}")
                    right += 0 < sum(values[kind]) < len(values[kind])
            ring.check(not wrong and right > 3, f"{len(lines)} tasks whose answers are written, {shots} examples, {'a tokenizer that begins texts' if bos else 'a plain one'}: "
                       f"the harness's texts, answers and matches; {right} filters are right at times", "\n".join(wrong))
        for mesh in (["--devices", 2], ["--devices", 2, "--strategy", "full_shard"], ["--devices", 2, "--mesh.tp", 2], ["--devices", 2, "--mesh.pp", 2],
                     ["--devices", 3, "--limit", 5]):
            there, alike, _ = written(model, file, SHOTS, *mesh)
            pairs = [(one["text"], other["text"]) for name in lines for one, other in zip(alike[name], lines[name]) if one != other]
            # tp sums in another order.
            at_ties = "--mesh.tp" in mesh and all(one != other and part_at_a_tie(hf, kept, one, other) for one, other in pairs)
            ring.check(not pairs and ("--limit" in mesh or there == found) or at_ties, f"{' '.join(map(str, mesh))}: the same answers", str(pairs))

    drawing = r.folder / "drawing.yaml"
    drawing.write_text(f"dataset_path: json\ndataset_kwargs: {{data_files: {file}}}\ndoc_to_text: question\ndoc_to_target: first\n"
                       "generation_kwargs: {do_sample: true, temperature: 1.0, max_gen_toks: 16}\n")
    drawn = []
    for more in (["--seed", 1], ["--seed", 1, "--devices", 2], ["--seed", 2]):
        result = r.run([r.program, "evaluate", str(r.folder / "model0"), "--tasks", f"drawing={drawing}", "--predictions", str(r.folder / "drawn.jsonl"), *map(str, more)])
        ring.require(result.code == 0 and f"{'drawing':<16} exact_match 0.0000 +- 0.0000   (8 questions)" in result.out, "a task that draws", str(result))
        drawn.append((r.folder / "drawn.jsonl").read_text())
    ring.check(drawn[0] == drawn[1] != drawn[2], "draws depend on the seed, not on the ranks", "\n".join(drawn))

    (r.folder / "unbuilt.yaml").write_text(drawing.read_text() + "repeats: 8\n")
    (r.folder / "shots.yaml").write_text(drawing.read_text() + "num_fewshot: 3\n")
    (r.folder / "wide.yaml").write_text(drawing.read_text().replace("max_gen_toks: 16", "max_gen_toks: 512"))
    (r.folder / "rowless.yaml").write_text("doc_to_text: a\ndoc_to_target: b\n")
    write(r.folder / "piqa.jsonl", [{"goal": "a", "sol1": "b", "sol2": "c", "label": 1}])
    refused = {"a key that is not built": ("unbuilt.yaml", "repeats is 8, and only 1 is built"),
               "examples that only the file asks for": ("shots.yaml", "num_fewshot of a is 3, and evaluate.num_fewshot is 0"),
               "answers without room": ("wide.yaml", "answers of a have up to 512 tokens, and the model has 512 positions"),
               "a task without rows": ("rowless.yaml", "rowless.yaml names no rows; add dataset_path"),
               "a task that is not there": ("nothing.yaml", "evaluate.tasks: ")}
    for what, (name, said) in refused.items():
        result = r.run([r.program, "evaluate", str(r.folder / "model0"), "--tasks", f"a={r.folder / name}"])
        ring.check(result.code == 2 and said in result.text and result.text.count("\n") == 1, f"refused: {what}", str(result))
    result = r.run([r.program, "evaluate", str(r.folder / "model0"), "--tasks", f"gsm8k={r.folder}/piqa.jsonl"])
    ring.check(result.code == 2 and 'piqa.jsonl:1: there is no "question"' in result.text, "refused: rows without a key", str(result))
