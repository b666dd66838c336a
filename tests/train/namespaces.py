"""Hosts, played by network namespaces of this machine: a cable between two of them, a switch between more, or a relay
that keeps every packet for a while. Each is root's to make, and gone afterwards.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

import ring

RELAY = pathlib.Path(__file__).with_name("relay.py")


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, encoding="utf-8")


def why_not():
    """Empty where namespaces can be made, else what is missing."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return "namespaces want root and iproute2"
    name = f"probe{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here ({error.stderr.strip()})"
    return ""


@contextlib.contextmanager
def namespaces(count):
    """Names of `count` fresh namespaces, each with its loopback up."""
    names = [f"ring{os.getpid()}{side}" for side in "abcdefgh"[:count]]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def plug(name, end, address):
    """Gives the namespace its end of a cable."""
    ip("link", "set", end, "netns", name)
    ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
    ip("-n", name, "link", "set", end, "up")


@contextlib.contextmanager
def cable(names, addresses):
    """A cable between two namespaces; the names of its ends."""
    ends = [f"v{os.getpid()}{side}" for side in "ab"]
    ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for name, end, address in zip(names, ends, addresses):
        plug(name, end, address)
    yield ends  # they go with their namespaces


@contextlib.contextmanager
def switch(names, addresses):
    """A bridge, in a namespace of its own, with a cable to each; the names of the namespaces' ends."""
    middle, ends = f"ring{os.getpid()}s", [f"v{os.getpid()}{name[-1]}" for name in names]
    ip("netns", "add", middle)
    try:
        ip("-n", middle, "link", "add", "bridge", "type", "bridge")
        ip("-n", middle, "link", "set", "bridge", "up")
        for number, (name, end, address) in enumerate(zip(names, ends, addresses)):
            port = f"p{os.getpid()}{number}"
            ip("link", "add", end, "type", "veth", "peer", "name", port)
            plug(name, end, address)
            ip("link", "set", port, "netns", middle)
            ip("-n", middle, "link", "set", port, "master", "bridge", "up")
        yield ends
    finally:
        subprocess.run(["ip", "netns", "del", middle], check=False, capture_output=True)


@contextlib.contextmanager
def relay(names, addresses, milliseconds):
    """A process that carries packets between two namespaces, each after so many milliseconds."""
    command = [sys.executable, "-B", str(RELAY), str(milliseconds)]
    for name, address in zip(names, addresses):
        command += [name, address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
    try:
        ring.require(process.stdout.readline() == "ready\n", "the relay starts")
        yield
    finally:
        process.kill()
        process.wait()


def slow_down(name, end, rate):
    """What leaves the namespace by this end leaves at `rate` at most, as tc spells it."""
    subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", rate, "burst", "32kb",
                    "latency", "50ms"], check=True, capture_output=True)


def on_host(name, command, host):
    """The command in the namespace, on a host that calls itself `host`."""
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'echo {host} > /proc/sys/kernel/hostname; exec "$@"', "sh",
            *map(str, command)]


def wait_for_all(processes, seconds):
    """Their exit codes; those that take longer are killed."""
    deadline = time.monotonic() + seconds
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    return [process.returncode for process in processes]
