"""Asks tests/train/model_probe.cpp: one process for many models."""

import itertools
import json
import subprocess

import ring

[reader] = ring.judges("safetensors.torch")


class Probe:
    def __init__(self, program, folder):
        self.program, self.folder, self.asked = program, folder, itertools.count()

    def ask(self, jobs):
        """{job's name: its reply and tensors}; see model_probe.cpp for what a job may hold."""
        number = next(self.asked)
        asked, out = (self.folder / f"probe-{number}.{end}" for end in ("json", "safetensors"))
        asked.write_text(json.dumps([job | {"folder": str(job["folder"])} for job in jobs]))
        done = subprocess.run([self.program, asked, out], capture_output=True, encoding="utf-8", env=ring.environment())
        ring.require(done.returncode == 0, "model_probe answers", done.stderr)
        replies = json.loads(done.stdout)
        for name, tensor in reader.load_file(out).items():
            job, _, rest = name.partition("/")
            what, _, parameter = rest.partition("/")
            if parameter:
                replies[job].setdefault(what, {})[parameter] = tensor
            else:
                replies[job][what] = tensor
        out.unlink()
        return replies


def job(name, folder, tokens, precision="float32", targets=None, **what):
    """Tensors of tokens and targets become lists."""
    targets = {} if targets is None else {"targets": targets.tolist()}
    return {"name": name, "folder": folder, "precision": precision, "tokens": tokens.tolist()} | targets | what
