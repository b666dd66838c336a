"""The loss scale and the skipped steps over 3,000 scripted overflows, beside those of PyTorch's GradScaler, which drives an
optimizer here, and of DeepSpeed's DynamicLossScaler.

loss_scales.py PROBE
PROBE is loss_scale_probe. DeepSpeed's class is transcribed from deepspeed/runtime/fp16/loss_scaler.py (0.19.8), because
its package is not among the judges; only its messages are left out.
"""

import random
import subprocess
import sys

import torch


class Script:
    """3,000 overflows: the higher the scale, the more often, and now and then several one after the other."""

    def __init__(self, seed: int, window: int):
        self.draw, self.window, self.steps, self.overflows = random.Random(seed), window, "", 0

    def overflows_at(self, scale: float) -> bool:
        likely = 0.9 if scale > 2.0**30 else 0.02 / self.window if scale < 2.0**6 else 0.5 / self.window
        if self.steps.endswith("x") and scale >= 2.0**6:
            likely = 0.4
        overflows = self.draw.random() < likely
        self.steps += "x" if overflows else "."
        self.overflows += overflows
        return overflows


def torch_history(script: Script, initial: float, window: int) -> list[tuple[float, bool]]:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=initial, growth_interval=window)
    scaler.scale(torch.ones(1))  # the scaler makes its tensors at the first call
    history = []
    while script.overflows < 3000:
        scale, before = scaler.get_scale(), weight.item()
        weight.grad = torch.full((1,), float("inf") if script.overflows_at(scale) else scale)
        scaler.step(optimizer)
        scaler.update()
        history.append((scale, weight.item() == before))
        with torch.no_grad():
            weight.zero_()
    return history


class DynamicLossScaler:
    def __init__(self, init_scale, scale_window, min_scale, delayed_shift, consecutive_hysteresis):
        self.cur_scale = init_scale
        self.cur_iter = 0
        self.last_overflow_iter = -1
        self.scale_factor = 2.0
        self.scale_window = scale_window
        self.min_scale = min_scale
        self.delayed_shift = delayed_shift
        self.cur_hysteresis = delayed_shift
        self.consecutive_hysteresis = consecutive_hysteresis

    def update_scale(self, overflow):
        if overflow:
            if self.delayed_shift == 1 or self.cur_hysteresis == 1:
                if self.cur_scale == self.min_scale:
                    raise StopIteration
                self.cur_scale = max(self.cur_scale / self.scale_factor, self.min_scale)
            else:
                self.cur_hysteresis -= 1
            self.last_overflow_iter = self.cur_iter
        else:
            if self.consecutive_hysteresis:
                self.cur_hysteresis = self.delayed_shift
            stable_interval = (self.cur_iter - self.last_overflow_iter) - 1
            if (stable_interval > 0) and (stable_interval % self.scale_window == 0):
                if not self.consecutive_hysteresis:
                    self.cur_hysteresis = self.delayed_shift
                self.cur_scale *= self.scale_factor
        self.cur_iter += 1


def deepspeed_history(script, initial, window, hysteresis, consecutive, minimum):
    scaler = DynamicLossScaler(initial, window, minimum, hysteresis, consecutive)
    history = []
    while script.overflows < 3000:
        overflow = script.overflows_at(scaler.cur_scale)
        history.append((scaler.cur_scale, overflow))
        try:
            scaler.update_scale(overflow)
        except StopIteration:
            break
    return history


def our_history(probe, steps, rule, initial, window, hysteresis=1, consecutive=False, minimum=1.0):
    arguments = [rule, repr(initial), str(window), str(hysteresis), str(int(consecutive)), repr(minimum)]
    out = subprocess.run([probe, *arguments], input=steps, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in out.splitlines()]
    return [(float(scale), skipped == "1") for scale, skipped in lines if skipped != "skipped"]


def with_resumes(steps: str) -> str:
    return "|".join(steps[i : i + 37] for i in range(0, len(steps), 37))


def main(probe: str) -> None:
    def say(name, script, history):
        scales = [scale for scale, _ in history]
        skipped = sum(skipped for _, skipped in history)
        assert skipped == script.overflows
        print(f"{name}: {len(history)} steps, {skipped} skipped, scales {min(scales):g} to {max(scales):g}")

    for seed, window in [(1, 7), (2, 2)]:
        script = Script(seed, window)
        expected = torch_history(script, 65536.0, window)
        assert our_history(probe, with_resumes(script.steps), "torch", 65536.0, window, minimum=2.0**-20) == expected
        say("torch", script, expected)
    for seed, window, hysteresis, consecutive, minimum in [
        (4, 7, 1, False, 2.0**-20),
        (5, 5, 2, False, 2.0**-20),
        (6, 4, 3, True, 2.0**-20),
        (7, 11, 2, False, 2.0**-20),
        (8, 1, 2, False, 2.0**14),  # ends at the lowest scale
    ]:
        script = Script(seed, window)
        expected = deepspeed_history(script, 65536.0, window, hysteresis, consecutive, minimum)
        asked = (window, hysteresis, consecutive, minimum)
        assert our_history(probe, with_resumes(script.steps), "deepspeed", 65536.0, *asked) == expected, seed
        say("deepspeed", script, expected)
    smaller_window = our_history(probe, "...../..", "torch", 16.0, 8)  # 5 good steps, of 8 and then of 4
    assert smaller_window == [(16.0, False)] * 6 + [(32.0, False)], smaller_window
    higher_minimum = our_history(probe, "xx^.", "torch", 16.0, 8, minimum=4.0)
    assert higher_minimum == [(16.0, True), (8.0, True), (16.0, False)], higher_minimum
    print("a resume takes a smaller window and a higher minimum")


if __name__ == "__main__":
    main(sys.argv[1])
