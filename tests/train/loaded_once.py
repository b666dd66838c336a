"""Runs a program many times and loads it once (loaded_once.cpp)."""

import contextlib
import os
import pathlib
import selectors
import signal
import socket
import struct
import subprocess
import time

# What LibTorch, OpenMP, the C library and the dynamic linker read before main.
READ_BEFORE_MAIN = ("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "ATEN_", "MALLOC_", "GLIBC_", "TORCH_", "PYTORCH_", "CUDA_", "DNNL_", "ONEDNN_")


def inherited(environment):
    """What a process has from its start: of the environment only what is read before main."""
    own = pathlib.Path("/proc/self")
    kept = ("Umask", "SigBlk", "SigIgn", "Cpus_allowed", "NoNewPrivs", "CapEff")
    status = [line for line in (own / "status").read_text().splitlines() if line.startswith(kept)]
    return ({name: value for name, value in environment.items() if name.startswith(READ_BEFORE_MAIN)}, status, os.nice(0), os.getpgrp(),
            (own / "limits").read_text(), (own / "cgroup").read_text(), sorted(os.readlink(space) for space in (own / "ns").iterdir()))


class LoadedOnce:
    def __init__(self, program, folder, environment):
        """`folder` stands in the command line of each run, by which a script finds what it started."""
        library = pathlib.Path(program).parent / "libloaded_once.so"
        self.is_there = library.exists() and os.environ.get("TRIREME_SLOW") != "1"
        self.state, self.pid = inherited(environment), None
        if not self.is_there:
            return
        self.socket, other = socket.socketpair()
        self.server = subprocess.Popen([program, str(folder)], pass_fds=[other.fileno()], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, env=environment | {"LD_PRELOAD": str(library), "LOADED_ONCE": str(other.fileno())})
        other.close()
        self.pid = self.server.pid

    def takes(self, environment):
        return self.is_there and inherited(environment) == self.state

    def close(self):
        if self.is_there:
            self.server.kill()
            self.server.wait()
            self.socket.close()

    def run(self, words, environment, folder, timeout):
        """(exit code, bytes of standard output, of standard error, seconds of processor time), as subprocess.run gives them."""
        ends = [os.pipe(), os.pipe()]
        with open(os.devnull, "rb") as nothing:
            strings = [str(folder), str(len(words)), *words, *(f"{name}={value}" for name, value in environment.items())]
            text = b"".join(os.fsencode(string) + b"\0" for string in strings)
            socket.send_fds(self.socket, [struct.pack("=I", len(text))], [nothing.fileno(), ends[0][1], ends[1][1]])
            self.socket.sendall(text)
        for _, write_end in ends:
            os.close(write_end)
        [pid] = struct.unpack("=i", self.answer(4))
        deadline = time.monotonic() + timeout
        try:
            out, err = self.read([read_end for read_end, _ in ends], deadline)
            status, microseconds = struct.unpack("=qq", self.answer(16, deadline))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.answer(16, time.monotonic() + 10)
            raise subprocess.TimeoutExpired(words, timeout) from None
        return os.waitstatus_to_exitcode(status), out, err, microseconds / 1e6

    def answer(self, size, deadline=None):
        self.socket.settimeout(deadline and max(0.001, deadline - time.monotonic()))
        got = self.socket.recv(size, socket.MSG_WAITALL)
        if len(got) < size:
            raise RuntimeError("the program's server has ended")
        return got

    @staticmethod
    def read(ends, deadline):
        texts = {end: [] for end in ends}
        with selectors.DefaultSelector() as open_ends:
            for end in ends:
                open_ends.register(end, selectors.EVENT_READ)
            while open_ends.get_map():
                ready = open_ends.select(max(0, deadline - time.monotonic()))
                if not ready:
                    for end in list(open_ends.get_map()):
                        os.close(end)
                    raise TimeoutError
                for key, _ in ready:
                    if got := os.read(key.fd, 1 << 16):
                        texts[key.fd].append(got)
                    else:
                        open_ends.unregister(key.fd)
                        os.close(key.fd)
        return [b"".join(texts[end]) for end in ends]
