"""What the process-ring tests share: a temporary folder, a small text, tiny models, the program, checks.

Every script runs the built program as a user would and judges it from outside: exit codes, messages, files.
TRIREME_SLOW=1 runs full counts; otherwise a quick sample.
"""

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import loaded_once

SKIPPED = 77  # exit code, known to CTest
SLOW = os.environ.get("TRIREME_SLOW") == "1"
LLAMA = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64}
# A file of its weights is longer than the 1 MiB that is checked as one.
WIDE = LLAMA | {"hidden_size": 192, "intermediate_size": 384}
GPT2 = LLAMA | {"model_type": "gpt2", "num_key_value_heads": 4, "tie_word_embeddings": "true"}
# All ranks on this host, more than it has cores, as root in a container too.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader",
          "--mca", "btl_vader_single_copy_mechanism", "none"]
WORDS = "the sea was calm and Anne walked to a window of her house where Mr. Knightley stood, quite alone; 'Indeed!' said she".split()

# For judges: importing them makes a million objects that stay, and their large tensors come and go.
gc.set_threshold(100_000, 50, 100)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
for parameter, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1)):
    ctypes.CDLL(None).mallopt(parameter, value)

# A job that a shell starts in the background inherits ignored signals, and the program leaves them ignored.
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def environment(**changes):
    """This process' own without anything that would set Trireme or pose as a launcher."""
    others = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GOMP_SPINCOUNT")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "PET_")) and k not in others}
    return kept | changes


def processor_has(*flags):
    known = pathlib.Path("/proc/cpuinfo").read_text(errors="replace")
    return all(flag in known for flag in flags)


def multiplies_alike():
    """Whether products have the same bits for any number of rows: where the kernels are our own."""
    return processor_has("avx2", "fma", "f16c")


def own_address():
    """This machine's, as others would reach it; empty where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing
            return s.getsockname()[0]
        except OSError:
            return ""


def require(condition, sentence, detail=""):
    """Says nothing when all is well; the first thing that is not ends the script."""
    if not condition:
        print(f"FAILED  {sentence}\n{detail}", flush=True)
        sys.exit(1)


def check(condition, sentence, detail=""):
    """The same, with a line for the reader."""
    require(condition, sentence, detail)
    print(f"ok      {sentence}", flush=True)


def judges(*names):
    """Imports packages of .venv that are judges; skips the test where one is missing."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        print(f"skipped: {error}; scripts/setup --judges installs it")
        sys.exit(SKIPPED)


class Result:
    def __init__(self, code, out, err, seconds, cpu_seconds):
        self.code, self.out, self.err, self.seconds, self.cpu_seconds = code, out, err, seconds, cpu_seconds

    @property
    def text(self):
        return self.out + self.err

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.out[-4000:]}{self.err[-4000:]}"


class Ring:
    """A program under test and a folder of its own, which goes with it."""

    def __init__(self, program):
        self.program = str(pathlib.Path(program).resolve())
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trireme-ring-"))
        self.loaded_once, self.one_at_a_time = None, threading.Lock()
        source = random.Random(7)
        self.text = self.folder / "text.txt"
        self.text.write_text(" ".join(source.choice(WORDS) for _ in range(6000)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.loaded_once is not None:
            self.loaded_once.close()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)

    @property
    def sanitized(self):
        libraries = subprocess.run(["ldd", self.program], check=True, capture_output=True, encoding="utf-8").stdout
        return "libasan" in libraries or "libtsan" in libraries

    def skip_if_sanitized(self, what):
        if self.sanitized:
            print(f"skipped: a sanitizer changes {what}")
            sys.exit(SKIPPED)

    def why_no_mpi(self):
        """Empty where mpirun can start the program on backend mpi, else what is missing."""
        if not shutil.which("mpirun"):
            return "mpirun is not installed (openmpi-bin)"
        library = pathlib.Path(self.program).parent / "libtrireme_comm_mpi.so"
        return "" if library.exists() else f"{library.name} is not beside the program (libopenmpi-dev)"

    def command(self, out, model=LLAMA, **settings):
        """trireme pretrain of a tiny model; keyword train__max_steps=3 is --train.max_steps 3, and None leaves one out.

        With comm__backend="mpi" and several devices mpirun starts the ranks.
        """
        values = {"devices": 1, "precision": "32-true", "out_dir": self.folder / out, "data": "TextFiles",
                  "data.train_data_path": self.text, "train.max_seq_length": 32, "train.global_batch_size": 8,
                  "train.micro_batch_size": 1, "train.max_steps": 10, "train.lr_warmup_steps": 2, "optimizer.lr": 3e-3,
                  "eval.final_validation": "false", "launch.threads_per_rank": 1, "comm.timeout": "60s"}
        values |= {f"model.{k}": v for k, v in model.items()}
        values |= {k.replace("__", "."): v for k, v in settings.items()}
        words = [self.program, "pretrain", "llama-5m"]
        if values.get("comm.backend") == "mpi" and values["devices"] > 1:
            words = [*MPIRUN, "-n", str(values["devices"]), *words]
        return words + options(values)

    def run(self, command, timeout=120, loads=False, **options):
        """Runs to the end, waits for it, and hands back what was printed, the exit code and the time.

        loads: even the program under test is started anew, as a user starts it; otherwise a script loads it once (loaded_once.cpp),
        but in slow runs.
        """
        start = time.monotonic()
        if not loads and (done := self.run_once_loaded(command, timeout, **options)) is not None:
            code, out, err, cpu = done
            out, err = (io.TextIOWrapper(io.BytesIO(text), "utf-8", "replace").read() for text in (out, err))
            return Result(code, out, err, time.monotonic() - start, cpu)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=timeout,
                              cwd=self.folder, stdin=subprocess.DEVNULL, **({"env": environment()} | options))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Result(done.returncode, done.stdout, done.stderr, time.monotonic() - start, cpu)

    def run_once_loaded(self, command, timeout, env=None, cwd=None, **others):
        """The same of this ring's program; None where it makes a difference that the program is loaded already."""
        words, variables = [str(word) for word in command], environment() if env is None else env
        if words[0] != self.program or others or not self.one_at_a_time.acquire(blocking=False):
            return None
        try:
            if self.loaded_once is None:
                self.loaded_once = loaded_once.LoadedOnce(self.program, self.folder, environment())
            return self.loaded_once.run(words, variables, cwd or self.folder, timeout) if self.loaded_once.takes(variables) else None
        finally:
            self.one_at_a_time.release()

    def train(self, out, **settings):
        """A run that must succeed; its folder."""
        result = self.run(self.command(out, **settings))
        require(result.code == 0, f"the run {out} succeeds", str(result))
        backend, ranks = settings.get("comm__backend"), settings.get("devices", 1)
        if backend and ranks > 1:
            require(f"  {ranks} ranks  {backend}  " in result.out, f"the run {out} talks over {backend}", str(result))
        return self.folder / out

    def start(self, command, **options):
        """Starts and returns at once; output goes to the files <folder>/start.out and start.err."""
        with open(self.folder / "start.out", "w") as out, open(self.folder / "start.err", "w") as err:
            return subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=self.folder,
                                    env=environment(), **options)

    def finish(self, process, timeout=90):
        """What came of a started process."""
        start = time.monotonic()
        code = process.wait(timeout=timeout)
        out, err = ((self.folder / name).read_text(errors="replace") for name in ("start.out", "start.err"))
        return Result(code, out, err, time.monotonic() - start, 0)

    def processes(self):
        """Every process whose command line names this folder: launcher, guardian, ranks."""
        mine = str(self.folder).encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mine in (entry / "cmdline").read_bytes() and b"State:\tZ" not in (entry / "status").read_bytes():
                        found.append(int(entry.name))
        return [pid for pid in found if self.loaded_once is None or pid != self.loaded_once.pid]

    def ranks(self, count, timeout=60, variable="RANK"):
        """Process ids of the ranks, by rank, once all are there."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = {}
            for pid in self.processes():
                with contextlib.suppress(OSError):
                    for item in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        name, _, value = item.partition(b"=")
                        if name == variable.encode():
                            found[int(value)] = pid
            if len(found) == count:
                return [found[rank] for rank in range(count)]
            time.sleep(0.02)
        require(False, f"{count} ranks appear within {timeout} s", (self.folder / "start.err").read_text())

    def require_nothing_is_left(self, out, what):
        """No process of the run, and no unfinished folder."""
        deadline = time.monotonic() + 10
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [*self.processes(), *(self.folder / out).glob(".tmp-*")]
        require(not left, f"{what}: no process and no .tmp- folder is left", str(left))


def options(values):
    """--key value; None leaves one out, and train__max_steps is train.max_steps."""
    given = {key.replace("__", "."): value for key, value in values.items()}
    return [word for key, value in given.items() if value is not None for word in (f"--{key}", str(value))]


@contextlib.contextmanager
def busy_core(loops=2):
    """Busy loops on the core of the last rank."""
    core = max(os.sched_getaffinity(0))
    processes = [subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for(condition, what, timeout=60, interval=0.01, detail=lambda: ""):
    """detail(): what is printed if it never holds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if (value := condition()):
            return value
        time.sleep(interval)
    require(False, f"{what} within {timeout} s", detail())


def metrics(folder):
    """{step: row} of metrics.jsonl."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    return {row["step"]: row for row in rows}


def step_folders(folder):
    return sorted(path.name for path in folder.glob("step-*"))


def damage(path):
    """Changes a bit in the last third, behind the first MiB of a large file: there only whoever reads the tensors notices."""
    data = bytearray(path.read_bytes())
    data[-len(data) // 3] ^= 4
    path.write_bytes(data)


def tensors(checkpoint):
    """Every tensor of a checkpoint, model and optimizer, by name; read by the safetensors package."""
    [reader] = judges("safetensors.numpy")
    found = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        found |= reader.load_file(path)
    return found
