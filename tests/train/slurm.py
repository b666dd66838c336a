"""A real Slurm on this machine, of one node: srun's tasks find each other and train.

slurm.py TRIREME
Skipped where Slurm is not installed or this is not root's. The daemons live in the test's folder and end with it.
"""

import os
import shutil
import subprocess
import sys

import ring
import slurm_cluster

def srun(tasks, command, *words):
    return ["srun", "--overcommit", "-n", str(tasks), *words, *command]


def run(r, command):
    return r.run(command, env=ring.environment(SLURM_CONF=os.environ["SLURM_CONF"]))


def trains(r):
    one = ring.metrics(r.train("one", train__max_steps=4))
    command = r.command("four", train__max_steps=4)
    del command[command.index("--devices"):command.index("--devices") + 2]
    result = run(r, srun(4, command))
    ring.check(result.code == 0 and "4 ranks  shm  " in result.out and "srun started 4 ranks on 1 host" in result.err,
               "four tasks of srun train together, devices left out", str(result))
    losses = [(one[s]["loss"], ring.metrics(r.folder / "four")[s]["loss"]) for s in range(1, 5)]
    ring.check(all(a == b for a, b in losses), "the losses of one rank, bit for bit", str(losses))
    left = [p.name for p in (r.folder / "four").glob(".meeting*")]
    ring.check(not left, "the file they met by is gone", str(left))


def a_task_a_machine_is_its_launcher(r):
    one = ring.metrics(r.train("one-task", train__max_steps=4))
    result = run(r, srun(1, r.command("node", devices=2, train__max_steps=4), "--ntasks-per-node", "1"))
    ring.check(result.code == 0 and "2 ranks  shm  " in result.out, "one task a machine with --devices 2 is that machine's launcher", str(result))
    losses = [(one[s]["loss"], ring.metrics(r.folder / "node")[s]["loss"]) for s in range(1, 5)]
    ring.check(all(a == b for a, b in losses), "its ranks have the losses of one rank too", str(losses))
    result = run(r, srun(1, r.command("alone", train__max_steps=3, launch__max_restarts=2)))
    ring.check(result.code == 0 and "1 rank  local  " in result.out and "srun started" not in result.err,
               "and of one rank that may start again", str(result))
    words = [r.program, "launch", "--nproc_per_node", "2", "--", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
    result = run(r, srun(1, words, "--ntasks-per-node", "1"))
    ring.check(result.code == 0 and all(f"rank {k} of 2" in result.text for k in (0, 1)), "and trireme launch is, of any program", str(result))


def mistakes_are_refused(r):
    result = run(r, srun(2, r.command("none", devices=3)))
    ring.check(result.code != 0 and "devices 3 on num_nodes 1 are not the 2 ranks that srun started" in result.err,
               "another number of devices is refused", str(result))
    command = r.command("none")
    del command[command.index("--devices"):command.index("--devices") + 2]
    script = r.folder / "batch.sh"
    script.write_text("#!/bin/sh\n" + " ".join(map(str, command)) + "\n")
    subprocess.run(["sbatch", "-n", "2", "--overcommit", "--wait", "-o", str(r.folder / "batch.out"), str(script)], check=False,
                   capture_output=True, timeout=60, cwd=r.folder)
    said = (r.folder / "batch.out").read_text()
    ring.check("Slurm's job asks for 2 tasks (SLURM_NTASKS), but srun did not start this process" in said,
               "a batch script that forgot srun is refused", said)


with ring.Ring(sys.argv[1]) as r:
    r.skip_if_sanitized("how long Slurm waits")
    missing = [p for p in ("srun", "sbatch") if not shutil.which(p)]
    if missing or os.geteuid() != 0:
        print("skipped: " + (f"{missing[0]} is not installed (slurm-wlm, munge)" if missing else "Slurm's daemons want root"))
        sys.exit(ring.SKIPPED)
    with slurm_cluster.cluster(r.folder / "slurm"):
        trains(r)
        a_task_a_machine_is_its_launcher(r)
        mistakes_are_refused(r)
    r.require_nothing_is_left("four", "srun")
