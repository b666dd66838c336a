"""Texts that show where tokenizers differ: all Unicode blocks, code, white space, emoji with joiners, special tokens."""

import random
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\r", "\u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x85"]
CONTRACTIONS = ["it's", "I'LL", "we'Ve", "don't", "they'RE", "'s", " 's", "x'\u017f", "l'm", "o'd", "'tis", "I'm", "''s"]
NUMBERS = ["1234567", "3.14", "0x1F", "1,000,000", "12:30", "\u0663\u0664", "\u00bd", "\u2167", "\u0be7\u0be8"]
EMOJI = ["\U0001f680", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f",
         "\U0001f1e9\U0001f1ea", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "1\ufe0f\u20e3"]
WORDS = ["Hello", "world", "na\u00efve", "caf\u00e9", "stra\u00dfe", "\u4f60\u597d", "\u4e16\u754c", "\u3053\u3093", "a\u0301",
         "\ufb01", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u0939\u093f\u0928\u094d\u0926\u0940", "\ud55c\uad6d\uc5b4", "\u0e44\u0e17\u0e22", "for", "camelCase",
         "HTTPServer", "snake_case", "x86_64", "\u0130stanbul", "\u00c5ngstr\u00f6m", "\u1e9b\u0323", "\u212bngstrom"]


def character(rng: random.Random) -> str:
    """Any code point but surrogates, assigned ones mostly."""
    while True:
        code = rng.randrange(0x110000) if rng.random() < 0.1 else rng.randrange(0x20000) if rng.random() < 0.5 else rng.randrange(0x3000)
        if not 0xD800 <= code < 0xE000 and (rng.random() < 0.1 or unicodedata.category(chr(code)) != "Cn"):
            return chr(code)


def block(rng: random.Random) -> str:
    """Neighbours of one code point: text of one script."""
    base = ord(character(rng)) & ~0x7F
    codes = [base + rng.randrange(128) for _ in range(rng.randrange(1, 30))]
    return "".join(" " if rng.random() < 0.15 else chr(c) for c in codes if not 0xD800 <= c < 0xE000)


def excerpt(rng: random.Random, texts: list) -> str:
    text = rng.choice(texts)
    start = rng.randrange(len(text))
    return text[start:start + rng.randrange(1, 400)]


def mixture(rng: random.Random, specials: list) -> str:
    kinds = [SPACES, CONTRACTIONS, NUMBERS, EMOJI, WORDS, [character(rng)], ["(", ")", "/*", "//", "!!", "...", "\u2026", "--", "_"]]
    weights = [5, 1, 1, 1, 4, 2, 2]
    if specials:
        kinds.append(specials)
        weights.append(1.5)
    return "".join(rng.choice(rng.choices(kinds, weights)[0]) for _ in range(rng.randrange(1, 25)))


def texts(count: int, specials: list, seed: int = 7) -> list:
    rng = random.Random(seed)
    austen = (ROOT / "data/austen.txt").read_text(encoding="utf-8")
    code = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "trireme").rglob("*.cpp"))[:60]]
    code.append(Path(__file__).read_text(encoding="utf-8"))
    out = ["", " ", "  ", "\n", "\r\n x", " Hello", "  Hello", "Hello  world   !", "\n\nA\t\tB", " \n \n", "\t" * 70, " " * 300,
           "a" * 1000, "\n" * 129, *WORDS, *CONTRACTIONS, *NUMBERS, *EMOJI, *SPACES, *specials, "".join(specials[:20])]
    out += [s + x for s in specials[:5] for x in ("a", " ", "  a", "\n", "é")] + [x + s for s in specials[:5] for x in ("a", " ", "a  ", "\n", "é")]
    while len(out) < count:
        kind = rng.random()
        if kind < 0.30:
            out.append(mixture(rng, specials))
        elif kind < 0.60:
            out.append(block(rng))
        elif kind < 0.75:
            out.append(excerpt(rng, [austen]))
        elif kind < 0.90:
            out.append(excerpt(rng, code))
        else:
            out.append("".join(character(rng) for _ in range(rng.randrange(1, 40))))
    return out[:count]
