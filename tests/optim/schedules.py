"""Learning rates step by step over 5,000 steps beside those of PyTorch's schedulers, of transformers' schedules, and of
DeepSpeed's formulas (deepspeed/runtime/lr_schedules.py; DeepSpeed itself does not install without compiling).

schedules.py PROBE
PROBE is schedule_probe. The rates are those that each system's optimizer has at its first, second, ... step.
"""

import math
import subprocess
import sys

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, OneCycleLR, PolynomialLR
from transformers import optimization as hf

STEPS, PEAK = 5000, 2e-3
RUN = f"--optimizer.lr {PEAK} --train.max_steps {STEPS}"


def torch_rates(make) -> list[float]:
    """The rate at each step of an optimizer that is driven as PyTorch's documentation says."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    scheduler = make(optimizer)
    rates = []
    for _ in range(STEPS):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        if len(rates) < STEPS:  # OneCycleLR refuses one more
            scheduler.step()
    return rates


def deepspeed_rates(rate) -> list[float]:
    """DeepSpeed steps its schedule after the optimizer, and the schedule counts from -1: step s has iteration s - 2."""
    return [rate(step - 2) for step in range(1, STEPS + 1)]


def rise(k: int, warmup: int, shape: str) -> float:
    return math.log(k + 1) / math.log(warmup) if shape == "log" else k / warmup


def warmup_lr(k, low, warmup, shape, after=lambda k: 1.0):
    if k < 0:
        return low
    return low + (PEAK - low) * (rise(k, warmup, shape) if k < warmup else after(k))


def warmup_decay_lr(k, low, warmup, shape):
    return warmup_lr(k, low, warmup, shape, lambda k: max(0.0, (STEPS - k) / max(1.0, STEPS - warmup)))


def warmup_cosine_lr(k, low_ratio, warmup, shape, end_ratio):
    if k < 0:
        return 0.0
    if k < warmup:
        return PEAK * (low_ratio + (1 - low_ratio) * rise(k, warmup, shape))
    progress = min(1.0, (k - warmup + 1) / max(1, STEPS - warmup))
    return PEAK * (end_ratio + (1 - end_ratio) * (1 + math.cos(math.pi * progress)) / 2)


def lr_range_test(k, size, growth, staircase):
    interval = (k + 1) / size
    return PEAK * (1 + growth * (math.floor(interval) if staircase else interval))


def one_cycle(k, low, first, second, stairs, decay_size, decay_rate):
    total = first + second
    if k < total:
        cycle = math.floor(1 + (k + 1) / total)
        x = 1.0 + (k + 1) / total - cycle
        ratio = first / total
        scale = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
        if stairs > 0:  # counted from the whole number of the iteration
            at = (k + 1) % total
            position = at * stairs / first if at <= first else (total - at) * stairs / second
            scale = math.floor(position) / stairs
        return low + (PEAK - low) * scale
    if decay_size == 0 or decay_rate == 0:
        return low
    return low / (1 + decay_rate * (k - total + 1) / decay_size)


# Settings, and the rates of the system that they are of. Ours count steps from 1 unless first_step is 0.
ZERO = "--lr_schedule.first_step 0 --train.lr_warmup_steps"
WARM = "--train.lr_warmup_steps"
CASES = {
    f"constant {ZERO} 300": torch_rates(lambda o: hf.get_constant_schedule_with_warmup(o, 300)),
    f"linear {ZERO} 300 --train.min_lr 0": torch_rates(lambda o: hf.get_linear_schedule_with_warmup(o, 300, STEPS)),
    f"cosine {ZERO} 300 --train.min_lr 0": torch_rates(lambda o: hf.get_cosine_schedule_with_warmup(o, 300, STEPS)),
    f"cosine {ZERO} 0 --train.min_lr 0": torch_rates(lambda o: CosineAnnealingLR(o, STEPS)),
    f"cosine {ZERO} 0 --train.min_lr 1e-4": torch_rates(lambda o: CosineAnnealingLR(o, STEPS, eta_min=1e-4)),
    f"linear {ZERO} 0 --train.min_lr 2e-4": torch_rates(lambda o: LinearLR(o, 1.0, 0.1, STEPS)),
    f"cosine {WARM} 300 --train.min_lr 2e-4": torch_rates(  # LitGPT's finetune begins at 1, as ours does
        lambda o: LambdaLR(o, lambda k: (k + 1) / 300 if k < 300
                           else 0.1 + 0.45 * (1 + math.cos(math.pi * (k + 1 - 300) / (STEPS - 300))))),
    f"polynomial {ZERO} 300": torch_rates(lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, 300, STEPS)),
    f"polynomial {ZERO} 300 --lr_schedule.power 2.5 --train.min_lr 1e-5": torch_rates(
        lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, 300, STEPS, lr_end=1e-5, power=2.5)),
    f"polynomial {ZERO} 0 --lr_schedule.power 2 --train.min_lr 0": torch_rates(
        lambda o: PolynomialLR(o, STEPS, power=2)),
    f"inverse_sqrt {ZERO} 300": torch_rates(lambda o: hf.get_inverse_sqrt_schedule(o, 300)),
    f"inverse_sqrt {ZERO} 0": torch_rates(lambda o: hf.get_inverse_sqrt_schedule(o, 0)),
    f"inverse_sqrt {ZERO} 300 --lr_schedule.timescale 77": torch_rates(
        lambda o: hf.get_inverse_sqrt_schedule(o, 300, timescale=77)),
    "OneCycleLR": torch_rates(lambda o: OneCycleLR(o, PEAK, total_steps=STEPS, cycle_momentum=False)),
    "OneCycleLR --lr_schedule.three_phase true --lr_schedule.pct_start 0.41 --lr_schedule.decay_shape linear "
    "--lr_schedule.div_factor 10 --lr_schedule.final_div_factor 50": torch_rates(
        lambda o: OneCycleLR(o, PEAK, total_steps=STEPS, pct_start=0.41, anneal_strategy="linear", div_factor=10,
                             final_div_factor=50, three_phase=True, cycle_momentum=False)),
    "WarmupLR": deepspeed_rates(lambda k: warmup_lr(k, 0, 1000, "log")),
    f"WarmupLR {WARM} 700 --lr_schedule.warmup_shape linear --lr_schedule.warmup_from 1e-4": deepspeed_rates(
        lambda k: warmup_lr(k, 1e-4, 700, "linear")),
    "WarmupDecayLR": deepspeed_rates(lambda k: warmup_decay_lr(k, 0, 1000, "log")),
    f"WarmupDecayLR {WARM} 1 --lr_schedule.warmup_from 1e-4": deepspeed_rates(
        lambda k: warmup_decay_lr(k, 1e-4, 2, "log")),
    "WarmupCosineLR": deepspeed_rates(lambda k: warmup_cosine_lr(k, 0, 1000, "log", 1e-4)),
    f"WarmupCosineLR {WARM} 500 --lr_schedule.warmup_shape linear --lr_schedule.warmup_from 4e-4 --train.min_lr 1e-3":
        deepspeed_rates(lambda k: warmup_cosine_lr(k, 0.2, 500, "linear", 0.5)),
    "LRRangeTest": deepspeed_rates(lambda k: lr_range_test(k, 2000, 1.0, False)),
    "LRRangeTest --lr_schedule.staircase true --lr_schedule.step_size 300 --lr_schedule.step_rate 5": deepspeed_rates(
        lambda k: lr_range_test(k, 300, 5, True)),
    "OneCycle --lr_schedule.cycle_min_lr 1e-4": deepspeed_rates(lambda k: one_cycle(k, 1e-4, 2000, 2000, 0, 0, 0)),
    "OneCycle --lr_schedule.cycle_min_lr 1e-4 --lr_schedule.step_size 900 --lr_schedule.second_step_size 1300 "
    "--lr_schedule.first_stair_count 7 --lr_schedule.decay_step_size 200 --lr_schedule.decay_lr_rate 0.5":
        deepspeed_rates(lambda k: one_cycle(k, 1e-4, 900, 1300, 7, 200, 0.5)),
}
for shape in ("linear", "cosine", "1-sqrt"):
    CASES[f"wsd {ZERO} 300 --lr_schedule.decay_steps 800 --lr_schedule.decay_shape {shape} "
          f"--lr_schedule.warmup_shape {shape}"] = torch_rates(
        lambda o, shape=shape: hf.get_wsd_schedule(o, 300, 800, STEPS, warmup_type=shape, decay_type=shape))
CASES[f"wsd {ZERO} 300 --train.min_lr 2e-4 --lr_schedule.warmup_from 2e-4"] = torch_rates(
    lambda o: hf.get_wsd_schedule(o, 300, 500, STEPS, min_lr_ratio=0.1))


def megatron_wsd(step: int) -> float:  # core/optimizer_param_scheduler.py, lr_wsd_decay_style exponential
    if step <= 300:
        return PEAK * step / 300
    x = max(0, step - (STEPS - 800)) / 800
    return 1e-4 + (PEAK - 1e-4) * (2 * 0.5**x - 1)


CASES[f"wsd {WARM} 300 --lr_schedule.decay_steps 800 --lr_schedule.decay_shape exponential --train.min_lr 1e-4"] = [
    megatron_wsd(step) for step in range(1, STEPS + 1)]

done = subprocess.run(sys.argv[1], input="".join(f"{RUN} --train.lr_decay {case}\n" for case in CASES), text=True,
                      capture_output=True, check=False)
if done.returncode != 0:
    sys.exit(done.stderr)
failed = 0
for (case, expected), line in zip(CASES.items(), done.stdout.splitlines(), strict=True):
    rates = [float(word) for word in line.split()]
    assert len(rates) == STEPS
    # Both compute in float64, in another order; PyTorch's recursive schedulers round once a step.
    step, worst = max(((i + 1, abs(a - b)) for i, (a, b) in enumerate(zip(rates, expected, strict=True))),
                      key=lambda pair: pair[1])
    if worst > 1e-12 * PEAK * 10:
        failed += 1
        print(f"{case}: step {step} has {rates[step - 1]:.17g} instead of {expected[step - 1]:.17g}")
print(f"{len(CASES) - failed} of {len(CASES)} schedules equal their source's over {STEPS} steps")
sys.exit(failed > 0)
