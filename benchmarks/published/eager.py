"""What other systems hold on one device at the peak of a step, from the shape of a model: eager PyTorch keeps tensors for backward by autograd's rules.

Every number below is a count of bytes that follows from a system's source (the commits stand in SYSTEMS). Nothing is fitted to a row, and no row has numbers of its own.
Symbols: h hidden, f MLP, V vocabulary, L layers, kv = width of keys; all in 16 bits unless a line says otherwise.
"""
import dataclasses
import re

GB, GIB = 1e9, 2**30
NF4 = 0.5 + 4 / 64  # bytes a parameter: codes of 4 bits, and a float for each 64
NF4_NESTED = 0.5 + 1 / 64 + 4 / (64 * 256)  # the floats quantized to 8 bits
# Reserved over allocated memory, where a system publishes the former: fsdp_qlora's benchmarks_03_2024.md tells both for one run (10.22 and 9.16 GiB).
KEPT_FREE = 10.22 / 9.16


@dataclasses.dataclass
class System:
    about: str
    reserved: bool  # publishes what the allocator has reserved, not what is allocated
    unit: float
    wide_norm: bool  # RMSNorm copies its input to 32 bits, and autograd keeps the copy
    loss: int  # bytes for each logit at the head's peak; full: without adapters
    full_loss: int
    bnb: bool = False  # bitsandbytes' products keep their inputs, though the weights are frozen
    quantized_head: bool = False
    nested: bool = False  # 4-bit scales are always quantized
    checkpoints: str = "no"  # blocks are recomputed: no, fsdp (with it only), always
    whole_gradients: bool = False  # FSDP sums micro-batches in whole gradients, frozen parts of a buffer included (no_sync, use_orig_params)
    head_apart: bool = True  # a matrix of its own, also where the model ties it to the embedding
    rank: int = 8
    everywhere: bool = False  # adapters beside every matrix of a block


SYSTEMS = {
    "litgpt-2023": System("Lightning-AI/litgpt@8641822: finetune/*.py, lit_gpt/{lora,adapter,rmsnorm}.py", False, GB, False, 8, 16, bnb=True, quantized_head=True,
                          checkpoints="fsdp", whole_gradients=True),
    "litgpt-2024": System("Lightning-AI/litgpt@2104b5b: litgpt/finetune/*.py, litgpt/{lora,model}.py", False, GB, True, 8, 16, bnb=True, quantized_head=True,
                          checkpoints="fsdp", whole_gradients=True, rank=32),
    "torchtune": System("meta-pytorch/torchtune@2024-07: recipes/*.py, torchtune/utils/memory.py", True, GB, True, 16, 16, nested=True, checkpoints="always"),
    "fsdp_qlora": System("AnswerDotAI/fsdp_qlora@05ed9f2: train.py; transformers' Llama", True, GIB, True, 16, 16, bnb=True, nested=True, checkpoints="always", rank=64,
                         everywhere=True),
    "torchtitan": System("pytorch/torchtitan@ba24697: train.py, torchtitan/parallelisms/parallelize_llama.py", True, GIB, True, 12, 12),
}


def system_of(row):
    source = row["source"]
    if "resource-tables.md" in source:
        return "litgpt-2023"
    if "config_hub" in source:
        return "litgpt-2024"
    return next((name for name in ("torchtune", "fsdp_qlora", "torchtitan") if name in source), None)


def method_of(row):
    """Which parameters are trained: full, lora, adapter, adapter-v2. The models' names say it."""
    name = row["model"].lower()
    return next((method for method in ("adapter-v2", "adapter", "lora") if method in name), "full")


def left_out(row):
    """Why a row does not count; nothing if it does."""
    if any(not row[column] for column in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")):
        return "the row does not give the model's shape"
    if not row["seq_len"] or not row["micro_batch"]:
        return "the row does not give the sequence length or the micro-batch"
    if system_of(row) is None:
        return "the row does not say what is recomputed, and its system does not decide it"
    return None


@dataclasses.dataclass
class Shape:
    layers: int
    hidden: int
    heads: int
    kv: int
    ffn: int
    vocab: int

    def __init__(self, row):
        self.layers, self.hidden, self.heads, self.ffn, self.vocab = (int(row[c]) for c in ("layers", "hidden", "heads", "ffn", "vocab"))
        self.kv = self.hidden // self.heads * int(row["kv_heads"])

    @property
    def matrices(self):
        """Parameters of a block's matrices."""
        return self.hidden * (2 * self.hidden + 2 * self.kv + 3 * self.ffn)

    @property
    def parameters(self):
        """With a head of its own."""
        return self.layers * (self.matrices + 2 * self.hidden) + self.hidden + 2 * self.hidden * self.vocab

    def adapters(self, system, everywhere):
        """Parameters of low-rank adapters beside a model's queries and values, or all matrices of its blocks."""
        h, kv, f = self.hidden, self.kv, self.ffn
        sums = [(h, h), (h, kv)] + ([(h, kv), (h, h), (h, f), (h, f), (f, h)] if everywhere else [])
        return self.layers * system.rank * sum(a + b for a, b in sums)


def kept_by_block(shape, system, method, four_bits, everywhere):
    """Bytes for each token that autograd keeps of a block without recomputation."""
    h, kv, f = shape.hidden, shape.kv, shape.ffn
    full = method == "full"
    bytes_ = 2 * (4 if system.wide_norm else 2) * h  # both norms: their inputs
    grouped = kv != h
    bytes_ += 2 * 3 * h if grouped else 2 * (h + 2 * kv) + 2 * 2 * h  # queries, keys, values of all heads; values are a view of the whole product
    bytes_ += 2 * h + 4 * shape.heads  # attention's output, and a float for each row's log-sum-exp
    bytes_ += 3 * 2 * f  # gate, its activation, the other factor
    if full or (four_bits and system.bnb):
        bytes_ += 2 * (3 * h + f)  # the inputs of all products
    if full or method == "adapter-v2":
        bytes_ += 2 * 2 * h  # the norms' inputs once more, normalized: their weights learn
    if method == "lora":
        inputs = h + (3 * h + f if everywhere else 0)  # of queries, keys and values; of the output, gate, up and down projections, one each
        bytes_ += (2 + 1) * inputs  # after dropout, and its mask of a byte
        if not everywhere:
            bytes_ += 2 * (h + kv)  # updates of queries and values, which index_copy keeps
    if method.startswith("adapter"):
        bytes_ += 2 * 2 * h  # attention to the prompt: scaled queries and output
    if method == "adapter-v2":
        bytes_ += 2 * (h + 2 * kv + h + 2 * f + h)  # what scales multiply: all products' outputs
    return bytes_


def kept_by_selection(shape):
    """torchtitan's selective checkpoints keep every second product (of q, k, v, o, w1, w3, w2), attention's output and the block's input."""
    h = shape.hidden
    return 2 * (h + shape.kv + shape.ffn + h) + 2 * h + 4 * shape.heads + 2 * h


def recomputes(row):
    """Whether blocks are computed again from their inputs: a row says so, or its system always does it, or does it under FSDP."""
    checkpoints = SYSTEMS[system_of(row)].checkpoints
    return checkpoints == "always" or (checkpoints == "fsdp" and int(row["n_gpus"]) > 1) or row["activation_checkpointing"] == "full"


def peak(row):
    """Bytes at the peak, in the unit and by the counter of the row's system, by cause."""
    system, shape, method = SYSTEMS[system_of(row)], Shape(row), method_of(row)
    devices, full = int(row["n_gpus"]), method == "full"
    tensor, context = int(row["tp"] or 1), int(row["cp"] or 1)
    tokens = int(row["micro_batch"]) * int(row["seq_len"]) / context
    strategy = row["fsdp_strategy"]
    shards = 1 if devices == 1 or "ddp" in strategy else devices // tensor
    away = "cpu_offload" in strategy
    four_bits = "nf4" in row["precision"]
    titan = system is SYSTEMS["torchtitan"]
    # config_hub/finetune/tiny-llama/*.yaml: lora_* true; torchtune's recipes for QLoRA likewise.
    everywhere = system.everywhere or row["model"].startswith("tiny-llama") or (four_bits and system is SYSTEMS["torchtune"])
    n, blocks, head = shape.parameters, shape.layers * shape.matrices, shape.vocab * shape.hidden

    causes = {}
    if titan:
        causes["weights, gradients, moments"] = (4 + 4 + 8) * n / shards / tensor
    elif full:
        # "low-mem" recipes: bitsandbytes' PagedAdamW holds moments outside, and on one device a gradient is used up before the next is there.
        paged = "low-mem" in row["model"]
        states = 2 * n + (2 * head if paged and devices == 1 else 2 * n) + (0 if paged else 4 * n)
        causes["weights, gradients, moments"] = states / shards
    else:
        each = (NF4_NESTED if system.nested or "dq" in row["precision"] else NF4) if four_bits else 2
        small = blocks + (head if system.quantized_head else 0)
        causes["weights"] = 0 if away else (each * small + 2 * (n - small)) / shards
        adapters = shape.adapters(system, everywhere)
        if method.startswith("adapter"):
            adapters = int(re.search(r"trainable ([\d,]+)", row["source"]).group(1).replace(",", ""))
        causes["adapters"] = 0 if away else (2 + 2 + 4) * adapters / shards
        if four_bits:  # a product takes its matrix in 16 bits
            causes["a matrix in 16 bits"] = 2 * max(head if system.quantized_head else 0, shape.hidden * shape.ffn)
    if shards > 1 or away:
        of_block = 2 if full or not four_bits else NF4_NESTED
        causes["gathered weights"] = 2 * 2 * head / tensor + 2 * of_block * shape.matrices / tensor  # the root's unit, and two blocks
        if titan:
            causes["the head's gradient"] = (2 + 4) * head / tensor  # as computed, and as it is reduced
        if system.whole_gradients:
            causes["whole gradients"] = 2 * n

    block = kept_by_block(shape, system, method, four_bits, everywhere)
    if row["activation_checkpointing"] == "selective":
        kept, again = shape.layers * kept_by_selection(shape), block
    elif recomputes(row):
        kept, again = shape.layers * 2 * shape.hidden / (tensor if titan else 1), block / tensor
    else:
        kept, again = shape.layers * block, 0
    causes["activations"] = tokens * kept
    logits = (system.full_loss if full else system.loss) * shape.vocab / tensor
    # Either the head's peak or a block's: its recomputed tensors and the gradients of the widest, while logits in 32 bits are still referred to.
    left = 0 if titan else 4 * shape.vocab
    causes["logits and loss"] = tokens * logits
    causes["a block's backward"] = max(0, tokens * (again + 6 * shape.ffn / tensor + left) - causes["logits and loss"]) if again else 0
    if system.reserved:
        causes["reserved, not allocated"] = (KEPT_FREE - 1) * sum(causes.values())
    return {cause: value for cause, value in causes.items() if value}
