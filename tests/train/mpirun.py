"""Ranks that mpirun starts: who they are, what is refused, and what a lost rank leaves behind.

mpirun.py TRIREME
Most of it is skipped where MPI is not installed. That such ranks compute the right thing is for parity.py.
"""

import os
import signal
import socket
import sys

import ring


def refused(r, command, *sentences, code=2):
    result = r.run(command)
    ring.check(result.code == code and all(s in result.err for s in sentences), f"refused: {sentences[0]}", str(result))


def without(command, *keys):
    """The command with some settings left out."""
    for key in keys:
        at = command.index(f"--{key}")
        command = command[:at] + command[at + 2:]
    return command


def ranks_are_recognised(r):
    command = r.command("two", devices=2, comm__backend="mpi", train__max_steps=3)
    result = r.run(without(command, "devices", "launch.threads_per_rank"),
                   env={k: v for k, v in ring.environment().items() if k != "OMP_NUM_THREADS"})
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    ring.check(f"  {threads} thread" in result.out, f"two ranks share the cores, {threads} each", str(result))
    ring.check(result.code == 0 and "2 ranks  mpi  " in result.out, "two ranks of mpirun train together, devices left out", str(result))
    ring.check(result.out.count("trireme ") == 1 and result.err == "mpirun started 2 ranks on 1 host\n", "rank 0 speaks, the others are silent", str(result))
    alone = r.run([*ring.MPIRUN, "-n", "1", *r.command("alone", comm__backend="mpi", train__max_steps=3)])
    ring.check(alone.code == 0 and "1 rank  local  " in alone.out, "a world of one is legal", str(alone))
    four = r.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4",
                  *without(r.command("four", train__max_steps=3), "devices", "launch.threads_per_rank")])
    ring.check(four.code == 0 and "  4 ranks  shm  " in four.out, "mpirun --oversubscribe -n 4 trireme pretrain ... trains, by itself over shm", str(four))
    met = r.run([*ring.MPIRUN, "-n", "2", *r.command("met", devices=2, comm__backend="shm", train__max_steps=3)])
    ring.check(met.code == 0 and "2 ranks  shm  " in met.out, "on another backend they meet by a file in out_dir", str(met))
    left = [p.name for p in (r.folder / "met").glob(".meeting*")]
    ring.check(not left, "which is gone afterwards", str(left))
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = ["-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={free.getsockname()[1]}"]
    shm = r.run([*ring.MPIRUN, *meeting, "-n", "2", *r.command("shm", devices=2, comm__backend="shm", train__max_steps=3)])
    ring.check(shm.code == 0 and "2 ranks  shm  " in shm.out, "or where MASTER_ADDR and MASTER_PORT say", str(shm))


def mistakes_are_refused(r):
    start = [*ring.MPIRUN, "-n", "2"]
    refused(r, [*start, "env", "-u", "PMIX_NAMESPACE", *r.command("none", devices=2, comm__backend="shm")],
            "the 2 ranks that mpirun started cannot find each other, because their job has no address and no name", "--comm.backend mpi")
    refused(r, [*start, *r.command("none", devices=3)], "devices 3 on num_nodes 1 are not the 2 ranks that mpirun started")


def other_settings_are_refused(r):
    """They have no store, so they compare their settings through MPI."""
    def together(first, second, **changes):
        return r.run([*ring.MPIRUN, "-n", "1", *first, ":", "-n", "1", *second], **changes)

    def on_one(out, **settings):
        command = r.command(out, devices=2, comm__backend="mpi", train__max_steps=2, **settings)
        return command[command.index(r.program):]

    for out, changes, sentence in [
            ("lr", {"optimizer__lr": 2e-3}, ") has optimizer.lr 0.002, rank 0 has 0.003; start every machine with the same settings"),
            ("interval", {"train__save_interval": 7}, ") has train.save_interval 7, rank 0 has 1000; ")]:
        result = together(on_one(f"other-{out}"), on_one(f"other-{out}", **changes))
        ring.check(result.code == 2 and "rank 1 (" in result.err and sentence in result.err, f"another {out} on one rank is refused", str(result))
        ring.require(not ring.step_folders(r.folder / f"other-{out}"), "nothing is trained", str(result))
    bench = [r.program, "bench", "collectives", "--quick", "--devices", "2", "--comm.backend", "mpi"]
    result = together(bench, [*bench, "--seed", "7"])
    ring.check(result.code == 2 and ") has seed 7, rank 0 has " in result.err, "bench collectives refuses it, too", str(result))
    result = together(on_one("own"), on_one("own", data__num_workers=2))
    ring.check(result.code == 0, "what each machine decides for itself may differ", str(result))


def a_stop_signal_saves(r):
    # mpirun passes SIGTERM on, waits for a second unless told otherwise, and kills what is left.
    patience = ["--mca", "odls_base_sigkill_timeout", "5"]
    command = r.command("stopped", devices=2, comm__backend="mpi", train__max_steps=100000, train__save_interval=20)
    job = r.start([command[0], *patience, *command[1:]])
    ring.wait_for(lambda: ring.step_folders(r.folder / "stopped"), "a first checkpoint")
    job.send_signal(signal.SIGTERM)
    result = r.finish(job)
    newest = int(ring.step_folders(r.folder / "stopped")[-1][5:])
    ring.check(f"stopped at step {newest} by request" in result.out, f"SIGTERM to mpirun stops all ranks, saved at step {newest}", str(result))
    r.require_nothing_is_left("stopped", "a stop")


def a_lost_rank_ends_the_job(r):
    job = r.start(r.command("killed", devices=2, comm__backend="mpi", train__max_steps=100000, train__save_interval=20))
    ring.wait_for(lambda: ring.step_folders(r.folder / "killed"), "a first checkpoint")
    pids = r.ranks(2, variable="OMPI_COMM_WORLD_RANK")
    os.kill(pids[1], signal.SIGKILL)
    result = r.finish(job)
    ring.check(result.code != 0 and "signal 9" in result.text, f"a killed rank ends the job, exit code {result.code}", str(result))
    r.require_nothing_is_left("nowhere", "a killed rank")  # an unfinished save may be


with ring.Ring(sys.argv[1]) as r:
    refused(r, [*r.command("none", devices=2), "--comm.backend", "mpi"], "comm.backend mpi needs ranks that mpirun starts: mpirun -n 2")
    if why := r.why_no_mpi():
        print(f"skipped: {why}")
        sys.exit(ring.SKIPPED)
    ranks_are_recognised(r)
    mistakes_are_refused(r)
    other_settings_are_refused(r)
    a_stop_signal_saves(r)
    a_lost_rank_ends_the_job(r)
