"""A rank that dies costs a restart, not the run: launch.max_restarts goes on from the newest checkpoint to the same end.

restart.py TRIREME
"""

import os
import re
import signal
import sys

import ring

STEPS = 80


def lost_ranks_cost_nothing(r):
    straight = r.train("straight", devices=2, train__max_steps=STEPS)
    job = r.start(r.command("restarted", devices=2, train__max_steps=STEPS, train__save_interval=5, launch__max_restarts=3,
                            save__keep_last=0))
    saved = 0
    for _ in range(2):
        ring.wait_for(lambda: len(ring.step_folders(r.folder / "restarted")) > saved, "a checkpoint")
        pids = r.ranks(2)
        os.kill(pids[1], signal.SIGKILL)
        ring.wait_for(lambda: not set(pids) & set(r.processes()), "the ranks' end")
        saved = len(ring.step_folders(r.folder / "restarted")) + 1  # further than it came: twice at one step ends the job
    result = r.finish(job)
    ring.check(result.code == 0 and "restart 2 of 3 in 2 s" in result.err, "two lost ranks, two restarts, exit code 0", str(result))
    ring.check(result.out.count("resumed  ") == 2, "each attempt resumes the newest checkpoint", str(result))
    ring.check(f"signal {int(signal.SIGKILL)}" in result.err, "what happened is told", str(result))
    want, rows = ring.metrics(straight), ring.metrics(r.folder / "restarted")
    unequal = [s for s in range(1, STEPS + 1) if want[s]["loss"] != rows[s]["loss"]]
    ring.check(not unequal, f"all {STEPS} losses are those of the run that lost nobody, bit for bit", str(unequal))
    r.require_nothing_is_left("restarted", "restarts")


def one_rank_starts_again(r):
    """It needs a launcher as several do. Another launcher's ranks cannot start each other again."""
    job = r.start(r.command("single", train__max_steps=400, train__save_interval=20, launch__max_restarts=2))
    ring.wait_for(lambda: ring.step_folders(r.folder / "single"), "a checkpoint")
    os.kill(r.ranks(1)[0], signal.SIGSEGV)
    result = r.finish(job)
    ring.check(result.code == 0 and "restart 1 of 2" in result.err and result.out.count("resumed  ") == 1, "one rank that dies starts again, too", str(result))
    r.require_nothing_is_left("single", "a restart of one rank")
    others = ring.environment(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    result = r.run(r.command("foreign", launch__max_restarts=2), env=others)
    ring.check(result.code == 2 and "max_restarts is for Trireme's own launcher, but the launcher started this process" in result.err,
               "typed restarts are refused where another launcher started the rank", str(result))
    ring.require(not (r.folder / "foreign").exists(), "nothing is written")
    settings = r.folder / "restarts.yaml"
    settings.write_text("launch: {max_restarts: 2}\n")
    result = r.run([*r.command("foreign", train__max_steps=2), "--config", str(settings)], env=others)
    ring.check(result.code == 0 and "launch.max_restarts has no effect here: the launcher started the ranks" in result.err,
               "a file may serve both, and a line says that they have no effect", str(result))


def a_restart_goes_on_from_its_own_checkpoints(r):
    """Not from those of the branch that it left in the same folder, even where they are further."""
    branch = dict(devices=2, train__max_steps=STEPS, optimizer__lr=1e-3)
    shared = r.train("shared", devices=2, train__max_steps=STEPS, train__save_interval=2, save__keep_last=0)
    start = shared / "step-00000002"
    undisturbed = r.train("undisturbed", resume=start, **branch)
    ring.check(ring.step_folders(shared)[-1] == f"step-{STEPS:08}", "an earlier run has saved its last step", str(ring.step_folders(shared)))
    before = {path.name: path.stat().st_ino for path in shared.glob("step-*")}
    job = r.start(r.command("shared", resume=start, train__save_interval=5, launch__max_restarts=2, save__keep_last=0, **branch))
    ring.wait_for(lambda: {path.name: path.stat().st_ino for path in shared.glob("step-*")} != before, "a checkpoint of its own")
    os.kill(r.ranks(2)[1], signal.SIGKILL)
    result = r.finish(job)
    ring.check(result.code == 0 and "restart 1 of 2" in result.err and "nothing to do" not in result.out,
               "a restart beside an earlier run's checkpoints trains on", str(result))
    want, rows = ring.metrics(undisturbed), ring.metrics(shared)
    unequal = [s for s in range(3, STEPS + 1) if want[s]["loss"] != rows[s]["loss"]]
    ring.check(not unequal, "with the losses of a run of its own", str(unequal))
    r.require_nothing_is_left("shared", "a restart beside an earlier run")


def a_restart_passes_over_a_damaged_checkpoint(r):
    """Tensors that turn out to be damaged while they are read: the run's own older checkpoint takes the newest one's place."""
    straight = r.train("whole", model=ring.WIDE, devices=2, train__max_steps=STEPS)
    out = r.folder / "damaged"
    job = r.start(r.command("damaged", model=ring.WIDE, devices=2, train__max_steps=STEPS, train__save_interval=2, save__keep_last=0, launch__max_restarts=2))
    ring.wait_for(lambda: len(ring.step_folders(out)) > 1, "two checkpoints")
    os.kill(r.ranks(2)[1], signal.SIGKILL)
    ring.wait_for(lambda: "restart 1 of 2" in (r.folder / "start.err").read_text(), "the restart")
    newest = ring.step_folders(out)[-1]
    for path in (out / newest).glob("*.safetensors"):
        ring.damage(path)
    result = r.finish(job)
    older = f"step-{int(newest[5:]) - 2:08}"
    ring.check(result.code == 0 and f"passed over {out}/{newest}" in result.out and f"resumed  {out}/{older} at" in result.out,
               "a restart passes over a damaged checkpoint of its run, and says so", str(result))
    want, rows = ring.metrics(straight), ring.metrics(out)
    unequal = [s for s in range(1, STEPS + 1) if want[s]["loss"] != rows[s]["loss"]]
    ring.check(not unequal, "with the losses of the run that lost nobody", str(unequal))


def a_run_that_never_named_itself_starts_anew(r):
    """An attempt that dies at its very start leaves an earlier run's name in the folder: no restart may take it."""
    older = r.train("unnamed", devices=2, train__max_steps=4, train__save_interval=2, train__lr_warmup_steps=1)
    branch = dict(devices=2, resume=older / "step-00000002", train__max_steps=8)
    undisturbed = r.train("unnamed-alone", **branch)
    name = (older / "run.json").read_text()
    job = r.start(r.command("unnamed", launch__max_restarts=2, **branch))
    os.kill(r.ranks(2)[1], signal.SIGKILL)
    ring.wait_for(lambda: "restart 1 of 2" in (r.folder / "start.err").read_text(), "the restart")
    unnamed = (older / "run.json").read_text() == name
    result = r.finish(job)
    ring.require(unnamed, "the first attempt ended before it named its run", str(result))
    ring.check(result.code == 0 and "step-00000002 at step 2" in result.out, "a restart of a run that had not named itself starts anew", str(result))
    want, rows = ring.metrics(undisturbed), ring.metrics(older)
    unequal = [s for s in range(3, 9) if want[s]["loss"] != rows[s]["loss"]]
    ring.check(not unequal, "with the losses of a run of its own", str(unequal))


def other_programs_are_launched(r):
    script = r.folder / "say.sh"
    script.write_text("#!/bin/sh\necho rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE here, $1\n[ -n \"$MASTER_PORT\" ]\n")
    script.chmod(0o755)
    result = r.run([r.program, "launch", "--nproc_per_node", "3", "--standalone", "--", str(script), "hello"])
    lines = sorted(line.split("] ")[-1] for line in result.text.splitlines() if "hello" in line)
    ring.check(result.code == 0 and lines == [f"rank {i} of 3, {i} of 3 here, hello" for i in range(3)],
               "trireme launch starts any program", str(result))
    for words in (["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], ["--nnodes=1:1", "--standalone", "--rdzv-endpoint=localhost:29400"],
                  ["--standalone", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]):
        result = r.run([r.program, "launch", *words, "--nproc-per-node=2", "--", str(script), "hello"])
        ring.check(result.code == 0 and result.text.count(" of 2 here, hello") == 2, f"torchrun's lines for one machine: {' '.join(words)}", str(result))
    count = lambda gpus: r.run([r.program, "launch", "--nproc_per_node", "gpu", "--print", "sbatch", "--", "true"],  # noqa: E731
                               env=ring.environment(CUDA_VISIBLE_DEVICES=gpus))
    two, none = count("0,1"), count("")
    auto = r.run([r.program, "launch", "--nproc_per_node", "auto", "--print", "sbatch", "--", "true"], env=ring.environment(CUDA_VISIBLE_DEVICES="0,1"))
    ring.check(auto.code == 0 and "which starts 2 ranks there" in auto.out, "and so is auto where there are GPUs", str(auto))
    ring.check(two.code == 0 and "which starts 2 ranks there" in two.out and none.code == 2 and "one rank for each GPU" in none.err,
               "--nproc_per_node gpu is one rank for each GPU", f"{two}\n{none}")
    result = r.run([r.program, "launch", "--nproc_per_node=2", *r.command("launched", train__max_steps=2)[1:]])
    ring.check(result.code == 2 and result.text.count("devices 1 on num_nodes 1 are not the 2 ranks") == 1,
               "devices must not contradict it, which is told once", str(result))
    command = r.command("launched", train__max_steps=2)[1:]
    del command[command.index("--devices"):command.index("--devices") + 2]
    refused = r.run([r.program, "launch", "--nproc_per_node=2", *command, "--out_dir", str(r.folder / "refused"), "--data.train_data_path", "nowhere.txt"])
    ring.check(refused.code == 2 and "nowhere.txt: there is no such file or folder" in refused.err and "reaching the store" not in refused.text,
               "launch: what rank 0 refuses stands alone", str(refused))
    result = r.run([r.program, "launch", "--nproc_per_node=2", *command])
    ring.check(result.code == 0 and "2 ranks  shm  " in result.out, "and its own subcommands", str(result))
    result = r.run([r.program, "launch", "--max_restarts", "2", "--nproc-per-node", "2", "--", "/bin/false"])
    ring.check(result.code == 1 and "restart 2 of 2" in result.err and "all 2 restarts are used up" in result.err,
               "a program that tells no step starts again as often as it may", str(result))
    page = " ".join(r.run([r.program, "launch", "--help"]).out.split())
    foreign = [word for word in ("out_dir", "num_nodes", "launch.", "has devices") if word in page]
    ring.check(not foreign, "launch --help names no setting that launch does not have", f"{foreign} {page}")
    unread = ("no_python", "rdzv_backend", "rdzv_id", "rdzv_conf", "monitor_interval", "start_method", "role", "redirects", "tee", "local_ranks_filter", "local_addr", "m", "r", "t")
    silent = [name for name in unread if not re.search(rf"--{name} [^-]*\] accepted, without effect: ", page)]
    ring.check(not silent and "without it, all ranks are shown" in page, "and says which options have no effect", f"{silent} {page}")
    for words, sentence in [
            (["--nproc_per_node", "two", "--", "true"], "nproc_per_node wants a whole number or auto, not 'two'"),
            (["--nproc_per_nod", "2", "--", "true"], "the nearest is nproc_per_node"),
            (["--zzzzzzzzzz", "2", "--", "true"], "trireme launch --help lists its settings"),
            (["--mixed_precision", "bf16", "--", "true"], "it is an option of accelerate launch; give precision behind --"),
            (["--multi_gpu", "--", "true"], "it is an option of accelerate launch; give strategy behind --"),
            (["--nproc_per_node", "2"], "trireme launch needs a program"),
            (["--nproc_per_node", "2", "no-such-program"], "no-such-program"),
            (["--nnodes", "1:4", "--", "true"], "--nnodes 1:4 needs --rdzv_endpoint HOST:PORT"),
            (["--nnodes", "2", "--node_rank", "0", "--master_addr", "localhost", "--", "true"], "localhost is a loopback address"),
            (["--nnodes", "2", "--node_rank", "0", "--", "true"], "must be the address of machine 0"),
            (["--nnodes", "2", "--rdzv_endpoint", "localhost:0", "--", "true"], "localhost:0 means any free port, which the other machines cannot know"),
            (["--standalone", "--nnodes", "2", "--", "true"], "--standalone is for one machine")]:
        result = r.run([r.program, "launch", *words])
        ring.check(result.code == 2 and sentence in result.err, f"refused: {' '.join(words)}", str(result))


def torchruns_variables_are_defaults(r):
    """As Kubernetes' training operator sets them."""
    def launch(*words, **variables):
        return r.run([r.program, "launch", *words, "--", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE, here $LOCAL_WORLD_SIZE"],
                     env=ring.environment(**{f"PET_{name}": value for name, value in variables.items()}))
    one_machine = {"NNODES": "1:1", "RDZV_BACKEND": "c10d", "RDZV_ENDPOINT": "localhost:0", "MASTER_ADDR": "", "MAX_RESTARTS": "1"}
    result = launch(NPROC_PER_NODE="2", ROLE="trainer", RDZV_ID="job", NO_PYTHON="1", TEE="0", **one_machine)
    ring.check(result.code == 0 and result.text.count(" of 2, here 2") == 2, "PET_NPROC_PER_NODE and others are defaults of trireme launch", str(result))
    told = [f"PET_{name} has no effect: " in result.err for name in ("ROLE", "RDZV_ID", "NO_PYTHON", "TEE", "NNODES")]
    ring.check(told == [True, True, True, False, False], "and those that have no effect are told", str(result))
    result = launch("--nproc-per-node=3", "--standalone", NPROC_PER_NODE="2", NNODES="4", NODE_RANK="1", RDZV_ENDPOINT="host-a:29400")
    ring.check(result.code == 0 and result.text.count(" of 3, here 3") == 3, "typed words count more", str(result))
    result = launch(STANDALONE="1", NPROC_PER_NODE="2")
    ring.check(result.code == 0 and result.text.count(" of 2, here 2") == 2, "a flag is 1 or 0", str(result))
    for words, variables, sentence in [
            ([], {"NPROC_PER_NODE": "two"}, "environment: PET_NPROC_PER_NODE=two"),
            ([], {"RDZV_BACKEND": "etcd"}, "environment: PET_RDZV_BACKEND=etcd"),
            ([], {"NNODES": "some"}, "PET_NNODES=some is not a number of machines"),
            (["--nnodes", "2"], {"STANDALONE": "1"}, "PET_STANDALONE=1 is for one machine, and --nnodes 2 is not"),
            ([], {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "localhost"}, "localhost is a loopback address")]:
        result = launch(*words, **variables)
        ring.check(result.code == 2 and sentence in result.err, f"refused: {sentence}", str(result))


with ring.Ring(sys.argv[1]) as r:
    torchruns_variables_are_defaults(r)
    other_programs_are_launched(r)
    a_run_that_never_named_itself_starts_anew(r)
    lost_ranks_cost_nothing(r)
    one_rank_starts_again(r)
    a_restart_goes_on_from_its_own_checkpoints(r)
    a_restart_passes_over_a_damaged_checkpoint(r)
