"""Processes of a peer, one for each rank: all end when one fails."""
import subprocess
import time


def run_ranks(command, devices, environment):
    """Runs `command` once per rank, with RANK and LOCAL_RANK; returns the first exit status that is not 0."""
    ranks = [subprocess.Popen(command, env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank))) for rank in range(devices)]
    try:
        while any(rank.poll() is None for rank in ranks) and not any(rank.returncode for rank in ranks):
            time.sleep(0.05)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
    return next((rank.returncode for rank in ranks if rank.returncode), 0)
