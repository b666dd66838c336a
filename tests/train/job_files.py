"""--print: the batch script goes through a real Slurm, is queued again after a stop and goes on; the Kubernetes file is
read by PyYAML and has what an Indexed Job needs.

job_files.py TRIREME
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import ring
import slurm_cluster

[yaml] = ring.judges("yaml")


def printed(r, kind, *more, code=0, **settings):
    command = [*r.command("batch", **settings), "--print", kind, *map(str, more)]
    result = r.run(command)
    ring.require(result.code == code, f"--print {kind}: exit code {code}", str(result))
    return result


def kubernetes(r):
    out = "/data/out/My_Run"
    text = printed(r, "k8s", "--launch.image", "registry/trireme:1", "--launch.volume", "claim:/data", "--out_dir", out, devices=4,
                   num_nodes=2, launch__grace="45s").out
    service, job = yaml.safe_load_all(text)
    name = job["metadata"]["name"]
    ring.check(service["kind"] == "Service" and service["spec"]["clusterIP"] == "None" and service["metadata"]["name"] == name
               and service["spec"]["selector"] == {"job-name": name}, "a headless service", text)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    ring.check((job["kind"], job["apiVersion"], spec["completionMode"], spec["completions"], spec["parallelism"]) ==
               ("Job", "batch/v1", "Indexed", 2, 2) and pod["subdomain"] == name and pod["restartPolicy"] == "Never",
               "an Indexed Job whose pods the service names", text)
    rules = [(rule["action"], rule.get("onExitCodes", {}).get("values"), rule.get("onPodConditions")) for rule in spec["podFailurePolicy"]["rules"]]
    ring.check(rules == [("FailJob", [2], None), ("Ignore", [75], None), ("Ignore", None, [{"type": "DisruptionTarget", "status": "True"}])],
               "a pod failure policy", str(rules))
    [container] = pod["containers"]
    words = container["command"]
    ring.check(words[:3] == ["trireme", "pretrain", "llama-5m"] and words[words.index("--num_nodes") + 1] == "2"
               and words[words.index("--resume") + 1] == "auto" and not any(w in words for w in ("--print", "k8s", "--launch.image")),
               "the command, without what asked for the file", str(words))
    looks = r.run([r.program, "pretrain", "llama-5m", "--launch.print", "sbatch", "--out_dir", "hosts=a b", "--train.max_steps", "3", "launch.hosts=c"])
    ring.check(looks.code == 0 and "--out_dir" in looks.out and "'hosts=a b'" in looks.out and "hosts=c" not in looks.out,
               "a value that looks like a setting of machines stays", str(looks))
    ring.check(container["image"] == "registry/trireme:1" and pod["terminationGracePeriodSeconds"] == 75
               and container["volumeMounts"] == [{"name": "shared", "mountPath": "/data"}]
               and pod["volumes"] == [{"name": "shared", "persistentVolumeClaim": {"claimName": "claim"}}], "image, grace and volume", text)
    ring.check(re.fullmatch(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", name), f"a name that Kubernetes takes: {name}")


def mistakes(r):
    for kind, more, sentence in [("k8s", [], "launch.image"), ("k8s", ["--launch.image", "i"], "launch.volume CLAIM:/PATH"),
                                 ("k8s", ["--launch.image", "i", "--launch.volume", "c:/data"], "is not in /data"),
                                 ("hostfile", ["--num_nodes", "2"], "--hosts a:4,b:4"), ("sbach", [], "sbatch"),
                                 ("sbatch", ["--num_nodes", "2", "--max_restarts", "3"], "leave it out, or say --launch.max_restarts 0"),
                                 ("k8s", ["--num_nodes", "2", "--max_restarts", "3"], "leave it out, or say --launch.max_restarts 0"),
                                 ("hostfile", ["--max_restarts", "3"], "mpirun starts the ranks of a hostfile"),
                                 ("sbatch", ["--nnodes", "2:4"], "launch.nnodes 2:4 is for machines without a scheduler"),
                                 ("k8s", ["--nnodes", "2:4", "--rdzv_endpoint", "a:29400"], "leave it out of a job file"),
                                 ("sbatch", ["--rdzv_endpoint", "a:29400"], "launch.rdzv_endpoint is for machines without a scheduler")]:
        result = printed(r, kind, *more, code=2)
        ring.check(sentence in result.err and not result.out, f"refused: --print {kind} {' '.join(more)}", str(result))
    for words in (["--nnodes", "2:4"], ["--nnodes", "2", "--rdzv_endpoint", "a:29400"], ["--nnodes", "2", "--max_restarts", "3"]):
        result = r.run([r.program, "launch", *words, "--print", "sbatch", "--", "true"])
        ring.check(result.code == 2 and not result.out and "launch." not in result.err, f"refused: launch {' '.join(words)} --print sbatch", str(result))
    result = r.run([r.program, "launch", "--nnodes", "1:1", "--max_restarts", "3", "--print", "sbatch", "--", "true"])
    ring.check(result.code == 0, "the ranks of one machine may start again in a job", str(result))
    path = r.folder / "print.yaml"
    path.write_text("launch: {print: sbatch}\n")
    result = r.run([*r.command("batch"), "--config", path])
    ring.check(result.code == 2 and "the job itself would print" in result.err, "refused: launch.print in a file", str(result))
    result = r.run([r.program, "launch", "--nproc_per_node", "2", "--print", "sbatch", "--", "./my program", "--print", "x"])
    ring.check(result.code == 0 and "launch \\\n    --nproc_per_node \\\n    2 \\\n    -- \\\n    './my program' \\\n    --print" in result.out,
               "trireme launch prints for any program", str(result))
    result = r.run([r.program, "launch", "--print", "sbatch", "--", "finetune", "model"])
    ring.check(result.code == 0 and re.search(r"finetune_lora\W+model\W+--resume\W+auto", result.out), "and knows finetune, as trireme does", str(result))
    for words, goes_on in ((["generate", "m", "--prompts", "p.jsonl", "--output", "t.jsonl"], True), (["generate", "m", "--prompts", "p.jsonl"], False),
                           (["evaluate", "m", "--text", "t.txt"], False)):
        result = r.run([r.program, *words, "--devices", "2", "--launch.print", "sbatch"])
        ring.check(result.code == 0 and ("--signal=USR1" in result.out) == goes_on and ("-eq 75" in result.out) == goes_on and "--resume" not in result.out,
                   f"{' '.join(words)}: {'is asked to stop and goes on' if goes_on else 'is not asked to stop'}", str(result))
    run = r.train("resumable", train__max_steps=1)
    for folder, code in ((run, 0), (run / "step-00000001", 2)):
        result = r.run([r.program, "pretrain", "--resume", folder, "--train.max_steps", "9", "--launch.print", "sbatch"])
        ring.check(result.code == code and ("and this --resume would begin it anew" in result.err) == (code == 2),
                   f"a job that is queued again goes on {'in its folder' if code == 0 else 'and not from one checkpoint'}", str(result))
    hosts = printed(r, "hostfile", "--hosts", "a:4,b:4", devices=4).out.splitlines()
    command = shlex.join(map(str, [*r.command("batch", devices=4), "--print", "hostfile"]))
    piped = r.run(["bash", "-c", f"{command} --hostfile <(printf 'a:4\\nb slots=4\\n')"], timeout=20)
    ring.check(piped.code == 0 and piped.out.splitlines()[1:] == hosts[1:], "machines from a pipe, which is read once", str(piped))
    path.write_text("launch: {hosts: [a:4, b:4], exclude: b}\n")
    chosen = printed(r, "sbatch", "--config", path, "--include", "a", "--exclude", "null", devices=4).out
    ring.check("#SBATCH --nodes=1" in chosen and "--include" not in chosen and
               all(re.search(rf"--launch\.{key}\W+null", chosen) for key in ("hosts", "include", "exclude")),
               "the job's own command chooses no machines", chosen)
    ring.require(not (r.folder / "batch").exists(), "printing makes no folder")
    ring.check(hosts[1:] == ["a slots=4", "b slots=4"] and hosts[0].startswith("# mpirun --mca odls_base_sigkill_timeout 40 --hostfile FILE -n 8 "), "a hostfile", str(hosts))


def batch(r):
    script = r.folder / "job.sh"
    text = printed(r, "sbatch", devices=2, train__max_steps=100000, train__save_interval=50, launch__grace="20s").out
    script.write_text(text)
    ring.require(subprocess.run(["bash", "-n", script], check=False).returncode == 0, "bash reads the script", text)
    for line in ("#SBATCH --signal=USR1@80", "#SBATCH --requeue", "#SBATCH --open-mode=append", "if [ $code -eq 75 ]"):
        ring.require(line in text, f"the script says {line}", text)
    log = lambda: "".join(p.read_text(errors="replace") for p in r.folder.glob("trireme-batch-*.log"))  # noqa: E731
    environment = ring.environment(SLURM_CONF=os.environ["SLURM_CONF"])
    run = lambda *words: subprocess.run(words, check=False, capture_output=True, encoding="utf-8", cwd=r.folder, env=environment)  # noqa: E731
    submitted = run("sbatch", str(script))
    ring.require(submitted.returncode == 0, "sbatch takes the script", str(submitted))
    job = submitted.stdout.split()[-1]
    state = lambda: "\n".join([run("scontrol", "show", "job", job).stdout, run("sinfo", "-R").stdout, log(),  # noqa: E731
                               *(p.read_text(errors="replace")[-4000:] for p in sorted((r.folder / "slurm").glob("*.log")))])
    try:
        ring.wait_for(lambda: ring.step_folders(r.folder / "batch"), "a first checkpoint", timeout=90, detail=state)
        ring.check(True, "sbatch: the script's job trains")
        run("scancel", "--signal=USR1", job)  # as --signal does before the end of the time
        ring.wait_for(lambda: "Restarts=1" in run("scontrol", "show", "job", job).stdout, "the job is queued again", timeout=90, interval=0.2, detail=state)
        stopped = int(ring.step_folders(r.folder / "batch")[-1][5:])
        ring.check(True, f"stopped by SIGUSR1 at step {stopped} with 75, queued again")
        run("scontrol", "release", job)
        # Slurm lets a requeued job wait for two minutes: slurmd starts none whose credential is of the second of its end.
        run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
        ring.wait_for(lambda: int(ring.step_folders(r.folder / "batch")[-1][5:]) > stopped, "the job goes on", timeout=300, interval=0.2, detail=state)
        rows = [line for line in (r.folder / "batch" / "metrics.jsonl").read_text().splitlines()]
        ring.check(f'"step":{stopped + 1},' in "".join(rows).replace(" ", ""), "and goes on with the step after the last one", log())
        ring.check(log().count("trireme 0.") >= 2, "both attempts stand in one log", log())
    finally:
        run("scancel", job)
        ring.wait_for(lambda: job not in run("squeue", "-h", "-o", "%i").stdout.split(), "the job is gone", timeout=60, interval=0.2)


with ring.Ring(sys.argv[1]) as r:
    kubernetes(r)
    mistakes(r)
    r.skip_if_sanitized("how long Slurm waits")
    if shutil.which("sbatch") is None or os.geteuid() != 0:
        print("sbatch left out: slurm-wlm is not installed, or this is not root's")
    else:
        with slurm_cluster.cluster(r.folder / "slurm"):
            batch(r)
        r.require_nothing_is_left("batch", "sbatch")
