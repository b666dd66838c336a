"""What a plan of measurements is made of: variants, groups of variants that alternate, targets."""
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Variant:
    name: str
    side: str  # trireme, peer, or train (trireme pretrain, for its first step)
    arguments: tuple  # trireme: settings; peer: options
    precision: str = "bf16-mixed"
    model: str = "llama-32m"
    copies: int = 1  # processes at once, one core each, that never talk
    warmup: int = 2
    steps: int = 6
    first_line: str = ""  # of the output: appears at the end of the first step


def with_changes(variants, **changes):
    return tuple(replace(v, **changes) for v in variants)


@dataclass(frozen=True)
class Group:
    title: str
    rounds: int
    variants: tuple


@dataclass(frozen=True)
class Target:
    """`quantity` of one variant, or its ratio to another's; reached when within the bound."""
    group: str
    text: str
    quantity: str  # tokens, step (seconds), rss, first_step, peak, or saved: RSS saved against the other, over what the plans save
    variant: str
    other: str = ""
    at_least: float = 0.0
    at_most: float = float("inf")
