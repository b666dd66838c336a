"""Tiny models of every architecture that GGUF and Hugging Face share, and tokenizers for them, made by transformers and
tokenizers alone. What transformers' reader of GGUF takes from its own defaults (Gemma 2's soft-capping, Qwen3's head width,
GPT-2's positions) has those values here."""

import json

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
VOCAB = 512
TEXT = ["It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.",
        "However little known the feelings or views of such a man may be on his first entering a neighbourhood, 1813!",
        "def f(x):\n    return x ** 2 + 10  # naïve café", "Ünïcödé 北京 こんにちは 😀 12345 67", "don't we'll I'm THEY'RE"] * 4


def byte_level(pre):
    """A byte-level tokenizer with one of GGUF's rules for cutting text."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    steps = {"gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
             "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]}
    for name, regex in (("llama-bpe", LLAMA3), ("qwen2", QWEN2)):
        steps[name] = [pre_tokenizers.Split(Regex(regex), behavior="isolated"),
                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    steps = steps[pre]
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=VOCAB - 8, special_tokens=["<|endoftext|>", "<|start|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    return tokenizer, {"bos_token": "<|start|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}


def sentencepiece(gemma):
    """Merges with byte fallback, as Llama 2 and Gemma have them."""
    unk, bos, eos = ("<unk>", "<bos>", "<eos>") if gemma else ("<unk>", "<s>", "</s>")
    specials = (["<pad>", eos, bos, unk] if gemma else [unk, bos, eos]) + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token=unk, fuse_unk=True, byte_fallback=True))
    tail = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if gemma:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
        tail.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(tail)
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    trained.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=VOCAB - 8, special_tokens=specials, show_progress=False))
    learned = json.loads(trained.to_str())["model"]
    parts = json.loads(tokenizer.to_str())
    parts["model"]["vocab"], parts["model"]["merges"] = learned["vocab"], learned["merges"]
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in specials if not t.startswith("<0x")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    names = {"bos_token": bos, "eos_token": eos, "unk_token": unk}
    return tokenizer, names | ({"pad_token": "<pad>"} if gemma else {})


def make_tokenizer(kind):
    tokenizer, names = sentencepiece(kind == "gemma") if kind in ("llama", "gemma") else byte_level(kind)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names,
                                                add_bos_token=kind in ("llama", "gemma", "llama-bpe"),
                                                chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}")


SHAPE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
GEMMA = SHAPE | dict(head_dim=16, sliding_window=8, query_pre_attn_scalar=256)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)

# name -> (configuration, tokenizer, whether transformers' reader of GGUF computes the same)
MODELS = {
    "llama": (transformers.LlamaConfig(**SHAPE, rms_norm_eps=1e-5), "smollm", True),
    "llama-tied-sentencepiece": (transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True), "llama", True),
    "llama3": (transformers.LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE), "llama-bpe", False),
    "llama-linear": (transformers.LlamaConfig(**SHAPE, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0)),
                     "gpt-2", False),
    "llama-biases": (transformers.LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True), "gpt-2", False),
    "mistral": (transformers.MistralConfig(**SHAPE, sliding_window=8), "llama", False),
    "qwen2": (transformers.Qwen2Config(**SHAPE, rope_parameters=dict(rope_type="default", rope_theta=1e6)), "qwen2", True),
    "qwen3": (transformers.Qwen3Config(**(SHAPE | dict(head_dim=128))), "qwen2", True),
    "gemma2": (transformers.Gemma2Config(**GEMMA, attn_implementation="eager"), "gemma", True),
    "gemma3": (transformers.Gemma3TextConfig(**(GEMMA | dict(num_hidden_layers=7)), attn_implementation="eager"), "gemma", True),
    "gpt2": (transformers.GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=1024), "gpt-2", True),
}


def make_model(name, folder):
    """A folder as transformers saves it, every parameter redrawn so that a mistake shows."""
    config, kind, judged = MODELS[name]
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 1.5 / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    tokenizer = make_tokenizer(kind)
    model.config.bos_token_id, model.config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, judged
