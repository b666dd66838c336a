"""What the curves vary, as data, and what theory says of each."""
from dataclasses import dataclass

HEAD_DIM, VOCABULARY = 64, 1024


@dataclass(frozen=True)
class Point:
    """One run: a small llama and how it is trained. Width is a multiple of 64, the MLP 2.75 times as wide."""
    x: int
    sequence: int = 512
    width: int = 256
    depth: int = 4
    ranks: int = 2
    micro_batch: int = 2
    steps: int = 6

    def mlp(self):
        return self.width * 11 // 4

    def arguments(self):
        heads = str(self.width // HEAD_DIM)
        return ["llama-5m", "--model.vocab_size", str(VOCABULARY), "--model.hidden_size", str(self.width),
                "--model.num_hidden_layers", str(self.depth), "--model.num_attention_heads", heads, "--model.num_key_value_heads", heads,
                "--model.head_dim", str(HEAD_DIM), "--model.intermediate_size", str(self.mlp()),
                "--model.max_position_embeddings", str(self.sequence), "--train.max_seq_length", str(self.sequence),
                "--train.micro_batch_size", str(self.micro_batch), "--devices", str(self.ranks), "--strategy", "full_shard",
                "--launch.threads_per_rank", "1", "--precision", "bf16-mixed", "--bench.warmup", "2", "--bench.steps", str(self.steps)]

    def flops_per_token(self):
        """6 a matrix parameter, and the causal half of attention's 12 L S width."""
        block = 4 * self.width**2 + 3 * self.width * self.mlp()
        return 6 * (self.depth * block + VOCABULARY * self.width) + 6 * self.depth * self.sequence * self.width


@dataclass(frozen=True)
class Sweep:
    name: str
    title: str
    x_title: str
    points: tuple
    # linear: a + b x; step: a + b x + c/x, c of a step whose tokens are x; flops: proportional to the operations of a
    # token; flat: never above the first point; cores: the first point divided by the cores that x ranks keep busy
    time: str
    memory: str  # linear: planned bytes are a + b x exactly; none: no straight line
    tolerance: float = 0.05  # how far above theory a time may lie


SEQUENCES = (256, 512, 1024, 2048, 4096, 8192)
WIDTHS = (256, 384, 512, 768, 1024)

SWEEPS = (
    Sweep("sequence", "Sequence length, one sequence of x tokens a rank", "tokens a sequence",
          tuple(Point(s, sequence=s, micro_batch=1, steps=10 if s < 2048 else 6 if s < 8192 else 3) for s in SEQUENCES),
          "step", "linear"),
    Sweep("batched", "Sequence length, 8192 tokens a rank in sequences of x", "tokens a sequence",
          tuple(Point(s, sequence=s, micro_batch=8192 // s, steps=3) for s in SEQUENCES), "linear", "linear"),
    Sweep("width", "Width, MLP 2.75 times as wide", "width", tuple(Point(w, width=w) for w in WIDTHS), "flops", "none"),
    Sweep("depth", "Depth", "blocks", tuple(Point(d, depth=d) for d in (2, 4, 8, 16)), "linear", "linear"),
    Sweep("ranks", "Ranks of one thread each", "ranks",
          # Two processes that never talk already lose 4 to 10 % to each other: caches, memory, clock rate.
          tuple(Point(r, ranks=r, micro_batch=1) for r in (1, 2, 4, 8)), "cores", "none", tolerance=0.12),
    Sweep("micro_batch", "Sequences in a micro-batch", "sequences", tuple(Point(b, micro_batch=b) for b in (1, 2, 4, 8)), "flat", "linear"),
)
