#!/usr/bin/env python3
"""Makes the folder that both sides tune, with the rows that both learn.

    base.py FOLDER MODEL [SEQUENCE]

A Llama of vs_pytorch's shape with random weights, in bf16: an untrained model, since only its time is compared. Texts
are four rows of bytes and a line end, which Trireme reads with its byte tokenizer: every token of a row is learned.
"""
import json
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "vs_pytorch"))
from shapes import SHAPES

ROWS = 4
WRITES_RESIDUAL = ("o_proj.weight", "down_proj.weight")


def texts(sequence):
    source = random.Random(1)
    return ["".join(source.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(sequence)) for _ in range(ROWS)]


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


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 512)
