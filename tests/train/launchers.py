"""Other people's launchers start ranks of Trireme, mistakes are refused at once, and jobs that start together do not collide.

launchers.py TRIREME
srun, mpirun and machines of their own have tests of their own: slurm.py, mpirun.py, two_hosts.py.
"""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import sys

import ring

VENV = pathlib.Path(__file__).resolve().parents[2] / ".venv" / "bin"


def without_devices(command):
    at = command.index("--devices")
    return command[:at] + command[at + 2:]


def torchrun_starts_ranks(r):
    result = r.run([str(VENV / "python"), "-m", "torch.distributed.run", "--no-python", "--nproc_per_node=2",
                    *without_devices(r.command("torchrun", train__max_steps=3))])
    ring.check(result.code == 0 and "  2 ranks  " in result.out and "torchrun started 2 ranks on 1 host" in result.err and
               " 3/3" in result.out, "torchrun --no-python --nproc_per_node=2 trireme pretrain trains", str(result))


def accelerate_starts_ranks(r):
    if not (VENV / "accelerate").exists():
        print("accelerate is not installed: its launcher is left out (scripts/setup --judges)")
        return
    home = r.folder / "home"
    home.mkdir()
    (home / "hosts").write_text("localhost slots=2\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start = [str(VENV / "python"), str(VENV / "accelerate"), "launch", "--no_python", "--cpu", "--num_machines=1", "--num_processes=2",
             f"--main_process_port={port}"]
    env = ring.environment(HOME=str(home), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_rmaps_base_oversubscribe="1")
    command = without_devices(r.command("accelerate", train__max_steps=3))
    result = r.run([*start, *command], env=env)
    ring.check(result.code != 0 and "has started one" in result.text and not (r.folder / "accelerate").exists(),
               "accelerate launch that starts one of two processes is refused", str(result))
    if shutil.which("mpirun"):
        result = r.run([*start, f"--mpirun_hostfile={home / 'hosts'}", *command], env=env)
        ring.check(result.code == 0 and "  2 ranks  " in result.out, "accelerate launch with a list of hosts trains", str(result))


def ranks_with_a_local_rank_train(r):
    """As DeepSpeed's launcher starts them: LOCAL_RANK without LOCAL_WORLD_SIZE, and --local_rank right behind the program's name."""
    command = without_devices(r.command("local", train__max_steps=3))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def start(rank, files):
        env = ring.environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        log = files.enter_context(open(r.folder / f"local-{rank}.txt", "w"))
        return subprocess.Popen([command[0], f"--local_rank={rank}", *command[1:]], cwd=r.folder, env=env, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT)

    with contextlib.ExitStack() as files:
        codes = [rank.wait(timeout=120) for rank in [start(rank, files) for rank in (0, 1)]]
    texts = "".join((r.folder / f"local-{rank}.txt").read_text() for rank in (0, 1))
    ring.check(codes == [0, 0] and "  2 ranks  " in texts and "started 2 ranks on 1 host" in texts, "ranks with LOCAL_RANK and --local_rank train", f"{codes}\n{texts}")
    result = r.run([*r.command("alone", train__max_steps=3), "--local_rank=1"])
    ring.check(result.code == 2 and "local_rank 1 is for a rank that a launcher started" in result.err and not (r.folder / "alone").exists(),
               "refused: --local_rank=1 where no launcher started this", str(result))


def worlds_of_one_by_mistake_are_refused(r):
    command = without_devices(r.command("alone", train__max_steps=3))
    for variables, sentence in [
            ({"JOB_COMPLETION_INDEX": "3"}, "JOB_COMPLETION_INDEX 3 says that this is one of several pods"),
            ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "a"}, "PMIX_RANK=1 says that a launcher started this process"),
            ({"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4"}, "srun did not start this process"),
            ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "OMPI_COMM_WORLD_SIZE": "4"},
             "OMPI_COMM_WORLD_SIZE=4 must be at most WORLD_SIZE=1")]:
        result = r.run(command, env=ring.environment(**variables))
        ring.check(result.code == 2 and sentence in result.err and not (r.folder / "alone").exists(), f"refused: {sentence}", str(result))
    result = r.run(r.command("alone", num_nodes=2, launch__node_rank=0, launch__master_addr="127.0.0.1"))
    ring.check(result.code == 2 and "127.0.0.1 is a loopback address" in result.err and not (r.folder / "alone").exists(),
               f"refused after {result.seconds:.1f} s: num_nodes 2 with a loopback address", str(result))
    result = r.run(r.command("alone", num_nodes=2, launch__node_rank=0, launch__master_addr="fd00::1"))
    ring.check(result.code == 2 and "launch.master_addr fd00::1 is an IPv6 address" in result.err and not (r.folder / "alone").exists(),
               "refused: num_nodes 2 with an IPv6 address", str(result))


def jobs_that_start_together_do_not_collide(r):
    count = 10 if ring.SLOW else 4
    with contextlib.ExitStack() as files:
        jobs = [subprocess.Popen(r.command(f"job-{number}", devices=2, train__max_steps=5), cwd=r.folder, env=ring.environment(),
                                 stdin=subprocess.DEVNULL, stdout=files.enter_context(open(r.folder / f"job-{number}.txt", "w")),
                                 stderr=subprocess.STDOUT) for number in range(count)]
        codes = [job.wait(timeout=240) for job in jobs]
    texts = [(r.folder / f"job-{number}.txt").read_text() for number in range(count)]
    losses = {tuple(row["loss"] for row in ring.metrics(r.folder / f"job-{number}").values()) for number in range(count)
              if codes[number] == 0}
    ring.check(codes == [0] * count and len(losses) == 1, f"{count} jobs of 2 ranks, started at once with no flags, all finish alike",
               f"{codes}\n" + "\n".join(t for c, t in zip(codes, texts) if c != 0))


with ring.Ring(sys.argv[1]) as r:
    worlds_of_one_by_mistake_are_refused(r)
    jobs_that_start_together_do_not_collide(r)
    ranks_with_a_local_rank_train(r)
    torchrun_starts_ranks(r)
    accelerate_starts_ranks(r)
