"""trireme doctor as a user calls it: one machine, launchers of others, hosts with a slow or a long cable between them.

doctor.py TRIREME FOLDER_OF_FAKE_NVML LATE_CLOCK
Hosts are network namespaces; that part is left out where they cannot be made.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
import namespaces  # noqa: E402
import ring  # noqa: E402

ADDRESSES = [f"10.79.41.{number}" for number in (1, 2, 3)]
HOSTS = ["anvil", "birch", "cedar"]
PORT = 29741
ATTEMPTS = 3  # other work on these cores may slow a healthy cable down


def doctor(r, *words):
    return [r.program, "doctor", *map(str, words)]


def of_topic(report, topic, grade):
    return [f["text"] for f in report["findings"] if f["topic"] == topic and f["grade"] == grade]


def failing(report):
    return [f["text"] for f in report["findings"] if f["grade"] == "fail"]


def one_machine(r):
    path = r.folder / "two.json"
    result = r.run(doctor(r, "--out_dir", r.folder / "two", "--json", path))
    ring.require(result.code in (0, 1), "two ranks on this machine", str(result))
    report = json.loads(path.read_text())
    ring.require((result.code == 1) == bool(failing(report)), "exit code 1 where something fails, else 0", str(result))
    ring.require(list(report) == ["format", "version", "ranks", "pairs", "copy_rate", "collectives", "findings"], "the JSON's keys",
                 str(list(report)))
    [pair] = report["pairs"]
    ring.require(pair["backend"] == "shm" and pair["forth_rate"] > 1e5 and 0 < pair["latency_seconds"] < 1, "the pair's figures", str(pair))
    ring.require({c["name"] for c in report["collectives"]} == {"all_reduce", "all_gather", "reduce_scatter"}
                 and all(c["limit"] == report["copy_rate"] > 0 and c["rate"] > 0 for c in report["collectives"]),
                 "collectives beside what a copy moves", str(report["collectives"]))
    topics = {f["topic"] for f in report["findings"]}
    ring.require({"cores", "memory", "files", "names", "interfaces", "gpu", "disk", "software", "pairs", "copy", "collectives"} <= topics,
                 "every topic is judged", str(topics))
    ring.require("GB/s, a row sends" in result.out and re.search(r"^ok    2 ranks x ", result.out, re.M), "a matrix and lines", result.out)
    left = [p.name for p in (r.folder / "two").iterdir() if p.name not in ("logs", "flight")]
    ring.check(not left, f"two ranks on this machine, {result.seconds:.1f} s, nothing is left", str(left))
    result = r.run(doctor(r, "--devices", 1, "--out_dir", r.folder / "one"))
    ring.check(result.code == 0 and "1 rank on 1 host" in result.out and "row sends" not in result.out, "one rank alone", str(result))


def what_fails_is_the_answer(r):
    command = ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh", *doctor(r, "--out_dir", r.folder / "few")]
    result = r.run(command)
    ring.check(result.code == 1 and "FAIL  128 open files a process" in result.out and "-> raise nofile" in result.out
               and "job failed" not in result.text, "too few open files: FAIL, the way out, exit code 1, no failed job", str(result))


def cards_are_judged(r, libraries):
    result = r.run(doctor(r, "--devices", 1, "--out_dir", r.folder / "cards"), env=ring.environment(LD_LIBRARY_PATH=libraries))
    ring.check("warn  1 x NVIDIA H100 80.0 GiB, 18 NVLinks, PCIe 5.0 x16; 1 x NVIDIA H100 80.0 GiB, 18 NVLinks, PCIe 5.0 x16 running as x8, "
               "driver 570.1: cards or their links differ" in result.out and result.code == 0, "cards by a library that plays NVML's", str(result))


def under_mpirun(r):
    if not shutil.which("mpirun"):
        print("mpirun left out: it is not installed")
        return
    result = r.run([*ring.MPIRUN, "-n", "3", *doctor(r, "--out_dir", r.folder / "mpi")])
    ring.check(result.code in (0, 1) and "3 ranks on 1 host" in result.out, "as ranks of mpirun, devices left out", str(result))
    result = r.run([*ring.MPIRUN, "-n", "2", *doctor(r, "--comm.backend", "mpi", "--out_dir", r.folder / "by-mpi")])
    ring.check(result.code == 2 and "leave comm.backend out" in result.err, "comm.backend mpi is refused", str(result))


class Hosts:
    def __init__(self, r, names, addresses):
        self.ring, self.names, self.addresses = r, names, addresses

    def examine(self, out, **environment):
        """Exit codes by host, the report, what host 0 said."""
        path, started = self.ring.folder / f"{out}.json", []
        for node, name in enumerate(self.names):
            command = doctor(self.ring, "--devices", 1, "--num_nodes", len(self.names), "--launch.node_rank", node, "--launch.master_addr",
                             self.addresses[0], "--launch.master_port", PORT, "--out_dir", self.ring.folder / out, "--json", path)
            log = open(self.ring.folder / f"{out}-{node}.txt", "w")
            started.append(subprocess.Popen(namespaces.on_host(name, command, HOSTS[node]), stdout=log, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, cwd=self.ring.folder,
                                            env=ring.environment(TRIREME_HOST_ID=name, **environment.get(HOSTS[node], {}))))
        codes = namespaces.wait_for_all(started, 120)
        said = "".join((self.ring.folder / f"{out}-{node}.txt").read_text() for node in range(len(self.names)))
        ring.require(path.exists(), f"{out}: a report", f"{codes} {said}")
        return codes, json.loads(path.read_text()), said


def a_slow_cable_is_named(r):
    with namespaces.namespaces(3) as names, namespaces.switch(names, ADDRESSES) as ends:
        hosts = Hosts(r, names, ADDRESSES)
        namespaces.slow_down(names[2], ends[2], "80mbit")
        codes, report, said = hosts.examine("slow")
        rates = {(p["first"], p["second"]): min(p["forth_rate"], p["back_rate"]) / 1e6 for p in report["pairs"]}
        ring.check(rates[0, 2] < 12 and rates[1, 2] < 12 and rates[0, 1] > 40, f"MB/s by pair: { {k: round(v, 1) for k, v in rates.items()} }", said)
        ring.require(codes == [1, 0, 0] and "job failed" not in said, "host 0's exit code is 1, the others' 0", f"{codes} {said}")
        slow = [text for text in of_topic(report, "pairs", "fail") if "others" in text]
        ring.check([text.split(":")[0] for text in slow] == ["rank 0 (anvil) <-> rank 2 (cedar)", "rank 1 (birch) <-> rank 2 (cedar)"],
                   f"the slow pairs: {slow}", said)
        ring.check("every pair of host cedar is slow, and no other" in said, "and the host that they share", said)


def two_hosts_with_a_slow_cable(r, late_clock):
    with namespaces.namespaces(2) as names, namespaces.cable(names, ADDRESSES) as ends:
        hosts = Hosts(r, names, ADDRESSES)
        for _ in range(ATTEMPTS):
            codes, report, said = hosts.examine("cable")
            if not failing(report):
                break
        ring.check(codes == [0, 0] and not failing(report) and of_topic(report, "clock", "ok"), "a cable: nothing fails, clocks agree", said)
        _, report, said = hosts.examine("late", birch={"LD_PRELOAD": late_clock, "LATE_CLOCK": "3"})
        ring.check(of_topic(report, "clock", "warn") == ["host birch's clock is 3.0 s ahead: logs will not line up"], "a clock that is ahead", said)
        namespaces.slow_down(names[1], ends[1], "80mbit")
        codes, report, said = hosts.examine("slower")
        ring.check(codes == [1, 0] and re.search(r"rank 0 \(anvil\) <-> rank 1 \(birch\): [\d.]+ MB/s, ", "\n".join(failing(report))),
                   f"two hosts alone: {failing(report)}", said)


def a_long_cable_is_named(r):
    with namespaces.namespaces(2) as names, namespaces.relay(names, ADDRESSES, 5):
        _, report, said = Hosts(r, names, ADDRESSES).examine("long")
        latency = report["pairs"][0]["latency_seconds"]
        far = [text for text in of_topic(report, "pairs", "warn") if "one way" in text]
        ring.check(latency >= 5e-3 and len(far) == 1 and far[0].startswith("rank 0 (anvil) <-> rank 1 (birch): "), f"a relay of 5 ms: {far}", said)


with ring.Ring(sys.argv[1]) as r:
    one_machine(r)
    what_fails_is_the_answer(r)
    cards_are_judged(r, sys.argv[2])
    under_mpirun(r)
    r.skip_if_sanitized("how fast ranks are")
    if why := namespaces.why_not():
        print(f"several hosts left out: {why}")
    else:
        a_slow_cable_is_named(r)
        two_hosts_with_a_slow_cable(r, sys.argv[3])
        a_long_cable_is_named(r)
    r.require_nothing_is_left("two", "doctor")
