"""examples/vit and examples/transformer_layer learn their tasks on one rank, under DDP and FSDP, and on tensor-parallel ranks.

parallel_layers.py TRIREME TRANSFORMER_LAYER VIT
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
import ring  # noqa: E402

DDP = ("DDP", 2, ["--strategy", "no_shard"])
FSDP = ("FSDP", 2, [])
TP = ("tp 2", 2, ["--mesh.tp", "2"])
SEQUENCE = ("tp 2 with sequence parallelism", 2, ["--mesh.tp", "2", "--mesh.sequence_parallel", "true"])
BOTH = ("tp 2 x shard 2 with sequence parallelism", 4, SEQUENCE[2])


def losses(result, what):
    ring.require(result.code == 0, f"{what} runs", str(result))
    return [float(loss) for loss in re.findall(r"^step +\d+  loss ([\d.]+)$", result.out, re.MULTILINE)]


def learns(r, program, kind, meshes, least):
    one = r.run([program])
    plain = losses(one, kind)
    right = int(re.search(r"^(\d+) % of", one.out, re.MULTILINE)[1])
    ring.check(right >= least, f"{kind}: {right} % right on one rank after {one.seconds:.1f} s", str(one))
    for name, ranks, words in meshes:
        result = r.run([r.program, "launch", "--nproc_per_node", str(ranks), "--", program, *words])
        found = losses(result, f"{kind} on {name}")
        # Data ranks add up in the order of one rank; tensor ranks round the 7th digit differently.
        same = found == plain if "tp" not in name else all(abs(a - b) < 2e-3 for a, b in zip(found, plain))
        right = int(re.search(r"^(\d+) % of", result.out, re.MULTILINE)[1])
        ring.check(same and len(found) == len(plain) and right >= least, f"{kind} on {name}: the same losses, {right} % right after {result.seconds:.1f} s",
                   f"{plain} {result}")


def refuses(r, vit):
    result = r.run([r.program, "launch", "--nproc_per_node", "3", "--", vit, "--mesh.tp", "3"])
    ring.check(result.code != 0 and "4 attention heads cannot be shared evenly by tp=3 ranks" in result.text, "what ranks cannot share is refused", str(result))


with ring.Ring(sys.argv[1]) as r:
    layer, vit = (pathlib.Path(path).resolve() for path in sys.argv[2:])
    learns(r, vit, "vision transformer", [DDP, FSDP, SEQUENCE] + ([TP, BOTH] if ring.SLOW else []), 95)
    learns(r, layer, "transformer layer", [TP, BOTH] if not ring.SLOW else [DDP, FSDP, TP, SEQUENCE, BOTH], 99)
    refuses(r, vit)
