"""Carries IP packets between two network namespaces, each after a while: a long cable.

relay.py MILLISECONDS NAMESPACE ADDRESS NAMESPACE ADDRESS
Prints "ready" and runs until it is killed. Each namespace gets a device "far0" with its address.
"""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
LARGEST = 65535


def enter(path):
    """This process's network from now on; descriptors that it has stay where they are."""
    with open(path, "rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {path}")


def device(namespace, address):
    enter(f"/run/netns/{namespace}")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"far0", IFF_TUN | IFF_NO_PI))
    for words in (["addr", "add", f"{address}/24", "dev", "far0"], ["link", "set", "far0", "mtu", "16000", "up"]):
        subprocess.run(["ip", *words], check=True)
    return tun


def main():
    delay = float(sys.argv[1]) / 1000
    ends = [device(*sys.argv[2:4]), device(*sys.argv[4:6])]
    print("ready", flush=True)
    waiting, number = [], 0  # (when it is due, number, where to, packet)
    while True:
        patience = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, [], [], patience)[0]:
            packet = os.read(end, LARGEST)
            number += 1
            heapq.heappush(waiting, (time.monotonic() + delay, number, ends[1 - ends.index(end)], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(waiting)
            try:
                os.write(end, packet)
            except OSError:
                pass  # lost, as on any long cable


main()
