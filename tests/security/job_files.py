"""A folder, an out_dir or a word with a line break begins no line of a job file: sbatch, kubectl or a shell would run it.

job_files.py TRIREME
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))

import ring


def printed(r, kind, folder, *words):
    command = [r.program, "pretrain", "llama-5m", "--data", "TextFiles", "--data.train_data_path", str(r.text), "--out_dir", "out",
               "--train.max_steps", "1", *words, "--print", kind]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", env=ring.environment(), timeout=60, check=False)
    return ring.Result(done.returncode, done.stdout, done.stderr, 0, 0)


KINDS = {"sbatch": (), "hostfile": ("--hosts", "a:1"),
         "k8s": ("--launch.image", "registry/trireme:1", "--launch.volume", "claim:/data", "--out_dir", "/data/out")}

with ring.Ring(sys.argv[1]) as r:
    owned = r.folder / "owned"
    plain = r.folder / "it's a $(touch owned) `folder`; touch owned"
    plain.mkdir()
    for kind, more in KINDS.items():
        result = printed(r, kind, plain, *more)
        ring.require(result.code == 0, f"--print {kind} works in a folder with signs of the shell's", str(result))
    script = printed(r, "sbatch", plain).out
    stand_in = "srun() { :; }\nscontrol() { :; }\n"
    subprocess.run(["bash", "-c", stand_in + script], cwd=r.folder, check=False, capture_output=True, timeout=30)
    ring.check(not owned.exists(), "and a shell that reads the batch script runs nothing of its name")

    evil = r.folder / f"folder\ntouch {owned.name}\n#"
    evil.mkdir()
    for kind, more in KINDS.items():
        for where, folder, words in (("folder", evil, ()), ("word", r.folder, ("--seed", "1", "--data.train_data_path", str(evil)))):
            result = printed(r, kind, folder, *more, *words)
            if result.code == 0:
                subprocess.run(["bash", "-c", stand_in + result.out], cwd=r.folder, check=False, capture_output=True, timeout=30)
            ran = owned.exists()
            owned.unlink(missing_ok=True)
            ring.require(result.code == 2 and "has a control character" in result.err and not ran,
                         f"a {where} with a line break is refused by --print {kind}", f"a command of it was run: {ran}\n{result}")
    ring.check(True, f"a line break in a folder or a word is refused by --print {', '.join(KINDS)}")
