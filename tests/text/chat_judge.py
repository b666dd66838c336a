"""Tokens and loss masks of conversations equal those of transformers' apply_chat_template.

chat_judge.py PROBE [FAMILY...|real]
PROBE is chat_probe. The judge renders the models' own templates with {% generation %} around what is learned, encodes
the whole text at once and finds the mask by characters; contents here are such that no token reaches over a border.
Templates that models have in their files, as the package trl keeps them, are recognised and write the same text.
100 conversations a template and vocabulary, 2,000 with TRIREME_SLOW=1. Vocabularies as in tokenizers_judge.py; those
that lack a template's marks get them as added tokens.
"""

import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import vocabularies
from tokenizer_texts import texts

COUNT = 2000 if os.environ.get("TRIREME_SLOW") == "1" else 100

LEARNED = "{% generation %}{{ m.content }}STOP{% endgeneration %}"


def turns(system: str, user: str, assistant: str, begin: str = "") -> str:
    return (begin + "{% for m in messages %}{% if m.role == 'system' %}" + system + "{% elif m.role == 'user' %}" + user
            + "{% else %}" + assistant + "{% endif %}{% endfor %}")


def in_user(around: str, user: str, assistant: str, begin: str = "") -> str:
    """The system message goes into the first user's turn: `around` of it, before the words."""
    return ("{% if messages[0].role == 'system' %}{% set ns = namespace(system=messages[0].content) %}{% else %}"
            "{% set ns = namespace(system='') %}{% endif %}" + begin + "{% for m in messages %}{% if m.role == 'user' %}"
            + user.replace("AROUND", "{% if ns.system %}" + around + "{% set ns.system = '' %}{% endif %}")
            + "{% elif m.role == 'assistant' %}" + assistant + "{% endif %}{% endfor %}")


def same(mark: str, end: str, stop: str, names=("system", "user", "assistant")) -> str:
    head = [mark.replace("ROLE", name) for name in names]
    return turns(head[0] + "{{ m.content }}" + end, head[1] + "{{ m.content }}" + end,
                 head[2] + LEARNED.replace("STOP", stop) + end.replace(stop, "", 1))


NL = "{{ '\\n' }}"
NN = "{{ '\\n\\n' }}"
ALPACA = ("### Instruction:" + NL + "{{ m.content }}" + NN + "### Response:" + NL)
TASK = ("Below is an instruction that describes a task. Write a response that appropriately completes the request." + NN)
# family -> the template as its models have it, what is learned marked
TEMPLATES = {
    "chatml": same("<|im_start|>ROLE" + NL, "<|im_end|>" + NL, "<|im_end|>"),
    "llama3": "<|begin_of_text|>" + same("<|start_header_id|>ROLE<|end_header_id|>" + NN, "<|eot_id|>", "<|eot_id|>"),
    "gemma": in_user("{{ ns.system }}" + NN, "<start_of_turn>user" + NL + "AROUND{{ m.content }}<end_of_turn>" + NL,
                     "<start_of_turn>model" + NL + LEARNED.replace("STOP", "<end_of_turn>") + NL, "<bos>"),
    "phi3": same("<|ROLE|>" + NL, "<|end|>" + NL, "<|end|>"),
    "zephyr": same("<|ROLE|>" + NL, "</s>" + NL, "</s>"),
    "llama2": in_user(" <<SYS>>" + NL + "{{ ns.system }}" + NL + "<</SYS>>" + NN,
                      "<s>[INST]{% if not ns.system %} {% endif %}AROUND{{ m.content }} [/INST]",
                      "{% generation %} {{ m.content }} </s>{% endgeneration %}"),
    "mistral": in_user("{{ ns.system }}" + NN, "[INST] AROUND{{ m.content }} [/INST]",
                       "{% generation %} {{ m.content }}</s>{% endgeneration %}", "<s>"),
    "alpaca": "{% if messages[0].role != 'system' %}" + TASK + "{% endif %}"
              + turns("{{ m.content }}" + NN,
                      "{% if not loop.first and not (loop.index0 == 1 and messages[0].role == 'system') %}" + NN
                      + "{% endif %}" + ALPACA, LEARNED.replace("STOP", "</s>")),
}


# Qwen3's, of conversations without tools, with enable_thinking false.
UNTHINKING = "chatml, unthinking"
TEMPLATES[UNTHINKING] = ("{% for m in messages %}{% if m.role != 'assistant' %}<|im_start|>{{ m.role }}" + NL + "{{ m.content }}<|im_end|>" + NL
                         + "{% else %}<|im_start|>assistant" + NL + "{% if loop.last %}<think>" + NN + "</think>" + NN + "{% endif %}"
                         + LEARNED.replace("STOP", "<|im_end|>") + NL + "{% endif %}{% endfor %}")


def with_marks(path: Path, folder: Path, marks: list) -> Path:
    """The tokenizer with the template's marks, and </s>, as special tokens."""
    value = json.loads(path.read_text(encoding="utf-8"))
    there = {t["content"] for t in value["added_tokens"]} | set(value["model"]["vocab"] if isinstance(
        value["model"]["vocab"], dict) else [])
    top = max([*value["model"]["vocab"].values(), *(t["id"] for t in value["added_tokens"])])
    for mark in marks:
        if mark not in there:
            top += 1
            value["added_tokens"].append({"id": top, "content": mark, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": True})
    if (value.get("post_processor") or {}).get("type") == "TemplateProcessing":
        value["post_processor"] = None
    made = vocabularies.write_json(folder, value)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    return made


MARKS = ("<s> </s> <bos> <start_of_turn> <end_of_turn> <|system|> <|user|> <|assistant|> <|end|> <|im_start|> <|im_end|> "
         "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> [INST] [/INST]").split()


def mistral_v1(folder: Path) -> Path:
    """SentencePiece's BPE as tokenizer.json: spaces are U+2581, one in front of each text, bytes for the rest."""
    sentencepiece = importlib.import_module("sentencepiece")
    model = sentencepiece.SentencePieceProcessor(model_file=str(vocabularies.mistral("tokenizer.model.v1")(folder)))
    pieces = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    ids = {p: i for i, p in enumerate(pieces)}
    merges = []
    for piece, i in ids.items():
        if i >= 259:
            merges += [(i, ids[piece[:k]], ids[piece[k:]], [piece[:k], piece[k:]]) for k in range(1, len(piece))
                       if piece[:k] in ids and piece[k:] in ids]
    space = "\u2581"
    return vocabularies.write_json(folder, {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": space},
                                                           {"type": "Replace", "pattern": {"String": " "}, "content": space}]},
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": space}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": ids, "merges": [m for *_, m in sorted(merges, key=lambda m: m[:3])]}})


# Vocabularies that are judged: all templates with Llama 3's, and those that models have.
PAIRS = [("llama3", vocabularies.llama3, list(TEMPLATES)), ("qwen3", vocabularies.qwen3, ["chatml", UNTHINKING]),
         ("smollm2", vocabularies.smollm2, ["chatml"]),
         ("mistral-v1", mistral_v1, ["mistral", "llama2", "zephyr", "alpaca"])]


def conversations(rng: random.Random, contents: list) -> list:
    made = []
    for _ in range(COUNT):
        talk = [{"role": "system", "content": rng.choice(contents)}] if rng.random() < 0.5 else []
        for _ in range(rng.randrange(1, 4)):
            talk += [{"role": "user", "content": rng.choice(contents)},
                     {"role": "assistant", "content": rng.choice(contents)}]
        made.append(talk)
    return made


def plain(content: str) -> bool:
    """Begins and ends with a letter or digit, so that nothing joins it with what stands around it."""
    return content[:1].isalnum() and content[-1:].isalnum() and content.isprintable()


def judge(probe: str, name: str, path: Path, family: str) -> int:
    transformers = importlib.import_module("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", eos_token="</s>")
    added = [t.content for t in tokenizer.added_tokens_decoder.values()]
    contents = [s.strip() for s in texts(4 * COUNT, [])]
    contents = [c for c in contents if c and plain(c) and not any(a in c for a in added)]
    talks = conversations(random.Random(5), contents)
    more = {"chat_template_kwargs": {"enable_thinking": False}} if family == UNTHINKING else {}
    sent = "".join(json.dumps({"messages": talk} | more) + "\n" for talk in talks)
    done = subprocess.run([probe, str(path.parent), family.split(",")[0]], input=sent.encode(), capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{name} {family}: {done.stderr.decode()}")
    different = 0
    for talk, line in zip(talks, done.stdout.splitlines(), strict=True):
        ours = json.loads(line)
        theirs = tokenizer.apply_chat_template(talk, chat_template=TEMPLATES[family], tokenize=True, return_dict=True,
                                               return_assistant_tokens_mask=True)
        if ours["ids"] == theirs["input_ids"] and ours["mask"] == theirs["assistant_masks"]:
            continue
        different += 1
        if different <= 2:
            print(f"  {name} {family}: {talk!r}\n    ours   {ours['ids']}\n           {ours['mask']}\n"
                  f"    theirs {theirs['input_ids']}\n           {theirs['assistant_masks']}")
            print(f"    {tokenizer.apply_chat_template(talk, chat_template=TEMPLATES[family], tokenize=False)!r}")
    learned = sum(sum(json.loads(line)["mask"]) for line in done.stdout.splitlines())
    print(f"{'FAIL' if different else 'ok  '} {name} {family}: {COUNT} conversations, {learned} tokens learned, "
          f"{different} differences", flush=True)
    return different


def judge_jinja(probe: str, path: Path, family: str) -> int:
    """transformers writes the text of training from the Jinja template that checkpoints get, and a prompt is its head."""
    transformers = importlib.import_module("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", eos_token="</s>")
    family, *unthinking = family.split(",")
    jinja = subprocess.run([probe, str(path.parent), family, "jinja"], capture_output=True, check=True, encoding="utf-8").stdout
    added = [t.content for t in tokenizer.added_tokens_decoder.values()]
    contents = [c for c in (s.strip() for s in texts(4 * COUNT, [])) if c and plain(c) and not any(a in c for a in added)]
    talks = conversations(random.Random(6), contents)
    if family == "qwen3":
        talks = with_thoughts(random.Random(7), talks, contents)
    more = {"enable_thinking": False} if unthinking else {}
    sent = "".join(json.dumps({"messages": talk, "chat_template_kwargs": more}) + "\n" for talk in talks)
    done = subprocess.run([probe, str(path.parent), family], input=sent.encode(), capture_output=True, check=True)
    different = 0
    for talk, line in zip(talks, done.stdout.splitlines(), strict=True):
        ours = tokenizer.decode(json.loads(line)["ids"], clean_up_tokenization_spaces=False)
        theirs, prompt = (tokenizer.apply_chat_template(messages, chat_template=jinja, tokenize=False, add_generation_prompt=asks, **more)
                          for messages, asks in ((talk, False), (talk[:-1], True)))
        different += theirs != ours or not ours.startswith(prompt)
        if different == 1:
            print(f"  {family}: {talk!r}\n    ours   {ours!r}\n    theirs {theirs!r}\n    prompt {prompt!r}")
    print(f"{'FAIL' if different else 'ok  '} {family}{''.join(unthinking)}: its Jinja template, {COUNT} conversations, {different} differences", flush=True)
    return different


# Files of the package trl -> the family that is recognised, or none, where templates write more or something else.
REAL = {"qwen3": "qwen3", "qwen3_instruct_2507": "chatml", "qwen2_5": "chatml", "llama3": "llama3", "gemma": "gemma", "gemma3": "gemma",
        "phi3": "phi3", "phi3_5": "phi3", "qwen3_5_think": "", "qwen3_6": "", "gptoss": "", "deepseekv3": "", "lfm2": ""}


def with_thoughts(rng: random.Random, talks: list, contents: list) -> list:
    """Replies think in all forms that data have; some of the user's messages are the results of tools."""
    for talk in talks:
        for message in talk:
            thought = rng.choice(contents)
            if message["role"] == "assistant":
                form = rng.randrange(5)
                if form == 0:
                    message["reasoning_content"] = rng.choice(["", "\n"]) + thought + rng.choice(["", "\n"])
                elif form < 3:
                    message["content"] = f"<think>\n{thought}\n</think>\n\n" + message["content"]
                elif form == 3:
                    message["content"] = "<think>\n\n</think>\n\n" + message["content"]
            elif message["role"] == "user" and rng.random() < 0.2:
                message["content"] = f"<tool_response>\n{thought}\n</tool_response>"
    return talks


def judge_real(probe: str, path: Path, name: str, family: str, jinja: str) -> int:
    """The same ids, where the template has the conversation at all and adds no system message of its own."""
    exceptions = importlib.import_module("jinja2.exceptions")
    transformers = importlib.import_module("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", eos_token="</s>")
    added = [t.content for t in tokenizer.added_tokens_decoder.values()]
    contents = [c for c in (s.strip() for s in texts(4 * COUNT, [])) if c and plain(c) and not any(a in c for a in added)]
    rng = random.Random(8)
    talks = conversations(rng, contents)
    if family == "qwen3":
        talks = with_thoughts(rng, talks, contents)
    different = compared = 0
    # Templates that trim messages: blanks may join the marks around them in other tokens, but the text is the same.
    passes = [(False, False), (True, False)] + ([(False, True)] if family in ("llama3", "gemma") else [])
    pad = lambda: rng.choice(("", " ", "\n"))
    for for_reply, pads in passes:
        asked = [talk[:-1] if for_reply else talk for talk in talks]
        if pads:
            asked = [[m | {"content": pad() + m["content"] + pad()} for m in talk] for talk in asked]
        sent = "".join(json.dumps({"messages": talk, "for_reply": for_reply}) + "\n" for talk in asked)
        done = subprocess.run([probe, str(path.parent), family], input=sent.encode(), capture_output=True, check=True)
        for talk, line in zip(asked, done.stdout.splitlines(), strict=True):
            if name.startswith("qwen2") and talk[0]["role"] != "system":
                continue
            try:
                theirs = tokenizer.apply_chat_template(talk, chat_template=jinja, tokenize=True, add_generation_prompt=for_reply, return_dict=True,
                                                       bos_token={"llama3": "<|begin_of_text|>", "gemma": "<bos>"}.get(family, ""))["input_ids"]
            except exceptions.TemplateError:
                continue
            if family == "phi3" and not for_reply:
                theirs = theirs[:-1]  # Phi-3's own template ends a conversation, not a reply, with the end of text
            compared += 1
            ours = json.loads(line)["ids"]
            is_other = tokenizer.decode(ours) != tokenizer.decode(theirs) if pads else ours != theirs
            different += is_other
            if is_other and different == 1:
                print(f"  {name}: {talk!r}\n    ours   {tokenizer.decode(json.loads(line)['ids'])!r}\n    theirs {tokenizer.decode(theirs)!r}")
    print(f"{'FAIL' if different or not compared else 'ok  '} {name} as {family}: {compared} conversations, {different} differences", flush=True)
    return different + (compared == 0)


def judge_recognition(probe: str, path: Path) -> int:
    try:
        folder = Path(importlib.import_module("trl").__file__).parent / "chat_templates"
    except ModuleNotFoundError as missing:
        print(f"skip templates of models: {missing}; scripts/setup --judges installs what is missing")
        return 0
    failures = 0
    for name, family in REAL.items():
        file = folder / f"{name}.jinja"
        found = subprocess.run([probe, "recognise", str(file)], capture_output=True, check=True, encoding="utf-8").stdout
        if found != family:
            print(f"FAIL {name} is taken for {found or 'none'}, not {family or 'none'}")
            failures += 1
        elif family:
            failures += judge_real(probe, path, name, family, file.read_text(encoding="utf-8")) > 0
    return failures


def main() -> None:
    probe, wanted = sys.argv[1], sys.argv[2:]
    failures = ran = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make, families in PAIRS:
            try:
                importlib.import_module("transformers")
                path = with_marks(make(Path(folder) / "plain" / name), Path(folder) / name, MARKS)
            except (vocabularies.Missing, ModuleNotFoundError) as missing:
                print(f"skip {name}: {missing}; scripts/setup --judges installs what is missing")
                continue
            for family in families:
                if not wanted or family in wanted:
                    failures += judge(probe, name, path, family) > 0
                    ran += 1
            if name == "llama3" and (not wanted or "real" in wanted):
                failures += judge_recognition(probe, path)
                ran += 1
            # Bytes come back from ids as they were.
            for family in [*families, "qwen3", "vicuna", "stanford_alpaca", "flan", "longform", "default"] if name == "llama3" else []:
                if not wanted or family in wanted:
                    failures += judge_jinja(probe, path, family) > 0
                    ran += 1
    if failures:
        sys.exit(f"{failures} templates differ")
    if not ran:
        sys.exit(77)
    print(f"{ran} templates and vocabularies agree")


main()
