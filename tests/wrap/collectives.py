"""examples/collectives prints the same on every backend: threads, shm and gloo, and mpi where it is built.

collectives.py TRIREME EXAMPLE
"""

import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(FOLDER.parent / "train"))
import ring  # noqa: E402

EXPECTED = (ROOT / "examples/collectives/expected.txt").read_text()


def prints_what_is_expected(r, backend, command):
    result = r.run(command)
    ring.require(result.code == 0, f"the example runs on {backend}", str(result))
    expected = EXPECTED.replace("over threads", f"over {backend}", 1)
    said, wanted = result.out.splitlines(), expected.splitlines()
    other = [f"{a!r} instead of {b!r}" for a, b in zip(said, wanted) if a != b][:3]
    ring.check(said == wanted, f"{backend}: all {len(wanted)} lines as expected", f"{other} {len(said)} lines\n{result}")


def says_why_not(r, example):
    result = r.run([example, "gloop"])
    ring.check(result.code == 1 and "gloo" in result.err, "a backend that does not exist is refused", str(result))


with ring.Ring(sys.argv[1]) as r:
    example = sys.argv[2]
    rings = re.findall(r"ring all-reduce: (add|pass on), step (\d)\n((?:  rank .*\n)*)", EXPECTED)
    ring.check(len(rings) == 6 and rings[-1][2].count("[1111 1111 1111 1111]") == 4, "the ring's last step leaves every sum on every rank")
    prints_what_is_expected(r, "threads", [example])
    for backend in ("shm", "gloo"):
        prints_what_is_expected(r, backend, [r.program, "launch", "--nproc_per_node", "4", "--", example, backend])
    says_why_not(r, example)
    if why := r.why_no_mpi():
        print(f"mpi left out: {why}")
    else:
        prints_what_is_expected(r, "mpi", [*ring.MPIRUN, "-n", "4", example, "mpi"])
