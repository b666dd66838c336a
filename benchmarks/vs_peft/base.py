#!/usr/bin/env python3
"""Makes the folder that both sides tune, with the rows that both learn.

    base.py FOLDER MODEL [SEQUENCE]

A Llama of vs_pytorch's shape with random weights, in bf16: an untrained model, since only its time is compared. Texts
are four rows of bytes and a line end, which Trireme reads with its byte tokenizer: every token of a row is learned. Pairs of
replies to a prompt fill as many places, in two texts each, and have a tokenizer of bytes that both sides read.
"""
import json
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "vs_pytorch"))
from shapes import SHAPES

ROWS, END = 4, "<|end|>"
WRITES_RESIDUAL = ("o_proj.weight", "down_proj.weight")


def texts(sequence):
    source = random.Random(1)
    return ["".join(source.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(sequence)) for _ in range(ROWS)]


def pairs(sequence):
    """[{prompt, chosen, rejected}]: a prompt with a reply and the token that ends it is half a row, and a reply half of that."""
    source = random.Random(2)
    letters = lambda count: "".join(source.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(count))
    return [{"prompt": letters(sequence // 4), "chosen": letters(sequence // 4 - 1), "rejected": letters(sequence // 4 - 1)} for _ in range(ROWS)]


def byte_tokenizer():
    """tokenizer.json: bytes in GPT-2's letters, and the end of text in place of the last, which no text has."""
    plain = [byte for byte in range(256) if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE]
    others = iter(range(256, 512))
    letters = {chr(byte if byte in plain else next(others)): byte for byte in range(255)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    end = {"id": 255, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": letters, "merges": []}}


def ids(text):
    """Of a document, with the line end that follows it."""
    return [*text.encode(), 10]


def make(folder, model, sequence):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    shape = SHAPES[model]
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=shape["vocabulary"], hidden_size=shape["width"], intermediate_size=shape["mlp"],
                         num_hidden_layers=shape["blocks"], num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
                         max_position_embeddings=sequence, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    base = LlamaForCausalLM(config)
    for name, weight in base.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.02 / (2 * shape["blocks"]) ** 0.5 if name.endswith(WRITES_RESIDUAL) else 0.02)
    base.to(torch.bfloat16).save_pretrained(folder)
    (Path(folder) / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(sequence)))
    (Path(folder) / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs(sequence)))
    tokenizer = Path(folder) / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 512)
