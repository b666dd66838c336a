"""A run that is given conversations learns the replies and nothing else, on any number of ranks.

conversations.py TRIREME
"""

import json
import random
import sys

import ring

STEPS, LENGTH = 60, 320


def write_conversations(r):
    """Questions are noise that nothing can predict; a reply is always the same."""
    source = random.Random(5)
    with open(r.folder / "chat.jsonl", "w") as out:
        for _ in range(200):
            question = "".join(source.choice("bcdefghijklmnopqrstuvwxyz") for _ in range(source.randint(20, 60)))
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": "a" * source.randint(5, 40)}]
            out.write(json.dumps({"messages": messages}) + "\n")


def chat(r, out, **settings):
    settings = {"data__chat_template": "alpaca", "data__packing": "best_fit", "data__reset_attention_mask": "true",
                "model__max_position_embeddings": LENGTH, "train__max_seq_length": LENGTH, "train__max_steps": STEPS} | settings
    command = r.command(out, **{k: v for k, v in settings.items() if v is not None})
    if "data__train_data_path" not in settings:
        command[command.index("--data.train_data_path") + 1] = "chat.jsonl"
    return command


def losses(r, out, **settings):
    result = r.run(chat(r, out, **settings))
    ring.require(result.code == 0 and "chat.jsonl as alpaca: 200 conversations, " in result.text, f"{out}: trains", str(result))
    return [row["loss"] for _, row in sorted(ring.metrics(r.folder / out).items())]


def keeps_its_template(r):
    """What is made from a checkpoint is asked in the template of its training, also by transformers, which reads this file."""
    [trained] = (r.folder / "sample-1").glob("step-*40")
    jinja = (trained / "chat_template.jinja").read_text()
    ring.check("### Instruction:" in jinja, "a checkpoint has the template of its training as Jinja", jinja)
    further = [r.program, "pretrain", str(trained), "--data", "TextFiles", "--data.train_data_path", str(r.text), "--out_dir", "further", "--train.max_steps", "1",
               "--train.max_seq_length", "32", "--train.global_batch_size", "8", "--optimizer.lr", "1e-9", "--train.min_lr", "0", "--train.lr_warmup_steps", "0",
               "--eval.final_validation", "false", "--precision", "32-true", "--devices", "1", "--launch.threads_per_rank", "1"]
    for name, command in (("further/step-00000001", further), ("whole", [r.program, "checkpoint", "consolidate", str(trained), "whole"]),
                          ("converted", [r.program, "convert", str(trained), "converted"])):
        made = r.run(command)
        ring.require(made.code == 0, f"{name} is made", str(made))
        file = r.folder / name / "chat_template.jinja"
        talk = r.run(["bash", "-c", f"{r.program} generate {name} --chat --temperature 0 --max_new_tokens 30 < said.txt"])
        ring.check(file.exists() and file.read_text() == jinja and talk.code == 0 and set(talk.out.split("\n")[0]) == {"a"},
                   f"{name} keeps the template of the training", str(talk))
    state = json.loads((r.folder / "further/step-00000001/trireme_state.json").read_text())
    ring.check(state["chat_template"] == "alpaca", "training on plain text keeps the name of the template, too", str(state))


def steps_without_targets(r):
    """Rows that are cut anywhere may hold questions only. Such a step has no loss, and it falsifies none."""
    with open(r.folder / "long.jsonl", "w") as out:
        for i in range(60):  # replies stand at the beginning and at the end in turn, so up to 400 tokens lie between two
            turns = [("user", "b" * (150 if i % 2 else 10)), ("assistant", "a"), ("user", "b" * 120)][:2 if i % 2 else 3]
            out.write(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}) + "\n")
    result = r.run(chat(r, "long", data__packing="wrapped", data__reset_attention_mask=None, data__train_data_path="long.jsonl", train__log_interval=1,
                        train__global_batch_size=1, train__micro_batch_size=1, train__max_steps=12, eval__final_validation="false"))
    rows = ring.metrics(r.folder / "long")
    with_loss = [row["loss"] for row in rows.values() if "loss" in row]
    ring.check(result.code == 0 and len(rows) == 12 and 0 < len(with_loss) < 12 and 0 not in with_loss
               and "  loss -" in result.text and "  loss 0.000" not in result.text and result.text.count("learns from no token, so it has no loss") == 1,
               f"{12 - len(with_loss)} of 12 steps learn from no token, and have no loss", f"{rows} {result}")


with ring.Ring(sys.argv[1]) as r:
    write_conversations(r)
    one = losses(r, "one")
    ring.check(one[-1] < 0.5, f"replies that are always the same are learned: loss {one[0]:.2f} to {one[-1]:.3f}", str(one))
    again = r.run(chat(r, "one", overwrite="true", train__max_steps=1))
    ring.check("chat.jsonl as alpaca: 200 conversations, " in again.text, "what became of the conversations is said with cached tokens too", str(again))
    everything = losses(r, "everything", data__learn="messages")
    ring.check(everything[-1] > 1, f"and questions of noise where data.learn asks for them: {everything[0]:.2f} to {everything[-1]:.2f}", str(everything))
    few = [losses(r, f"few-{n}", devices=n, train__max_steps=5) for n in (1, 2)]
    ring.check(few[0] == few[1], "two ranks, whose rows hold other numbers of learned tokens, have the bits of one", str(few))
    def samples(out, **settings):
        sampled = {"eval__max_new_tokens": 30, "eval__evaluate_example": "bcdefg", "eval__final_validation": "true",
                   "train__max_steps": 40, "eval__interval": 20}
        result = r.run(chat(r, out, **(sampled | settings)))
        ring.require(result.code == 0, f"{out}: trains", str(result))
        return [line.removeprefix("sample   ") for line in result.text.splitlines() if line.startswith("sample   ")], result

    alone, told = samples("sample-1")
    ring.check(len(alone) == 3 and alone[0].startswith("at each evaluation, up to 30 tokens in reply to: ") and "bcdefg" in alone[0]
               and "for it rank 0 takes up to " in told.text, "a sample's prompt and memory are said at the start", str(told))
    ring.check(set(alone[-1].removesuffix(" ...")) == {"a"}, f"and what the model replies after each evaluation: {alone[1:]}", str(told))
    prompt = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\nbcdefg\n\n### Response:\n"
    written = r.run([r.program, "generate", "sample-1", "--prompt", prompt, "--temperature", "0", "--max_new_tokens", "30"])
    ring.check(written.code == 0 and written.out.removeprefix(prompt).split("\n")[0] == alone[-1].removesuffix(" ..."),
               "which is what trireme generate writes from the checkpoint", f"{alone} {written}")
    (r.folder / "said.txt").write_text("bcdefg\n")
    talk = r.run(["bash", "-c", f"{r.program} generate sample-1 --chat --temperature 0 --max_new_tokens 30 < said.txt"])
    ring.check(talk.code == 0 and set(talk.out.split("\n")[0]) == {"a"}, "a conversation is in the template of the training", str(talk))
    keeps_its_template(r)
    steps_without_targets(r)
    # Of an untrained model the likeliest bytes say more about its weights than many a's.
    early = {"train__max_steps": 1, "optimizer__lr": 1e-6, "train__min_lr": 1e-7, "eval__initial_validation": "true"}
    alone, told = samples("early", **early)
    for name, mesh in [("sharded", {"strategy": "full_shard", "devices": 2}), ("tensors", {"mesh__tp": 2, "devices": 2}),
                       ("stages", {"mesh__pp": 2, "devices": 2})]:
        there, told = samples(name, **early, **mesh)
        ring.check(there[1:] == alone[1:], f"the same replies with {mesh}: {there[1][:30]}", f"{alone} {told}")
    first, told = samples("sample-first", eval__evaluate_example="first", train__max_steps=2, eval__interval=2)
    ring.check("### Response:" in first[0], "first is the first conversation that is held out", str(told))
    for what, settings, sentence in [
            ("no template", {"data__chat_template": None}, "there is no model's folder that names a chat template to write them with"),
            ("a tokenizer without the template's tokens", {"data__chat_template": "chatml"}, "the tokenizer (byte) has no token <|im_end|>"),
            ("rows too short for any reply", {"train__max_seq_length": 64}, "nothing would be learned from"),
            ("a missing column", {"data": "Dolly"}, "chat.jsonl:1: instruction is missing"),
            ("a set that is not there", {"data": "Alpaca", "data__train_data_path": "nowhere"}, "alpaca_data_cleaned_archive.json"),
            ("a file that is not there", {"data": "JSON", "data__train_data_path": "lost.json"}, "lost.json does not exist"),
            ("a field of text", {"data__text_field": "body"}, "data.text_field has no effect: chat.jsonl holds conversations"),
            ("a conversation that is not there", {"eval__max_new_tokens": 9, "eval__evaluate_example": "99"}, "eval.evaluate_example 99 is not among the")]:
        result = r.run(chat(r, "none", **settings))
        ring.check(result.code == 2 and sentence in result.err and result.err.count("error:") == 1, f"refused: {what}", str(result))
