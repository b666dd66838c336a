"""What is measured against PEFT and TRL, and must show, as data. All variants of a group alternate, round after round.

The model is vs_pytorch's llama-110m with 4 key/value heads, in bf16 files; both sides tune the same folder on the same rows.
"""
from variants import Group, Target, Variant

QUERY_VALUE = ("--lora.target_modules", "q_proj,v_proj")
ALL_LINEAR = ("--lora.target_modules", "all-linear")


def ours(name, *arguments):
    return Variant(name, "trireme", arguments, model="llama-110m", warmup=1, steps=6)


def peer(name, *arguments):
    return Variant(name, "peer", arguments, model="llama-110m", warmup=1, steps=6, first_line="first step done")


def rank(number):
    return "--lora.r", str(number), "--lora.alpha", str(2 * number), "--lora.dropout", "0.05"


OURS_QV, PEFT_QV = ours("q,v r 8", "finetune_lora", *QUERY_VALUE, *rank(8)), peer("PEFT q,v r 8", "--targets", "q_proj,v_proj", "--r", "8")
OURS_ALL, PEFT_ALL = ours("all-linear r 8", "finetune_lora", *ALL_LINEAR, *rank(8)), peer("PEFT all-linear r 8", "--targets", "all-linear", "--r", "8")
OURS_64, PEFT_64 = ours("all-linear r 64", "finetune_lora", *ALL_LINEAR, *rank(64)), peer("PEFT all-linear r 64", "--targets", "all-linear", "--r", "64")
OURS_NF4 = ours("all-linear r 8, nf4", "finetune_lora", *ALL_LINEAR, *rank(8), "--quantize", "bnb.nf4-dq")
PEFT_NF4 = peer("PEFT and bitsandbytes all-linear r 8, nf4", "--targets", "all-linear", "--r", "8", "--nf4")
OURS_FULL, PEER_FULL = ours("full", "finetune_full"), peer("transformers full", "--full")

# Pairs of replies: two texts of 256 tokens stand where a sequence of 512 does.
OURS_DPO = ours("dpo, all-linear r 8", "finetune_dpo", *ALL_LINEAR, "--lora.r", "8", "--lora.alpha", "16")
TRL_DPO = peer("TRL dpo, all-linear r 8", "--dpo", "--targets", "all-linear", "--r", "8")
OURS_DPO_FULL, TRL_DPO_FULL = ours("dpo, full", "finetune_dpo"), peer("TRL dpo, full", "--dpo", "--full")
OURS_STILL = ours("all-linear r 8, no dropout", "finetune_lora", *ALL_LINEAR, "--lora.r", "8", "--lora.alpha", "16", "--lora.dropout", "0")

GROUPS = {
    "lora": Group("llama-110m with 4 key/value heads, bf16, 2 ranks x 2 sequences of 512 tokens", 3,
                  (OURS_QV, PEFT_QV, OURS_ALL, PEFT_ALL, OURS_64, PEFT_64, OURS_FULL, PEER_FULL)),
    "qlora": Group("the same, matrices of blocks in 4 bits (nf4, nested scales)", 3, (OURS_NF4, PEFT_NF4, OURS_ALL)),
    "dpo": Group("the same, 2 ranks x 2 pairs of replies, each a text of 256 tokens", 3, (OURS_DPO, TRL_DPO, OURS_STILL, OURS_DPO_FULL, TRL_DPO_FULL, OURS_FULL)),
}


def faster(text, own, other, at_least):
    return Target("lora", f"{text}, tokens/s", "tokens", own.name, other.name, at_least=at_least)


def lighter(text, own, other):
    return Target("lora", f"{text}, peak RSS", "rss", own.name, other.name, at_most=0.35)


def share(own, at_most, arithmetic):
    return Target("lora", f"step of {own.name} / step of full (arithmetic says {arithmetic})", "step", own.name, OURS_FULL.name, at_most=at_most)


TARGETS = (
    faster("q,v r 8 / PEFT", OURS_QV, PEFT_QV, 1.7),
    faster("all-linear r 8 / PEFT", OURS_ALL, PEFT_ALL, 1.6),
    faster("full / transformers under autocast", OURS_FULL, PEER_FULL, 2.2),
    lighter("q,v r 8 / PEFT", OURS_QV, PEFT_QV),
    lighter("all-linear r 8 / PEFT", OURS_ALL, PEFT_ALL),
    share(OURS_QV, 0.72, 0.683),
    share(OURS_ALL, 0.75, 0.693),
    share(OURS_64, 0.86, 0.778),
    Target("qlora", "nf4 / PEFT and bitsandbytes, tokens/s", "tokens", OURS_NF4.name, PEFT_NF4.name, at_least=1.9),
    Target("qlora", "nf4 / PEFT and bitsandbytes, peak RSS", "rss", OURS_NF4.name, PEFT_NF4.name, at_most=0.25),
    Target("qlora", "nf4 / bf16 base, tokens/s", "tokens", OURS_NF4.name, OURS_ALL.name, at_least=0.95),
    Target("dpo", "dpo, all-linear r 8 / TRL, tokens/s", "tokens", OURS_DPO.name, TRL_DPO.name, at_least=1.6),
    Target("dpo", "dpo, full / TRL, tokens/s", "tokens", OURS_DPO_FULL.name, TRL_DPO_FULL.name, at_least=1.6),
    Target("dpo", "step of dpo / step of fine-tuning, all-linear r 8", "step", OURS_DPO.name, OURS_STILL.name, at_most=1.05),
    Target("dpo", "step of dpo / step of fine-tuning, full", "step", OURS_DPO_FULL.name, OURS_FULL.name, at_most=1.05),
)
