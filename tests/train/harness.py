"""lm-evaluation-harness as a judge: its modules without what no task here asks for, a tiny model, and texts for rows."""

import importlib.machinery
import json
import math
import os
import pathlib
import random
import sys
import types

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1",
                  TQDM_DISABLE="1", TOKENIZERS_PARALLELISM="false")
import ring

torch, transformers, tokenizers, datasets = ring.judges("torch", "transformers", "tokenizers", "datasets")


class Absent(types.ModuleType):
    """A module of metrics that no task here asks for."""

    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


for name in ("sacrebleu", "evaluate", "pytablewriter", "sqlitedict", "word2number", "rouge_score", "sklearn", "sklearn.metrics"):
    sys.modules.setdefault(name, Absent(name))
(harness,) = ring.judges("lm_eval")
from lm_eval.api.metrics import mean_stderr  # noqa: E402, F401
from lm_eval.api.task import ConfigurableTask  # noqa: E402, F401
from lm_eval.tasks._yaml_loader import load_yaml  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

datasets.disable_progress_bars()


def harness_task(file):
    """A task of the harness, as its file says it."""
    return load_yaml(pathlib.Path(harness.__file__).parent / "tasks" / f"{file}.yaml", resolve_func=True)


def judge_of(folder, batch_size):
    """The harness's model: transformers' of a folder."""
    return HFLM(pretrained=transformers.AutoModelForCausalLM.from_pretrained(folder), tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
                batch_size=batch_size, max_length=512)


def keep_tokens(model):
    """Makes the harness's model keep what it generates, one text at a time: a list of (prompt and answer, tokens of the prompt)."""
    generate, kept = model._model_generate, []

    def keeping(context, *more, **named):
        tokens = generate(context, *more, **named)
        kept.append((tokens[0], context.shape[1]))
        return tokens

    model._model_generate = keeping
    return kept


def part_at_a_tie(model, kept, one, other, tie=2e-5, longest=16):
    """Whether two texts part where the harness's model gives two tokens the same logit but for rounding: there the order of summation
    decides, which another processor or tp changes. `longest`: letters of a token."""
    common = os.path.commonprefix([one, other])
    for tokens, prompt in kept:
        if not model.tok_decode(tokens[prompt:].tolist()).startswith(common):
            continue
        with torch.no_grad():
            best = model.model(tokens[None]).logits[0, prompt - 1:-1].topk(2).values
        for at in (best[:, 0] - best[:, 1] < tie).nonzero().flatten().tolist():
            before = model.tok_decode(tokens[prompt:prompt + at].tolist()).rstrip("\ufffd")
            if common.startswith(before) and len(common) < len(before) + longest:
                return True
    return False


def words(draw, least, most):
    return " ".join(draw.choice(ring.WORDS + ["café", "naïve", "Zoë"]) for _ in range(draw.randint(least, most)))


def sentence(draw, least=3, most=9):
    return words(draw, least, most).capitalize() + "."


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_model(folder, bos):
    """A tiny llama with letters in pieces of its own; with `bos`, its tokenizer begins each text and puts a space before it."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<s>" if bos else None, byte_fallback=False))
    special = ["<s>", "</s>"]
    if bos:
        made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
        made.decoder = tokenizers.decoders.Metaspace()
        alphabet = sorted(set("▁ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789éï.,:?()\n"))
    else:
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=special)
    draw = random.Random(3)
    made.train_from_iterator([f"Question: {sentence(draw)}\nAnswer: {words(draw, 1, 4)}" for _ in range(400)], trainer)
    if bos:
        made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    torch.manual_seed(2 + bos)
    config = transformers.LlamaConfig(vocab_size=made.get_vocab_size(), hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, bos_token_id=0, eos_token_id=1)
    model = transformers.LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0, 1.5 / math.sqrt(parameter.shape[1]))
    model.save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}))
