"""transformers' side of vs_generation.

peer.py make FOLDER WIDTH PRECISION                                 a Llama with random weights, whose tokens are bytes and names
peer.py FOLDER TEXTS PROMPT NEW PRECISION THREADS                   tokens/s of greedy generation, after a run that warms up
"""
import sys
import time

import torch
import transformers

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
VOCABULARY = 32000


def make(folder, width, precision):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=12,
                                      num_attention_heads=width // 64, num_key_value_heads=width // 64, max_position_embeddings=2048,
                                      bos_token_id=None, eos_token_id=None)
    transformers.LlamaForCausalLM(config).to(DTYPES[precision]).save_pretrained(folder)
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {f"<{i}>": i for i in range(len(vocabulary), VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def measure(folder, texts, prompt, new, precision, threads):
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[precision]).eval()
    ids = torch.randint(0, 256, (texts, prompt))

    def write(count):
        with torch.no_grad():
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)

    write(4)
    start = time.monotonic()
    write(new)
    print(texts * new / (time.monotonic() - start))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        measure(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5], int(sys.argv[6]))
