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
    for what, settings, sentence in [
            ("no template", {"data__chat_template": None}, "there is no model's folder that names a chat template to write them with"),
            ("a tokenizer without the template's tokens", {"data__chat_template": "chatml"}, "the tokenizer (byte) has no token <|im_end|>"),
            ("rows too short for any reply", {"train__max_seq_length": 64}, "nothing would be learned from"),
            ("a missing column", {"data": "Dolly"}, "chat.jsonl:1: instruction is missing"),
            ("a set that is not there", {"data": "Alpaca", "data__train_data_path": "nowhere"}, "alpaca_data_cleaned_archive.json"),
            ("a file that is not there", {"data": "JSON", "data__train_data_path": "lost.json"}, "lost.json does not exist")]:
        result = r.run(chat(r, "none", **settings))
        ring.check(result.code == 2 and sentence in result.err and result.err.count("error:") == 1, f"refused: {what}", str(result))
