"""scripts/setup on machines that lack something: one sentence with the way out, and nothing done twice.

Each test runs a copy of the script in an empty folder with a PATH that holds ordinary tools and stand-ins for
what would change the machine.
"""
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "bash env dirname mkdir flock df awk grep tail wc cat sed tr cut sort stat id rm ls touch python3 git".split()


class Machine:
    """An empty checkout and a PATH without sudo; `commands` are stand-ins {name: shell text}."""

    def __init__(self, **commands):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/setup", self.root / "scripts/setup")
        shutil.copytree(ROOT / "scripts/requirements", self.root / "scripts/requirements")
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        for name, text in {"dpkg-query": ALL_INSTALLED, "apt-get": "exit 0", "ldd": "exit 0", **commands}.items():
            self.put(self.bin / name.replace("_", "-"), text)

    def put(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text("#!/bin/bash\n" + text + "\n")
        path.chmod(0o755)

    def pip_says(self, text, status=1):
        """A .venv whose pip prints the text."""
        self.put(self.root / ".venv/bin/pip", "exit 0")
        self.put(self.root / ".venv/bin/python", f'[ "$1" = -c ] && exit 0\necho "{text}"\nexit {status}')

    def setup(self, *arguments, **environment):
        return subprocess.run(["scripts/setup", *arguments], cwd=self.root, capture_output=True, text=True, timeout=60,
                              env={"PATH": str(self.bin), "TMPDIR": str(self.root), **environment})


ALL_INSTALLED = 'for a in "$@"; do echo -n "$a:installed "; done'


class Setup(unittest.TestCase):
    def fails(self, result, *words):
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertEqual(len(result.stderr.strip().split("\n")), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_second_run_does_nothing(self):
        if not (ROOT / ".venv").exists() or shutil.which("clang-tidy-19") is None:
            self.skipTest("this checkout was not set up by scripts/setup --judges --dev")
        start = time.monotonic()
        result = subprocess.run(["scripts/setup", "--judges", "--dev"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertLess(time.monotonic() - start, 20)  # under a second when nothing else runs

    def test_no_network_while_installing_debian_packages(self):
        machine = Machine(dpkg_query="exit 1", id="echo 0",
                          apt_get="echo 'E: Failed to fetch x: Temporary failure resolving y'; exit 100")
        self.fails(machine.setup(), "Debian's package lists", "no connection", "check the network")

    def test_no_network_while_installing_libtorch(self):
        machine = Machine()
        machine.pip_says("Failed to establish a new connection: [Errno 111] Connection refused")
        self.fails(machine.setup(), "installing LibTorch failed", "no connection", "run scripts/setup again")

    def test_disk_full_before_and_during_a_step(self):
        machine = Machine(df="echo header; echo '/dev/x 9999 9899 100 99% /'")
        machine.pip_says("never reached")
        self.fails(machine.setup(), "LibTorch needs", "100 MB are free", "free some space")
        machine = Machine()
        machine.pip_says("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
        self.fails(machine.setup(), "installing LibTorch failed", "the disk is full")

    def test_neither_root_nor_sudo(self):
        self.fails(Machine(dpkg_query="exit 1", id="echo 1000").setup(), "needs root", "there is no sudo", "apt-get install")
        machine = Machine(dpkg_query="exit 1", id="echo 1000", sudo="echo 'a password is required' >&2; exit 1")
        self.fails(machine.setup(), "sudo was refused")

    def test_another_program_installs_packages(self):
        machine = Machine(dpkg_query="exit 1", id="echo 0", apt_get='[ "${@: -1}" = update ] && exit 0; '
                          "echo 'E: Could not get lock /var/lib/dpkg/lock-frontend'; exit 100")
        self.fails(machine.setup(), "another program is installing packages")

    def test_own_libtorch_is_checked(self):
        self.fails(Machine().setup(TRIREME_LIBTORCH="/nowhere"), "TRIREME_LIBTORCH is '/nowhere'", "unset it")
        machine = Machine(ldd="echo ' libcudart.so.13 => not found'")
        for name in ("lib/libtorch_cpu.so", "include/ATen/ATen.h"):
            machine.put(machine.root / "torch" / name, "")
        self.fails(machine.setup(TRIREME_LIBTORCH=str(machine.root / "torch")), "needs libcudart.so.13", "unset TRIREME_LIBTORCH")

    def test_cuda_library_that_stays_missing(self):
        machine = Machine(ldd="echo ' libcudart.so.13 => not found'")
        machine.pip_says("Successfully installed", status=0)
        self.fails(machine.setup(), "does not find libcudart.so.13")

    def test_every_python_package_is_one_version_of_one_hash(self):
        for path in (ROOT / "scripts/requirements").glob("*.txt"):
            for line in path.read_text().splitlines():
                self.assertRegex(line, r"^(#.*|[a-z0-9][a-z0-9.-]*==[0-9][0-9a-z.]*( --hash=sha256:[0-9a-f]{64})+(  # source)?)$", path.name)

    def test_pip_is_told_to_ask_for_hashes_and_what_was_verified_is_said(self):
        machine = Machine(ldd="[ -e asked ] || echo ' libcudart.so.13 => not found'")
        machine.put(machine.root / ".venv/bin/pip", "exit 0")
        machine.put(machine.root / ".venv/bin/python", '[ "$1" = -c ] && exit 0\necho "$@" >>asked\ncat "${@: -1}" >>asked')
        result = machine.setup()
        asked = (machine.root / "asked").read_text()
        for line in asked.splitlines():
            self.assertTrue(" --require-hashes " in line or "--hash=sha256:" in line or "install" not in line, line)
        self.assertRegex(asked, r"torch==2.11.0 --hash=sha256:[0-9a-f]{64}")
        self.assertIn("verified by SHA-256 (scripts/requirements/libtorch.txt): torch==2.11.0", result.stdout)

    def test_a_package_of_another_hash_is_not_installed(self):
        machine = Machine()
        machine.pip_says("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.")
        self.fails(machine.setup(), "installing LibTorch failed", "it was changed on its way")

    def test_apt_takes_nothing_unsigned(self):
        machine = Machine(dpkg_query="exit 1", id="echo 0", apt_get='echo "$@" >>asked')
        machine.pip_says("Failed to establish a new connection")
        result = machine.setup()
        self.assertIn("verified Debian's signature", result.stdout)
        for line in (machine.root / "asked").read_text().splitlines():
            self.assertIn("AllowUnauthenticated=false", line)

    def test_the_site_generator_needs_no_debian_package_and_no_libtorch(self):
        machine = Machine(dpkg_query="exit 1", apt_get="echo asked >>apt")
        machine.put(machine.root / ".venv/bin/pip", "exit 0")
        machine.put(machine.root / ".venv/bin/python", '[ "$1" = -c ] && exit 0\necho "$@" >>asked\ncat "${@: -1}" >>asked\nmkdir -p .cache/site-generator')
        result = machine.setup("--docs")
        self.assertEqual(result.returncode, 0, result.stderr)
        asked = (machine.root / "asked").read_text()
        self.assertRegex(asked, r"(?m)^mkdocs-material==\S+ --hash=sha256:[0-9a-f]{64}$")
        self.assertNotIn("torch", asked)
        self.assertFalse((machine.root / "apt").exists())
        self.assertEqual(machine.setup("--docs").stdout, "")

    def test_unknown_option(self):
        self.fails(Machine().setup("--judge"), "unknown option --judge", "--judges")


if __name__ == "__main__":
    unittest.main()
