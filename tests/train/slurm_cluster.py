"""A real Slurm of one node, in a folder of its own: what tests of srun and sbatch share."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

import ring

CONFIG = """ClusterName=ring
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def cluster(folder):
    """Sets SLURM_CONF for as long as munged, slurmctld and slurmd run."""
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(parents=True)
    (folder / "munge").chmod(0o700)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    with contextlib.ExitStack() as sockets:
        ports = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(2)]
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=socket.gethostname().split(".")[0], ports=ports, folder=folder))
    munge = {name: folder / "munge" / name for name in ("socket", "pid-file", "log-file", "seed-file", "key-file")}
    munge["key-file"] = key
    commands = [["munged", "--foreground", "--force", *(f"--{k}={v}" for k, v in munge.items())],
                ["slurmctld", "-D", "-f", config], ["slurmd", "-D", "-f", config]]
    daemons = []
    os.environ["SLURM_CONF"] = str(config)
    try:
        for command in commands:
            program = shutil.which(command[0], path="/usr/sbin:/sbin:" + os.environ["PATH"])
            daemons.append(subprocess.Popen([program, *map(str, command[1:])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(0.3)
        ring.wait_for(lambda: "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False).stdout,
                      "Slurm's node is idle", timeout=30, interval=0.2)
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
