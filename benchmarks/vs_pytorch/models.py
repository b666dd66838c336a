"""One Llama, three times: plain PyTorch, litgpt's GPT and transformers' LlamaForCausalLM.

Each is a module from (ids, targets) to the loss. All start from the same distribution, so that all start near
ln(vocabulary): weights normal with deviation 0.02, those that write to the residual stream 0.02 / sqrt(2 blocks).
Legend of shapes: B rows, S sequence, D width, H heads, d head dim, V vocabulary.
"""
import torch
from torch import nn
from torch.nn import functional as F

WRITES_RESIDUAL = ("out.weight", "down.weight", "attn.proj.weight", "mlp.proj.weight", "o_proj.weight", "down_proj.weight")


def build(kind, shape, sequence, dtype):
    """kind: plain, litgpt or transformers; shape: namespace of shapes.SHAPES; dtype: that of the rotary tables."""
    model = {"plain": Plain, "litgpt": Litgpt, "transformers": Transformers}[kind](shape, sequence, dtype)
    for name, weight in model.named_parameters():
        draw(name, weight, shape)
    return model


def draw(name, weight, shape):
    """Draws a weight of the model; those of norms stay 1."""
    if weight.dim() > 1:
        deviation = 0.02 / (2 * shape.blocks) ** 0.5 if name.endswith(WRITES_RESIDUAL) else 0.02
        nn.init.normal_(weight, std=deviation)


def rotary(x_BSHd, cosine_S1d, sine_S1d):
    first, second = x_BSHd.chunk(2, dim=-1)
    return x_BSHd * cosine_S1d + torch.cat((-second, first), dim=-1) * sine_S1d


class Block(nn.Module):
    """q|k|v and gate|up are one product each; nothing here is slower than it needs to be."""

    def __init__(self, shape):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.width // shape.heads
        self.norm1 = nn.RMSNorm(shape.width, eps=1e-5)
        self.qkv = nn.Linear(shape.width, (shape.heads + 2 * shape.kv_heads) * self.head_dim, bias=False)
        self.out = nn.Linear(shape.heads * self.head_dim, shape.width, bias=False)
        self.norm2 = nn.RMSNorm(shape.width, eps=1e-5)
        self.gate_up = nn.Linear(shape.width, 2 * shape.mlp, bias=False)
        self.down = nn.Linear(shape.mlp, shape.width, bias=False)

    def forward(self, x_BSD, cosine_S1d, sine_S1d):
        B, S, D = x_BSD.shape
        qkv = self.qkv(self.norm1(x_BSD)).view(B, S, self.heads + 2 * self.kv_heads, self.head_dim)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=2)
        q, k = rotary(q, cosine_S1d, sine_S1d), rotary(k, cosine_S1d, sine_S1d)
        grouped = x_BSD.is_cuda  # there the kernel reads grouped heads as they are
        if not grouped:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=2) for t in (k, v))
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=grouped)
        x_BSD = x_BSD + self.out(y.transpose(1, 2).reshape(B, S, D))
        gate, up = self.gate_up(self.norm2(x_BSD)).chunk(2, dim=-1)
        return x_BSD + self.down(F.silu(gate) * up)


class Plain(nn.Module):
    def __init__(self, shape, sequence, dtype):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.blocks))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        head_dim = shape.width // shape.heads
        frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.outer(torch.arange(sequence), frequencies).repeat(1, 2).unsqueeze(1)
        self.register_buffer("cosine_S1d", angles.cos().to(dtype), persistent=False)
        self.register_buffer("sine_S1d", angles.sin().to(dtype), persistent=False)

    def forward(self, ids_BS, targets_BS):
        x_BSD = self.embedding(ids_BS)
        for block in self.blocks:
            x_BSD = block(x_BSD, self.cosine_S1d, self.sine_S1d)
        return self.loss(x_BSD, targets_BS)

    def loss(self, x_BSD, targets_BS):
        logits_BSV = self.head(self.norm(x_BSD))
        return F.cross_entropy(logits_BSV.flatten(0, 1).float(), targets_BS.flatten())


class Litgpt(nn.Module):
    def __init__(self, shape, sequence, dtype):
        super().__init__()
        from litgpt.model import GPT, Config
        from litgpt.utils import chunked_cross_entropy
        self.loss = chunked_cross_entropy
        self.model = GPT(Config(name="peer", block_size=sequence, vocab_size=shape.vocabulary, padded_vocab_size=shape.vocabulary,
                                n_layer=shape.blocks, n_head=shape.heads, n_query_groups=shape.kv_heads, n_embd=shape.width,
                                head_size=shape.width // shape.heads, rotary_percentage=1.0, parallel_residual=False, bias=False,
                                norm_class_name="RMSNorm", norm_eps=1e-5, mlp_class_name="LLaMAMLP", intermediate_size=shape.mlp))
        self.blocks = self.model.transformer.h

    def forward(self, ids_BS, targets_BS):
        return self.loss(self.model(ids_BS), targets_BS, chunk_size=0)


class Transformers(nn.Module):
    def __init__(self, shape, sequence, dtype):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(vocab_size=shape.vocabulary, hidden_size=shape.width, intermediate_size=shape.mlp,
                             num_hidden_layers=shape.blocks, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
                             max_position_embeddings=sequence, rms_norm_eps=1e-5, tie_word_embeddings=False, use_cache=False,
                             attn_implementation="sdpa")
        self.model = LlamaForCausalLM(config)
        self.blocks = self.model.model.layers

    def forward(self, ids_BS, targets_BS):
        logits_BSV = self.model(input_ids=ids_BS, use_cache=False).logits
        return F.cross_entropy(logits_BSV.flatten(0, 1).float(), targets_BS.flatten())
