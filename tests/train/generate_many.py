"""Texts for a file of prompts: each is the text that it would be alone, on any number of ranks; transformers writes the same
greedy ones; a kill loses nothing and doubles nothing; what is broken is refused in one sentence.

generate_many.py TRIREME MODEL_PROBE
"""

import fcntl
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import ring

torch, transformers = ring.judges("torch", "transformers")


def many(r, run, prompts, *words, code=0):
    file, out = r.folder / "prompts.jsonl", r.folder / "texts.jsonl"
    file.write_text("".join(json.dumps(p) + "\n" for p in prompts))
    result = r.run([r.program, "generate", run, "--prompts", file, "--output", out, *map(str, words)])
    ring.require(result.code == code, f"generate --prompts {' '.join(map(str, words))}", str(result))
    if code != 0:
        return result.err
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    out.unlink()
    return lines


def refuses(r, run, what, lines, said, *words):
    file = r.folder / "broken.jsonl"
    file.write_text(lines)
    result = r.run([r.program, "generate", run, "--prompts", file, *map(str, words)])
    ring.check(result.code == 2 and said in result.err and len(result.err.strip().splitlines()) <= 3, f"refuses {what}", str(result))


with ring.Ring(sys.argv[1]) as r, torch.no_grad():
    torch.set_num_threads(1)
    run = r.train("run", model=ring.LLAMA | {"max_position_embeddings": 400}, train__max_steps=30, optimizer__lr=1e-2)
    model = transformers.AutoModelForCausalLM.from_pretrained(run / "step-00000030", dtype=torch.float32).eval()
    draw = random.Random(7)
    text = r.text.read_text()
    prompts = [{"prompt": text[at:at + draw.randint(1, 40)], "id": at} for at in draw.sample(range(900), 20)]

    alone = many(r, run, prompts, "--max_new_tokens", 12, "--samples", 2, "--batch_size", 1)
    ring.require([(t["index"], t["sample"], t["id"]) for t in alone] == [(i, s, p["id"]) for i, p in enumerate(prompts) for s in (0, 1)],
                 "a result for each prompt and sample, in order, with the prompt's other keys", str(alone[:3]))
    ring.check(len({t["text"] for t in alone}) > 30, "samples differ")
    for words in (["--batch_size", 32], ["--batch_size", 5, "--cache_tokens", 300], ["--devices", 2], ["--devices", 4, "--batch_size", 3],
                  ["--devices", 2, "--strategy", "full_shard"], ["--devices", 2, "--mesh.pp", 2]):
        ring.check(many(r, run, prompts, "--max_new_tokens", 12, "--samples", 2, *words) == alone, f"{' '.join(map(str, words))}: the same texts")

    greedy = many(r, run, prompts, "--max_new_tokens", 12, "--temperature", 0, "--logprobs")
    for t, p in zip(greedy, prompts):
        ids = torch.tensor([list(p["prompt"].encode())])
        want = model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)[0, ids.shape[1]:].tolist()
        ring.require(t["tokens"] == want, "greedy tokens are transformers'", f"{p} {t} {want}")
        logits = model(torch.cat([ids, torch.tensor([want])], 1)).logits[0, ids.shape[1] - 1:-1].log_softmax(-1)
        theirs = [logits[i, token].item() for i, token in enumerate(want)]
        ring.require(max(abs(a - b) for a, b in zip(theirs, t["logprobs"])) < 2e-5, "log-probabilities are transformers'", f"{theirs} {t}")
    ring.check(True, f"{len(prompts)} greedy texts and their log-probabilities are transformers'")
    penal = many(r, run, prompts, "--max_new_tokens", 20, "--temperature", 0, "--repetition_penalty", 1.3)
    for t, p in zip(penal, prompts):
        ids = torch.tensor([list(p["prompt"].encode())])
        want = model.generate(ids, max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0, repetition_penalty=1.3)[0, ids.shape[1]:].tolist()
        ring.require(t["text"].encode("utf-8", "replace") == bytes(want).decode("utf-8", "replace").encode(), "the repetition penalty is transformers'", f"{t} {want}")
    ring.check(True, "so are greedy texts with a repetition penalty")

    # Killed at random times, the command goes on where it was.
    file, out = r.folder / "prompts.jsonl", r.folder / "texts.jsonl"
    slow = many(r, run, prompts, "--max_new_tokens", 60, "--samples", 40)
    file.write_text("".join(json.dumps(p) + "\n" for p in prompts))
    command = [r.program, "generate", run, "--prompts", file, "--output", out, "--max_new_tokens", "60", "--samples", "40", "--batch_size", "2"]
    kills = 0
    for attempt in range(40):
        process = subprocess.Popen(list(map(str, command)), cwd=r.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(0.3 + draw.random() * 0.4 + attempt / 20)
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
    ring.check(kills > 0 and [json.loads(line) for line in out.read_bytes().splitlines()] == slow,
               f"after {kills} kills, every text is there once")
    out.write_text(out.read_text()[:-30])  # torn
    again = r.run(list(map(str, command)))
    ring.check(again.code == 0 and [json.loads(line) for line in out.read_bytes().splitlines()] == slow, "a torn last line is written again", str(again))
    again = r.run(list(map(str, command)))
    ring.check(again.code == 0 and again.err.strip() == f"nothing to write: {len(slow):,} texts were there", "a file that holds all texts is told", str(again))
    other = r.run([*map(str, command), "--seed", "7"])
    ring.check(other.code == 2 and "texts.jsonl holds other texts: seed was 42, is 7 now; name another file" in other.err, "a file of other texts is refused",
               str(other))

    command[2] = "./run/"
    again = r.run(list(map(str, command)))
    ring.check(again.code == 0 and "nothing to write" in again.err, "the same folder may be written in another way", str(again))

    # A folder without a manifest, as Hugging Face has it, whose model is replaced.
    other = r.train("other", model=ring.LLAMA | {"max_position_embeddings": 400}, train__max_steps=2, seed=5)
    plain, out = r.folder / "plain", r.folder / "plain.jsonl"
    plain.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(run / "step-00000030" / name, plain)
    file.write_text(json.dumps(prompts[0]) + "\n")
    command = [r.program, "generate", "plain", "--prompts", str(file), "--output", str(out), "--max_new_tokens", "8"]
    for said in ("1 text with", "nothing to write: 1 text was there"):
        result = r.run(command)
        ring.check(result.code == 0 and said in result.err, f"a folder without a manifest: {said}", str(result))
    shutil.copy(other / "step-00000002" / "model.safetensors", plain)
    result = r.run(command)
    ring.check(result.code == 2 and "plain.jsonl holds other texts: its model's weights are not these; name another file" in result.err,
               "texts of a model that was replaced in its folder are not taken for the new one's", str(result))

    refuses(r, run, "a line that is no JSON", '{"prompt": "a"}\nprompt\n', "broken.jsonl:2 is not JSON")
    (r.folder / "latin.jsonl").write_bytes('{"prompt": "caf\u00e9"}\n'.encode("latin-1"))
    for words in (["generate", run, "--prompts", "latin.jsonl"], ["evaluate", run, "--score", "latin.jsonl"],
                  ["evaluate", run, "--multiple_choice", "latin.jsonl"], ["evaluate", run, "--tasks", "piqa=latin.jsonl"]):
        result = r.run([r.program, *map(str, words)])
        ring.check(result.code == 2 and "latin.jsonl:1 is not UTF-8 (byte 16)" in result.err, f"{words[2]} tells another encoding", str(result))
    full = r.run(["bash", "-c", f"{r.program} generate {run} --prompts {file} --max_new_tokens 2 > /dev/full"])
    ring.check(full.code == 74 and "cannot write standard output: the disk is full" in full.err, "texts that cannot be written are no success", str(full))
    refuses(r, run, "a line without a prompt", '{"text": "a"}\n', '"prompt" or "messages"')
    refuses(r, run, "an empty file", "\n\n", "holds no prompt")
    refuses(r, run, "a conversation without a chat format", '{"messages": [{"role": "user", "content": "a"}]}\n', "--chat_template")
    refuses(r, run, "a message without content", '{"messages": [{"role": "user"}]}\n', "broken.jsonl:1")
    refuses(r, run, "a prompt beyond the model's positions", json.dumps({"prompt": "a" * 5000}) + "\n", "positions; shorten it")
    refuses(r, run, "a cache that holds no text", json.dumps({"prompt": "a" * 40}) + "\n", "the cache holds", "--cache_tokens", 8, "--max_new_tokens", 200)
    refuses(r, run, "a prompt of another rank that is too long", '"a"\n' + json.dumps("a" * 5000) + "\n", "broken.jsonl:2", "--output", r.folder / "no.jsonl", "--devices", 2,
            "--strategy", "full_shard")
    ring.check(not list(r.folder.glob("no.jsonl*")), "refused prompts leave no file of results", str(list(r.folder.iterdir())))
    for what, lines, said, words in (("a prompt that is too long", json.dumps("a" * 5000) + "\n", "broken.jsonl:1: the prompt has 5,000 tokens", ()),
                                     ("a cache that holds no text", json.dumps("a" * 40) + "\n", "the cache holds", ("--cache_tokens", 8, "--max_new_tokens", 200)),
                                     ("a template whose end the tokenizer lacks", '{"messages": [{"role": "user", "content": "a"}]}\n', "broken.jsonl:1: the tokenizer",
                                      ("--chat_template", "llama2"))):
        refuses(r, run, f"{what} before ranks start", lines, said, "--output", r.folder / "no.jsonl", "--devices", 2, *words)
        left = list(r.folder.glob("no.jsonl*"))
        ring.check(not left, f"{what} leaves no file of results", str(left))
    refuses(r, run, "variables that are no object", '{"prompt": "a", "chat_template_kwargs": 3}\n', "/broken.jsonl:1: chat_template_kwargs is no object")
    refuses(r, run, "a cache that the memory does not hold", '"a"\n', "are available", "--cache_tokens", 10**12)
    for what, words, said in (("a prompt beyond the model's positions", ["generate", run, "--prompt", "a" * 5000], "the model has 400 positions; shorten it"),
                              ("it before ranks start", ["generate", run, "--prompt", "a" * 5000, "--devices", 2, "--mesh.tp", 2], "the model has 400 positions; shorten it"),
                              ("a cache that does not hold it", ["generate", run, "--prompt", "a" * 40, "--cache_tokens", 8], "generate.cache_tokens is 8, and the prompt has 40 tokens"),
                              ("a text to score beyond them", ["evaluate", run, "--score", "long.jsonl"], "cut it"),
                              ("a file of texts to score that is not there", ["evaluate", run, "--score", "nowhere.jsonl"], "evaluate.score: cannot open nowhere.jsonl")):
        (r.folder / "long.jsonl").write_text(json.dumps({"prompt": "a" * 5000, "completion": "b"}) + "\n")
        result = r.run([r.program, *map(str, words)])
        ring.check(result.code == 2 and said in result.err and len(result.err.strip().splitlines()) == 1, f"{words[0]} refuses {what}", str(result))
    (r.folder / "said.txt").write_text("b" * 90 + "\n")
    talk = r.run(["bash", "-c", f"{r.program} generate {run} --chat --chat_template alpaca --cache_tokens 64 --max_new_tokens 4 < said.txt"])
    ring.check(talk.code == 0 and "there is room for 64: the model reads its last 32" in talk.err, "a conversation that has become too long is said to lose its beginning", str(talk))
    # A conversation goes on from what was shown: the stop word is no part of it.
    asked = [{"role": "user", "content": "hi"}]
    words = ["--chat_template", "alpaca", "--temperature", "0", "--max_new_tokens", "24"]
    for left in ("texts.jsonl", "texts.jsonl.about.json"):  # of what was refused
        (r.folder / left).unlink(missing_ok=True)
    (whole,) = many(r, run, [{"messages": asked}], *words)
    ring.require(len(whole["text"]) > 8, "a reply to stop", str(whole))
    stop = ["--stop", json.dumps([whole["text"][3:8]])]
    replies = []
    for question in ("there", "and"):
        (line,) = many(r, run, [{"messages": asked}], *words, *stop)
        replies.append(line["text"])
        asked += [{"role": "assistant", "content": line["text"]}, {"role": "user", "content": question}]
    (r.folder / "said.txt").write_text("hi\nthere\n")
    talk = r.run(["bash", "-c", shlex.join([r.program, "generate", str(run), "--chat", *words, *stop]) + " < said.txt"])
    ring.check(talk.code == 0 and talk.out == "".join(f"{reply}\n" for reply in replies), "a conversation goes on from what was shown before a stop word", f"{talk} {replies}")
    late = [r.program, "generate", str(run), "--chat", *words, "--devices", "2", "--mesh.tp", "2", "--comm.timeout", "1s"]
    talk = r.run(["bash", "-c", f"(sleep 3; echo hi) | {shlex.join(late)}"])
    ring.check(talk.code == 0 and talk.out.strip(), "a person may think for longer than comm.timeout", str(talk))
    with open(r.folder / "busy.jsonl.about.json", "w", encoding="utf-8") as about:
        fcntl.flock(about, fcntl.LOCK_EX)
        refuses(r, run, "a file that another command writes", '"a"\n', "another process is writing busy.jsonl", "--output", "busy.jsonl")
    refuses(r, run, "codes of a model without a latent", '"a"\n', "Free Transformer", "--free.latent", 1)
    explained = r.run([r.program, "explain", "generate", str(run / "step-00000030"), "--generate.cache_tokens", "1000"])
    ring.check(explained.code == 0 and "cache of generation" in explained.out and "holds 1,024 tokens" in explained.out, "explain generate prints the cache",
               str(explained))
    words = [r.program, "explain", "generate", str(run / "step-00000030")]
    small = r.run([*words, "--generate.cache_tokens", "8", "--generate.max_new_tokens", "200"])
    ring.check(small.code == 2 and "the cache holds 128 tokens, and a text needs 256" in small.err, "explain generate refuses a cache that holds no text", str(small))
    ring.check("counted for texts of 400 tokens" in r.run(words).out, "explain generate says how long texts are taken to be")
    (r.folder / "two.jsonl").write_text('"a"\n"b"\n')
    two = r.run([*words, "--generate.prompts", str(r.folder / "two.jsonl"), "--generate.max_new_tokens", "100"])
    ring.check("counted for 2 prompts of " in two.out and "2 texts at a time; the cache holds 256 tokens" in two.out, "explain generate counts the prompts of a file", str(two))
    refuses(r, run, "copies without a file", '"a"\n', "--output", "--devices", 2)
    ring.check(r.run([r.program, "generate", run, "--prompt", "a", "--samples", "3"]).code == 2, "refuses samples without a file of prompts")
    for words, said in ((["--prompt", "a", "--stop", "['']"], "generate.stop has an empty word"),
                        (["--prompt", "a", "--mesh.cp", "2", "--devices", "2"], "without training nothing divides a sequence"),
                        (["--chat", "--prompt", "a"], "--prompt is one text; leave out one of them"), (["--prompt", "a", "--system", "b"], "--system is of conversations"),
                        (["--prompt", "a", "--chat_template", "alpaca"], "--chat_template is of conversations"),
                        (["--prompt", "a", "--generate.batch_size", "32"], "--generate.batch_size goes with a file of prompts"),
                        (["--chat", "--generate.batch_size", "2"], "--generate.batch_size goes with a file of prompts")):
        result = r.run([r.program, "generate", str(run), *words])
        ring.check(result.code == 2 and said in result.err, f"refuses {' '.join(words)}, which nothing would read", str(result))
    refuses(r, run, "a system prompt where there is no conversation", '"a"\n', "holds plain texts", "--system", "b")
