"""Every architecture against transformers: logits, greedy text and gradients of a folder that it wrote.

architectures.py TRIREME MODEL_PROBE
"""

import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1")
import mutation_proof
import probe
import ring
import tiny_models

torch, transformers = ring.judges("torch", "transformers")

LOGITS, GRADIENTS, BFLOAT16 = 1e-4, 1e-4, 1.2
PROMPT, GREEDY = 16, 64


def far(ours, theirs):
    """Largest difference, in standard deviations of theirs."""
    return ((ours.double() - theirs.double()).abs().max() / theirs.double().std()).item()


def rms(a, b):
    return (a.double() - b.double()).pow(2).mean().sqrt().item()


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Model:
    """One tiny model in float32 and rounded to bfloat16, what is asked about it, and what transformers says."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder / name.replace(" ", "-")
        self.rounded_folder = self.folder.with_name(self.folder.name + "-bf16")
        self.model = tiny_models.make(name, self.folder)
        self.rounded = tiny_models.make(name, self.rounded_folder, torch.bfloat16)
        self.tokens, self.targets = tiny_models.tokens_of(name)

    def jobs(self):
        both = {"generated": True, "trained": True}
        yield probe.job(self.name, self.folder, self.tokens, targets=self.targets, gradients=True, **both)
        yield probe.job(f"{self.name} wide", self.folder, self.tokens, "float64", targets=self.targets, gradients=True, **both)
        yield probe.job(f"{self.name} greedy", self.folder, self.tokens[:1, :PROMPT], greedy=GREEDY)
        yield probe.job(f"{self.name} bf16", self.rounded_folder, self.tokens, "bfloat16", **both)

    def judge(self, replies):
        for job in self.jobs():
            error = replies[job["name"]].get("error")
            ring.require(error is None, f"{job['name']} loads", error)
        self.judge_float32(replies[self.name], replies[f"{self.name} wide"])
        self.judge_greedy(replies[f"{self.name} greedy"]["greedy"])
        self.judge_bfloat16(replies[f"{self.name} bf16"])

    def judge_float32(self, ours, wide):
        want = self.model(self.tokens).logits
        loss = loss_of(want, self.targets)
        loss.backward()
        want = want.detach()
        ring.require(want.std() > 0.5, f"{self.name}: logits say something (standard deviation {want.std():.2f})")
        worst = max(far(answer[path], want) for answer in (ours, wide) for path in ("generated", "trained"))
        ring.require(worst <= LOGITS, f"{self.name}: logits within {worst:.1e} standard deviations of transformers', at most {LOGITS:.0e}",
                     "\n".join(f"{what}: {far(a[path], want):.1e}" for what, a in (("float32", ours), ("float64", wide))
                               for path in ("generated", "trained")))
        # Greedy text of tied models may well be one word; the likeliest words behind random text are not.
        ring.require(torch.equal(ours["generated"].argmax(-1), want.argmax(-1)) and want.argmax(-1).unique().numel() > 5,
                     f"{self.name}: the likeliest tokens are transformers'")
        off = max(abs(answer["loss"] / loss.item() - 1) for answer in (ours, wide))
        ring.require(off <= 1e-5, f"{self.name}: loss within {off:.1e} of transformers'")
        # In memory transformers names GPT-NeoX's head as all others; its files do not.
        head = "embed_out.weight" if self.model.config.model_type == "gpt_neox" else "lm_head.weight"
        theirs = {head if n == "lm_head.weight" else n: p.grad for n, p in self.model.named_parameters()}
        ring.require(ours["gradients"].keys() == theirs.keys(), f"{self.name}: gradients of the same parameters",
                     str(ours["gradients"].keys() ^ theirs.keys()))
        distance = {n: max(((a["gradients"][n] - g).norm() / g.norm()).item() for a in (ours, wide)) for n, g in theirs.items()}
        furthest = max(distance, key=distance.get)
        ring.check(distance[furthest] <= GRADIENTS, f"{self.name}: logits within {worst:.1e} standard deviations of transformers' "
                   f"(at most {LOGITS:.0e}), gradients within {distance[furthest]:.1e} of their norms (at most {GRADIENTS:.0e})",
                   "\n".join(f"{d:.1e} {n}" for n, d in distance.items()))

    @torch.no_grad()
    def judge_greedy(self, drawn):
        # Each of our tokens is what transformers' model finds likeliest behind what came before it: so its own greedy
        # text is the same, by induction.
        ring.require(len(drawn) == GREEDY, f"{self.name}: {GREEDY} tokens are drawn", str(drawn))
        text = torch.cat([self.tokens[0, :PROMPT], torch.tensor(drawn)])[None]
        likeliest = self.model(text).logits[0].argmax(-1)[PROMPT - 1:-1].tolist()
        ring.require(likeliest == drawn, f"{self.name}: {GREEDY} greedy tokens equal transformers'", f"{drawn}\n{likeliest}")
        if ring.SLOW:
            wrote = self.model.generate(text[:, :PROMPT], do_sample=False, max_new_tokens=GREEDY, eos_token_id=None)
            ring.check(wrote[0, PROMPT:].tolist() == drawn, f"{self.name}: {GREEDY} greedy tokens equal transformers'", f"{drawn}\n{wrote}")

    @torch.no_grad()
    def judge_bfloat16(self, ours):
        narrow = self.rounded(self.tokens).logits
        truth = self.rounded.double()(self.tokens).logits
        theirs = rms(narrow, truth)
        ratios = {path: rms(ours[path], truth) / theirs for path in ("generated", "trained")}
        worst = max(ratios.values())
        ring.check(worst <= BFLOAT16, f"{self.name}: error in bfloat16 {worst:.2f} times transformers' {theirs / truth.std():.1e} "
                   f"(at most {BFLOAT16}); {GREEDY} greedy tokens equal", str(ratios))


with ring.Ring(sys.argv[1]) as r:
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    ask = probe.Probe(sys.argv[2], r.folder).ask
    names = sys.argv[3].split(",") if len(sys.argv) > 3 else tiny_models.MODELS
    models = [Model(name, r.folder) for name in names]
    replies = ask([job for model in models for job in model.jobs()])
    for model in models:
        model.judge(replies)
    mutation_proof.Proof(ask, r.folder).of_models(models)
