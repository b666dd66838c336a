"""A Hugging Face folder in, the same out: untouched it is byte-equal, trained it opens in transformers with our logits.

model_folders.py TRIREME MODEL_PROBE
"""

import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import bad_configs
import bad_tensors
import mutations
import probe
import ring
import tiny_models

torch, transformers, tokenizers, safetensors = ring.judges("torch", "transformers", "tokenizers", "safetensors.torch")

LOGITS = 1e-4  # standard deviations, as in architectures.py
INDEX = "model.safetensors.index.json"
# How a folder is kept: name, dtype, how transformers splits it, how training reads it.
KEPT = [("gemma3", torch.bfloat16, "60KB", "bf16-mixed"), ("gpt2", torch.float32, "5GB", "32-true"),
        ("qwen2", torch.bfloat16, "5GB", "32-true"), ("llama 3", torch.float32, "60KB", "64-true")]
TRAINED = ["gemma3", "qwen2"]


def pretrain(r, folder, out, **settings):
    """Trains a folder's model from the folder's weights."""
    command = r.command(out, model={}, **settings)
    command[command.index("llama-5m")] = str(folder)
    return r.run(command)


def add_tokenizer(folder):
    words = tokenizers.Tokenizer(tokenizers.models.BPE())
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=260, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"])
    words.train_from_iterator(ring.WORDS, trainer)
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                                                              "eos_token": "</s>", "chat_template": "{{ messages }}"}))
    (folder / "special_tokens_map.json").write_text('{"bos_token": "<s>",  "eos_token": "</s>"}\n')
    generation = folder / "generation_config.json"
    generation.write_text(json.dumps(json.loads(generation.read_text()) | {"eos_token_id": words.token_to_id("</s>")}))


def contents(folder):
    """{tensor: (dtype, shape, bytes)} over all files of weights."""
    found = {}
    for path in folder.glob("model*.safetensors"):
        header, size = mutations.header_of(path)
        data = path.read_bytes()[8 + size:]
        found |= {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items() if n != "__metadata__"}
    return found


def judge_untouched(r, name, dtype, split, precision):
    what = f"{name} in {str(dtype).removeprefix('torch.')}, saved untouched by {precision}"
    folder = r.folder / f"kept-{name}".replace(" ", "-")
    tiny_models.make(name, folder, dtype, max_shard_size=split)
    add_tokenizer(folder)
    # A step of no size: the rate is far below what float64 can tell from nothing.
    result = pretrain(r, folder, f"{folder.name}-out", precision=precision, train__max_steps=1, optimizer__lr="1e-300",
                      train__lr_warmup_steps=0, train__lr_decay="constant", train__min_lr=0)
    ring.require(result.code == 0, f"{what}: the run succeeds", str(result))
    saved = r.folder / f"{folder.name}-out" / "step-00000001"
    before, after = contents(folder), contents(saved)
    ring.require(before.keys() == after.keys(), f"{what}: the same tensors", str(before.keys() ^ after.keys()))
    for at, part in enumerate(("dtypes", "shapes", "bytes")):
        unequal = [(n, before[n][at], after[n][at]) for n in before if before[n][at] != after[n][at]]
        ring.require(not unequal, f"{what}: the same {part} of every tensor", f"{len(unequal)} of {len(before)}: {str(unequal)[:300]}")
    files = [p.name for p in folder.iterdir() if p.suffix == ".json"]
    ring.require((INDEX in files) == (split != "5GB") and "generation_config.json" in files, f"{what}: transformers wrote the files", str(files))
    for file in files:
        ring.require((saved / file).exists(), f"{what}: {file} is there", str(os.listdir(saved)))
        a, b = (p.read_text() for p in (folder / file, saved / file))
        ring.require(a == b or json.loads(a) == json.loads(b) and file == INDEX, f"{what}: {file} is the same", f"{a}\n{b}")
    ring.check(True, f"{what}: {len(before)} tensors byte-equal, and {', '.join(sorted(files))}")
    if split == "5GB":
        return
    result = pretrain(r, folder, f"{folder.name}-joined", precision=precision, train__max_steps=1, save__max_shard_bytes="1GB")
    joined = r.folder / f"{folder.name}-joined" / "step-00000001"
    weights = sorted(p.name for p in joined.glob("model*"))
    ring.check(result.code == 0 and weights == ["model.safetensors"] and contents(joined).keys() == before.keys(),
               f"{what}: one file where save.max_shard_bytes says so", f"{weights} {result}")


def renamed(folder, target, rename, config, more):
    """The folder with other names of tensors and another config.json, and tensors that a text model has no use for."""
    target.mkdir()
    weights = {rename(name): value for name, value in safetensors.load_file(folder / "model.safetensors").items()}
    safetensors.save_file(weights | more, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps(config))
    return set(weights)


def judge_other_names(r):
    """First uploads of GPT-2 lack a prefix and hold masks; Gemma 3's larger models are the half of a model that sees."""
    image = {name: torch.zeros(4, 4) for name in ("vision_tower.vision_model.post_layernorm.weight",
                                                  "multi_modal_projector.mm_input_projection_weight")}
    masks = {"h.0.attn.bias": torch.ones(1, 1, 4, 4), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    for what, name, rename, around, more, kept in [
            ("gpt2's first names", "gpt2", lambda n: n.removeprefix("transformer."), lambda c: c, masks, True),
            ("gemma3 with its eyes", "gemma3", lambda n: n.replace("model.", "language_model.model.", 1),
             lambda c: {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": c}, image, False),
            ("gemma3 as saved again", "gemma3", lambda n: n.replace("model.", "model.language_model.", 1),
             lambda c: {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": c},
             {f"model.{n}": t for n, t in image.items()}, False)]:
        plain, other = r.folder / f"plain {what}", r.folder / f"other {what}"
        tiny_models.make(name, plain)
        config = json.loads((plain / "config.json").read_text())
        names = renamed(plain, other, rename, around(config), more)
        runs = []
        for folder in (plain, other):
            result = pretrain(r, folder, f"{folder.name} out", train__max_steps=3)
            ring.require(result.code == 0, f"{what}: trains", str(result))
            runs.append(ring.metrics(r.folder / f"{folder.name} out"))
        losses = [[rows[step]["loss"] for step in (1, 2, 3)] for rows in runs]
        ring.require(losses[0] == losses[1], f"{what}: the losses of the plain folder", str(losses))
        saved = set(contents(r.folder / f"{other.name} out" / "step-00000003"))
        want = names if kept else set(contents(plain))
        ring.check(saved == want, f"{what}: the losses of the plain folder; saved under "
                                  f"{'its own names' if kept else 'names of a text model'}", str(saved ^ want)[:500])


def judge_ends_of_texts(r):
    """Texts that end with another token than conversations do: generation stops there, too."""
    folder, texts = r.folder / "texts", r.folder / "texts.jsonl"
    tiny_models.make("llama 2", folder)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(263, ("<|endoftext|>", "<|im_end|>")))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    texts.write_text((json.dumps({"text": "the sea"}) + "\n") * 400)
    (r.folder / "the.jsonl").write_text('"the"\n')
    for append in ("true", "false"):
        out = r.folder / f"texts {append}"
        result = pretrain(r, folder, out.name, data__train_data_path=texts, data__append_eos=append, train__max_steps=40, optimizer__lr=1e-2)
        ring.require(result.code == 0, "a model of texts is trained", str(result))
        saved = out / "step-00000040"
        ids = transformers.GenerationConfig.from_pretrained(saved).eos_token_id
        ring.require(ids == ([2, 256] if append == "true" else 2), f"data.append_eos {append}: transformers reads the ends of texts: {ids}")
    saved = r.folder / "texts true" / "step-00000040"
    result = r.run([r.program, "generate", str(saved), "--prompts", str(r.folder / "the.jsonl"), "--temperature", "0", "--max_new_tokens", "12"])
    written = json.loads(result.out)
    ring.require(written["text"] == " sea" and written["finish_reason"] == "stop", "trireme generate stops between two texts", str(result))
    model = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    theirs = model.generate(torch.tensor([list(b"the")]), max_new_tokens=12, do_sample=False)[0].tolist()
    ring.check(theirs == [*b"the sea", 256], "generation stops between two texts, in transformers too", str(theirs))
    again = r.run([r.program, "pretrain", "--resume", str(r.folder / "texts true"), "--train.max_steps", "41"])
    ids = json.loads((r.folder / "texts true" / "step-00000041" / "generation_config.json").read_text())["eos_token_id"]
    ring.check(again.code == 0 and ids == [2, 256], "and once after a resume", f"{ids} {again}")


def judge_ends_of_replies(r):
    """Replies that end with another token than the base's texts: generation stops there, too, whatever the task."""
    folder, chats, pairs = r.folder / "chats", r.folder / "chats.jsonl", r.folder / "pairs.jsonl"
    tiny_models.make("llama 2", folder)
    (folder / "tokenizer.json").write_text(tiny_models.tokenizer_json(263, ("<|endoftext|>", "<|im_start|>", "<|im_end|>")))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 256}))
    chats.write_text("".join(json.dumps({"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": " sea"}]}) + "\n" for _ in range(200)))
    pairs.write_text("".join(json.dumps({"prompt": [{"role": "user", "content": "the"}]} | {
        which: [{"role": "assistant", "content": text}] for which, text in (("chosen", " sea"), ("rejected", " air"))}) + "\n" for _ in range(40)))
    common = ["--data.chat_template", "chatml", "--train.max_seq_length", 64, "--train.global_batch_size", 8, "--train.lr_warmup_steps", 0,
              "--eval.final_validation", "false", "--precision", "32-true", "--devices", 1, "--launch.threads_per_rank", 1]
    tuned = lambda command, base, data, out, steps, *more: r.run([r.program, command, *map(str, (
        base, "--data", "JSON", "--data.train_data_path", data, "--data.val_data_path", data, "--out_dir", r.folder / out, "--train.max_steps", steps, *common, *more))])
    ends = lambda saved: transformers.GenerationConfig.from_pretrained(saved).eos_token_id

    result = tuned("finetune_full", folder, chats, "replies", 40, "--optimizer.lr", 1e-2)
    ring.require(result.code == 0, "a model of conversations is trained", str(result))
    saved = r.folder / "replies" / "step-00000040"
    ring.require(ends(saved) == [256, 258], f"transformers reads the end of replies: {ends(saved)}")
    prompt = "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"
    (r.folder / "asked.jsonl").write_text(json.dumps(prompt) + "\n")
    result = r.run([r.program, "generate", str(saved), "--prompts", str(r.folder / "asked.jsonl"), "--temperature", "0", "--max_new_tokens", "12"])
    ring.check(result.code == 0 and json.loads(result.out)["text"] == " sea", "trireme generate stops behind a reply without a chat, too", str(result))
    ids = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))(prompt, return_tensors="pt").input_ids
    model = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    theirs = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1]:].tolist()
    ring.check(theirs == [*b" sea", 258], "and so does transformers", str(theirs))

    bare = r.folder / "without-its-ends"
    bare.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (bare / name).write_bytes((saved / name).read_bytes())
    (r.folder / "mixed.jsonl").write_text(json.dumps(prompt) + "\n" + json.dumps({"messages": [{"role": "user", "content": "the"}]}) + "\n")
    written = []
    for file, words in (("asked", ()), ("mixed", ("--chat_template", "chatml"))):
        result = r.run([r.program, "generate", str(bare), "--prompts", str(r.folder / f"{file}.jsonl"), "--temperature", "0", "--max_new_tokens", "12", *words])
        ring.require(result.code == 0, f"texts of {file}", str(result))
        lines = sorted(map(json.loads, result.out.splitlines()), key=lambda line: line["index"])
        written.append([line["text"] for line in lines])
    ring.check(written[0][0] == written[1][0] != " sea" == written[1][1], "a reply's end ends no text that is no reply, though they are in one file", str(written))

    result = tuned("finetune_lora", folder, chats, "replies-lora", 1)
    ring.require(result.code == 0, "an adapter of conversations is trained", str(result))
    result = r.run([r.program, "merge_lora", str(r.folder / "replies-lora"), "--out", str(r.folder / "replies-merged")])
    ring.check(result.code == 0 and ends(r.folder / "replies-merged") == [256, 258], "a merged model stops where its adapter's replies end", str(result))
    result = tuned("finetune_dpo", folder, pairs, "replies-dpo", 1)
    ring.check(result.code == 0 and ends(r.folder / "replies-dpo" / "step-00000001") == [256, 258], "preferences teach the end of replies, too", str(result))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [258, 256]}))
    result = tuned("finetune_full", folder, chats, "replies-known", 1)
    there = (r.folder / "replies-known" / "step-00000001" / "generation_config.json").read_text()
    ring.check(result.code == 0 and there == '{"eos_token_id": [258, 256]}', "a base that stops there keeps its file", f"{there} {result}")


def judge_refusals(r, ask):
    folders = {}
    for name in {case[0] for case in bad_configs.CASES}:
        folders[name] = r.folder / f"good-{name}".replace(" ", "-")
        tiny_models.make(name, folders[name])
    jobs = []
    for number, (name, change, _) in enumerate(bad_configs.CASES):
        config = bad_configs.changed((folders[name] / "config.json").read_text(), change)
        bad = mutations.folder_with(folders[name], r.folder / f"bad-{number}", config)
        jobs.append(probe.job(str(number), bad, torch.zeros(1, 2, dtype=torch.long), generated=True, trained=True))
    replies = ask(jobs)
    wrong = []
    for number, (name, change, word) in enumerate(bad_configs.CASES):
        error = replies[str(number)].get("error", "accepted")
        if word not in error or "\n" in error:
            wrong.append(f"{name} with {change}, naming {word}: {error}")
    ring.require(not wrong, "bad config.json are refused", "\n".join(wrong))
    result = pretrain(r, r.folder / "bad-0", "bad-out")
    ring.require(result.code != 0 and bad_configs.CASES[0][2] in result.err and not (r.folder / "bad-out").exists(),
                 "a bad config.json ends `trireme pretrain` before anything is written", str(result))
    ring.check(True, f"{len(jobs)} bad config.json are refused, each by the name of what is wrong")


def folder_with_tensors(folder, target, change):
    """A copy of a folder with other tensors."""
    mutations.folder_with(folder, target)
    (target / "model.safetensors").unlink()
    changed = bad_tensors.changed(safetensors.load_file(folder / "model.safetensors"), change)
    safetensors.save_file(changed, target / "model.safetensors", metadata={"format": "pt"})
    return target


def judge_bad_tensors(r, ask):
    """Every way to a folder's weights refuses tensors that are not the model's."""
    folders = {name: r.folder / f"whole {name}" for name in {case[0] for case in bad_tensors.CASES}}
    for name, folder in folders.items():
        tiny_models.make(name, folder)
    tokens = torch.zeros(1, 2, dtype=torch.long)
    bad = [folder_with_tensors(folders[case[0]], r.folder / f"bad tensor {number}", case[1])
           for number, case in enumerate(bad_tensors.CASES)]
    jobs = [probe.job(f"{way} {number}", folder, tokens, **{way: True})
            for number, folder in enumerate(bad) for way in ("generated", "trained")]
    replies = ask(jobs)
    wrong = []
    for number, (name, change, words) in enumerate(bad_tensors.CASES):
        for way in ("generated", "trained"):
            error = replies[f"{way} {number}"].get("error", "accepted")
            if not all(word in error for word in words) or "\n" in error:
                wrong.append(f"{way}: {name} with another {', '.join(change)}: {error}")
    ring.require(not wrong, "tensors of other shapes are refused", "\n".join(wrong))
    text = r.folder / "some.txt"
    text.write_text(ring.WORDS[0] * 20)
    for number in range(len(bad)) if ring.SLOW else (0, 8, 14):
        words = bad_tensors.CASES[number][2]
        for what, result in (("evaluate", r.run([r.program, "evaluate", bad[number], "--text", text])),
                             ("generate", r.run([r.program, "generate", bad[number], "--prompt", "a"])),
                             ("pretrain", pretrain(r, bad[number], f"bad tensor {number} out"))):
            ring.require(result.code == 2 and all(word in result.err for word in words), f"{what} refuses {bad_tensors.CASES[number][:2]}",
                         str(result))
            ring.require(result.err.count("error:") == 1 and "rank" not in result.err, f"{what} refuses before ranks start", str(result))
    ring.check(not list(r.folder.glob("bad tensor * out")), f"{len(jobs)} loads of tensors in other shapes, and of second heads, are refused "
               "by name; so do evaluate, generate and pretrain, before anything is written")
    same = folder_with_tensors(folders["gpt2"], r.folder / "head twice", {"lm_head.weight": lambda _: safetensors.load_file(
        folders["gpt2"] / "model.safetensors")["transformer.wte.weight"].clone()})
    plain, twice = (ask([probe.job("a", folder, tokens, generated=True, trained=True)])["a"] for folder in (folders["gpt2"], same))
    ring.check(all(torch.equal(plain[way], twice[way]) for way in ("generated", "trained")), "a tied head that is saved twice is no trouble")


def judge_trained(r, ask, name):
    folder = r.folder / f"start-{name}".replace(" ", "-")
    start = tiny_models.make(name, folder)
    result = pretrain(r, folder, f"{folder.name}-out", devices=4, mesh__tp=2, mesh__shard=2, train__max_steps=5)
    ring.require(result.code == 0, f"{name}: 5 steps on tp2 x shard2", str(result))
    saved = r.folder / f"{folder.name}-out" / "step-00000005"
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32, attn_implementation="eager",
                                                                       output_loading_info=True)
    ring.require(not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")),
                 f"{name}: transformers finds every weight and nothing else", str(report))
    same = [n for n, p in theirs.named_parameters() if torch.equal(p, start.get_parameter(n))]
    ring.require(not same, f"{name}: every parameter was trained", str(same))
    tokens, _ = tiny_models.tokens_of(name)
    with torch.no_grad():
        first, last = start(tokens).logits, theirs.eval()(tokens).logits
    moved = ((last - first).abs().max() / first.std()).item()
    # Training began at the folder's weights: five small steps do not lead to another model.
    ring.require(1e-3 < moved < 5, f"{name}: five steps move the logits by {moved:.1e} standard deviations")
    ours = ask([probe.job(name, saved, tokens, generated=True, trained=True)])[name]
    worst = max(((ours[path] - last).abs().max() / last.std()).item() for path in ("generated", "trained"))
    ring.check(worst <= LOGITS, f"{name}: after 5 steps on tp2 x shard2 transformers computes our logits within {worst:.1e} standard "
               f"deviations (at most {LOGITS:.0e})")


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    ask = probe.Probe(sys.argv[2], r.folder).ask
    judge_refusals(r, ask)
    judge_bad_tensors(r, ask)
    judge_other_names(r)
    judge_ends_of_texts(r)
    judge_ends_of_replies(r)
    for case in KEPT if ring.SLOW else KEPT[:2]:
        judge_untouched(r, *case)
    divisible = [name for name, (_, config) in tiny_models.MODELS.items() if config.get("num_attention_heads", 4) % 2 == 0]
    for name in divisible if ring.SLOW else TRAINED:
        judge_trained(r, ask, name)
