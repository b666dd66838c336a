"""Every code point is to us what it is to PyPI's tokenizers and tiktoken: letter, number, mark, space, capital, accent.

unicode_judge.py PROBE [--write]
Each behaviour that depends on a character's class is asked of both sides for every code point (TRIREME_SLOW=1; otherwise
all below U+3000 and one in 16 of the others). The differences have to be those of unicode_differences.txt, which --write
writes anew.
"""

import importlib
import os
import random
import sys
import tempfile
from pathlib import Path

import vocabularies
from probe import ask

LIST = Path(__file__).parent / "unicode_differences.txt"
EVERYTHING = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = [r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{C}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}",
           r"\p{Lo}", r"\p{Mn}", r"\p{Nd}", r"\s", r"\w", r"\d", "."] + ["(?i:[a-z])", "(?i:s)"]
NORMALIZERS = [{"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")] + [
    {"type": "Strip", "strip_left": True, "strip_right": True}] + [
    {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents,
     "lowercase": lower}
    for clean, chinese, accents, lower in [[i == 4 or i == j for j in range(4)] for i in range(5)]]
PRE_TOKENIZERS = [{"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"},
                  {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}]


def sample() -> list:
    if os.environ.get("TRIREME_SLOW") == "1" or "--write" in sys.argv:
        return EVERYTHING
    rng = random.Random(11)
    return EVERYTHING[:0x3000] + sorted(rng.sample(EVERYTHING[0x3000:], len(EVERYTHING) // 16))


def bytes_json(normalizer: dict) -> dict:
    """Each byte is a token, so that what is decoded is what the normalizer made."""
    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    value = vocabularies.byte_level_json({bytes([b]): b for b in range(256)}, {}, whole, normalizer=normalizer)
    return value


def pieces_json(pre_tokenizer: dict) -> dict:
    """What happens to a character between two letters: a piece, part of their word, or nothing."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": {"type": "WordPiece", "prefix": "##",
                                                                                "cleanup": False},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1}}}


def matched(probe: str, folder: Path, pattern: str, parts: list) -> set:
    """The characters that match `pattern` here."""
    path = vocabularies.write_json(folder, bytes_json({"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}))
    kept = "".join(text.decode() for _, text in ask(probe, path, [(0, p.encode()) for p in parts]))
    return set("".join(parts)) - set(kept)


def of_classes(probe: str, folder: Path, characters: list):
    tokenizers = importlib.import_module("tokenizers")
    parts = ["".join(characters[i:i + 1024]) for i in range(0, len(characters), 1024)]
    for pattern in CLASSES:
        ours = matched(probe, folder, pattern, parts)
        judge = tokenizers.normalizers.Replace(tokenizers.Regex(pattern), "")
        theirs = set(characters) - set("".join(map(judge.normalize_str, parts)))
        yield f"tokenizers {pattern}", ours ^ theirs
        judge = importlib.import_module("tiktoken").Encoding(
            "classes", pat_str=pattern, mergeable_ranks={bytes([b]): b for b in range(256)}, special_tokens={})
        theirs = set(b"".join(judge.decode_bytes(judge.encode_ordinary(p)) for p in parts).decode())
        yield f"tiktoken {pattern}", ours ^ theirs


def of_normalizers(probe: str, folder: Path, characters: list):
    tokenizers = importlib.import_module("tokenizers")
    for normalizer in NORMALIZERS:
        path = vocabularies.write_json(folder, bytes_json(normalizer))
        judge = tokenizers.Tokenizer.from_file(str(path)).normalizer
        ours = [text.decode() for _, text in ask(probe, path, [(0, c.encode()) for c in characters])]
        different = {c for c, text in zip(characters, ours) if text != judge.normalize_str(c)}
        yield "tokenizers " + " ".join(str(v) for v in normalizer.values()), different


def of_pre_tokenizers(probe: str, folder: Path, characters: list):
    for pre_tokenizer in PRE_TOKENIZERS:
        path = vocabularies.write_json(folder, pieces_json(pre_tokenizer))
        judge = importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
        texts = [f"a{c}a" for c in characters]
        ours = [ids for ids, _ in ask(probe, path, [(0, t.encode()) for t in texts])]
        theirs = [e.ids for e in judge.encode_batch(texts, add_special_tokens=False)]
        yield f"tokenizers {pre_tokenizer['type']}", {c for c, a, b in zip(characters, ours, theirs) if a != b}


def ranges(characters: set) -> str:
    runs = []
    for code in sorted(map(ord, characters)):
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in runs)


def from_ranges(text: str) -> set:
    out = set()
    for run in text.split():
        first, _, last = run.partition("-")
        out |= {chr(c) for c in range(int(first, 16), int(last or first, 16) + 1)}
    return out


def listed() -> dict:
    lines = [line.rstrip("\n").partition(": ") for line in LIST.read_text(encoding="ascii").splitlines()]
    return {name: from_ranges(text) for name, _, text in lines if not name.startswith("#")}


def main() -> None:
    characters, probe = sample(), sys.argv[1]
    try:
        importlib.import_module("tiktoken"), importlib.import_module("tokenizers")
    except ModuleNotFoundError as missing:
        print(f"skip: {missing}; scripts/setup --judges installs it")
        sys.exit(77)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in (of_classes, of_normalizers, of_pre_tokenizers):
            found |= dict(family(probe, Path(folder), characters))
    if "--write" in sys.argv:
        lines = [f"{name}: {ranges(different)}" for name, different in found.items() if different]
        LIST.write_text("".join(f"{line}\n" for line in [
            "# Code points that a judge takes for something else than we do; everything else is equal.",
            "# Written by unicode_judge.py --write."] + lines), encoding="ascii")
    known, failed = listed(), False
    for name, different in found.items():
        expected = known.get(name, set()) & set(characters)
        if different != expected:
            failed = True
            print(f"FAIL {name}: not listed {ranges(different - expected)[:300]}; listed but equal "
                  f"{ranges(expected - different)[:300]}")
    if failed:
        sys.exit(1)
    print(f"{len(found)} behaviours of {len(characters)} code points are those of {LIST.name}")


main()
