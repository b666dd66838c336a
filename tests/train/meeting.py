"""Ranks that another launcher starts: rank 0 may come late, for it reads the data first, and so may the others; a rank whose
partner never comes still ends as it is asked to. Ranks with other settings than rank 0 are refused.

meeting.py TRIREME
"""

import fcntl
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import ring

TIMEOUT = 4  # comm.timeout of the rank that waits, s: less than rank 0 takes to come


class Ranks:
    def __init__(self, r, out, **settings):
        self.r, self.out, self.settings = r, out, settings
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    def start(self, rank, **settings):
        return self.start_command(rank, self.r.command(self.out, devices=2, **(self.settings | settings)))

    def start_command(self, rank, command):
        env = ring.environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port))
        with open(self.log(rank), "w") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.r.folder,
                                    stdin=subprocess.DEVNULL, env=env)

    def log(self, rank):
        return self.r.folder / f"{self.out}-{rank}.txt"


def takes_signals(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("SigCgt:")[1].split()[0], 16) >> (signal.SIGTERM - 1) & 1


def code_of(process, timeout):
    try:
        return process.wait(timeout=timeout)
    except subprocess.TimeoutExpired:
        return "none: it still runs"


def rank_zero_may_come_late(r, how, **settings):
    ranks = Ranks(r, f"late-{how}", train__max_steps=2, **settings)
    second = ranks.start(1, comm__timeout=f"{TIMEOUT}s")
    ring.wait_for(lambda: "waiting for rank 0" in ranks.log(1).read_text() or second.poll() is not None, "a word on what it waits for")
    time.sleep(TIMEOUT)  # from here on its limit for collectives is over
    ring.require(second.poll() is None, f"{how}: the other waits for longer than comm.timeout", ranks.log(1).read_text())
    first = ranks.start(0)
    codes = [code_of(p, 90) for p in (first, second)]
    ring.check(codes == [0, 0], f"{how}: a rank 0 that comes after comm.timeout is met",
               f"{codes}\n{ranks.log(0).read_text()}{ranks.log(1).read_text()}")


def the_others_may_come_late(r, **settings):
    ranks = Ranks(r, "late-others", train__max_steps=2, **settings)
    first = ranks.start(0, comm__timeout=f"{TIMEOUT}s")
    ring.wait_for(lambda: "waiting for rank 1" in ranks.log(0).read_text() or first.poll() is not None, "a word on whom rank 0 waits for")
    time.sleep(TIMEOUT)
    ring.require(first.poll() is None, "rank 0 waits for longer than comm.timeout", ranks.log(0).read_text())
    second = ranks.start(1)
    codes = [code_of(p, 90) for p in (first, second)]
    ring.check(codes == [0, 0], "a rank that comes to rank 0 after comm.timeout is met", f"{codes}\n{ranks.log(0).read_text()}{ranks.log(1).read_text()}")
    first = Ranks(r, "alone", launch__join_timeout="1s", **settings).start(0)
    code, said = code_of(first, 30), (r.folder / "alone-0.txt").read_text()
    ring.check(code == 1 and said.count("rank 1 has not come within 1.0s") == 1, "one that does not come within launch.join_timeout is named", f"{code}\n{said}")


def a_lone_rank_ends_as_asked(r, rank, how, **settings):
    """Its partner never comes; comm.timeout is 60 s, launch.join_timeout 10 minutes."""
    ranks = Ranks(r, f"lone-{rank}-{how}", launch__grace="3s", **settings)
    process = ranks.start(rank)
    ring.wait_for(lambda: takes_signals(process) or process.poll() is not None, "a rank that takes signals")
    process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    code, took = code_of(process, 40), time.monotonic() - begin
    ring.check(code == 75, f"rank {rank} alone, {how}: SIGTERM, exit code 75 {took:.1f} s later", f"{code}\n{ranks.log(rank).read_text()}")


def a_refusal_reaches_all(r, out, sentence, what, **settings):
    """What rank 0 alone looks at: launch.join_timeout is 10 minutes."""
    ranks = Ranks(r, out, train__max_steps=2, **settings)
    begin = time.monotonic()
    processes = [ranks.start(rank) for rank in (0, 1)]
    codes = [code_of(p, 30) for p in processes]
    took = time.monotonic() - begin
    said = [ranks.log(rank).read_text() for rank in (0, 1)]
    ring.check(codes == [2, 2] and all(sentence in text for text in said) and "rank 0 was refused: " in said[1] and took < 15,
               f"ranks that are started by hand are all refused, {took:.1f} s: {what}", f"{codes} {said}")


def refusals_reach_all(r, **known):
    r.train("finished", train__max_steps=1)
    a_refusal_reaches_all(r, "finished", "holds checkpoints of another run", "a finished run's folder")
    missing = r.folder / "missing.txt"
    a_refusal_reaches_all(r, "no-text", "missing.txt", "a text that is not there", data__train_data_path=missing)
    a_refusal_reaches_all(r, "no-text-token", "missing.txt", "the same with a token file", data__train_data_path=missing, **known)
    ring.check(not (r.folder / "no-text").exists(), "and leave no folder", str(r.folder))
    held = r.folder / "held"
    held.mkdir()
    with open(held / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        a_refusal_reaches_all(r, "held", "is in use by another job", "another job's folder")


def all_are_refused(r, processes, texts, sentence, what):
    begin = time.monotonic()
    codes = [code_of(p, 60) for p in processes]
    took, said = time.monotonic() - begin, [text() for text in texts]
    ring.check(codes == [2, 2] and all(sentence in text for text in said) and took < 25, f"{what}, {took:.1f} s", f"{codes} {said}")


def other_files_are_refused(r, token_file):
    """Those that generate and evaluate read on every rank."""
    run = r.folder / "finished"
    for what, suffix, contents, words in [
            ("evaluate.text", "txt", ["a text of one rank", "a text of another"], ["evaluate", run, "--text"]),
            ("evaluate.score", "jsonl", ['{"text": "one"}\n', '{"text": "two"}\n'], ["evaluate", run, "--score"]),
            ("generate.prompts", "jsonl", ['{"prompt": "one"}\n', '{"prompt": "two"}\n'],
             ["generate", run, "--output", r.folder / "other-texts.jsonl", "--max_new_tokens", "2", "--prompts"])]:
        ranks = Ranks(r, f"other-{what}")
        files = [r.folder / f"{what}-{rank}.{suffix}" for rank in (0, 1)]
        for file, content in zip(files, contents):
            file.write_text(content)
        processes = [ranks.start_command(rank, [r.program, *words, files[rank], "--devices", "2", "--launch.token_file", token_file])
                     for rank in (0, 1)]
        all_are_refused(r, processes, [ranks.log(rank).read_text for rank in (0, 1)], f"rank 1 has {what} ", f"another {what} on one rank is refused")


def other_rules_of_a_task_are_refused(r, token_file):
    """The same rows with the same prompts and targets: only what becomes of an answer differs."""
    (r.folder / "rows.jsonl").write_text('{"question": "one", "answer": "1"}\n{"question": "two", "answer": "2"}\n')
    task = "doc_to_text: question\ndoc_to_target: answer\ndataset_path: json\ndataset_kwargs: {data_files: %s}\n" % (r.folder / "rows.jsonl")
    filters = "generation_kwargs: {max_gen_toks: 4}\nfilter_list:\n- name: first\n  filter:\n  - {function: regex, regex_pattern: '%s'}\n"
    ranks = Ranks(r, "other-rules")
    processes = []
    for rank, pattern in enumerate(("[0-9]", "[0-9]+")):
        file = r.folder / f"task-{rank}.yaml"
        file.write_text(task + filters % pattern)
        processes.append(ranks.start_command(rank, [r.program, "evaluate", str(r.folder / "finished"), "--tasks", f"mine={file}", "--devices", "2",
                                                    "--launch.token_file", str(token_file)]))
    all_are_refused(r, processes, [ranks.log(rank).read_text for rank in (0, 1)], "rank 1 has the rules of mine ", "other filters of a task on one rank are refused")


def other_weights_are_refused(r):
    """A model to start from, an adapter, a reference: folders, of which each machine has its own."""
    newest = lambda folder: folder / ring.step_folders(folder)[-1]
    tiny = {"model": {}, "train__max_steps": 1}
    models = [newest(r.train(f"model-{seed}", train__max_steps=1, seed=seed)) for seed in (1, 2)]
    on = lambda folder, command: [str(folder) if word == "llama-5m" else word for word in command]
    adapters = []
    for name, settings in (("adapter-1", {"seed": 1}), ("adapter-2", {"seed": 2}), ("adapter-of-rank-4", {"lora__r": 4})):
        result = r.run(on(models[0], r.command(name, **(tiny | {"lora__r": 2} | settings))))
        ring.require(result.code == 0, f"{name} is trained", str(result))
        adapters.append(newest(r.folder / name))
    pairs, prompts = r.folder / "pairs.jsonl", r.folder / "prompts.jsonl"
    pairs.write_text("".join(f'{{"prompt": "{word}", "chosen": " yes", "rejected": " no"}}\n' for word in ring.WORDS))
    prompts.write_text("".join(f'{{"prompt": "{word}", "answer": "e"}}\n' for word in ring.WORDS))
    dpo = ["finetune_dpo", str(models[0]), "--data", "JSON", "--data.json_path", str(pairs), "--train.max_seq_length", "64", "--train.global_batch_size", "4"]
    grpo = ["grpo", str(models[0]), "--grpo.prompts", str(prompts), "--grpo.batch_size", "4", "--grpo.num_generations", "2", "--grpo.max_prompt_length", "16",
            "--grpo.max_completion_length", "8", "--reward.functions", "exact", "--grpo.beta", "0.1"]
    more = ["--devices", "2", "--train.max_steps", "1", "--precision", "32-true", "--launch.threads_per_rank", "1"]
    begun = lambda rank, out, folder, *words: on(folder, r.command(out, **tiny, devices=2)) + [*map(str, words)]
    text = r.folder / "finished.txt"
    text.write_text("a text of both")
    for out, sentence, command in [
            ("weights", "rank 1 has the model's weights ", lambda rank, out: begun(rank, out, models[rank])),
            ("adapter", "rank 1 has lora.initial_adapter ", lambda rank, out: begun(rank, out, models[0], "--lora.initial_adapter", adapters[rank])),
            ("rank-of-adapter", "rank 1 has the adapter's configuration ",
             lambda rank, out: begun(rank, out, models[0], "--lora.initial_adapter", adapters[2 * rank])),
            ("dpo", "rank 1 has the reference's weights ",
             lambda rank, out: [r.program, *dpo, *more, "--out_dir", str(r.folder / out), "--dpo.reference", str(models[rank])]),
            ("grpo", "rank 1 has the reference's weights ",
             lambda rank, out: [r.program, *grpo, *more, "--out_dir", str(r.folder / out), "--grpo.reference", str(models[rank])]),
            ("evaluate", "rank 1 has the adapter ",
             lambda rank, out: [r.program, "evaluate", str(models[0]), "--adapter", str(adapters[rank]), "--text", str(text), "--devices", "2"])]:
        ranks = Ranks(r, f"unlike-{out}")
        processes = [ranks.start_command(rank, command(rank, f"unlike-{out}")) for rank in (0, 1)]
        all_are_refused(r, processes, [ranks.log(rank).read_text for rank in (0, 1)], sentence, f"{out}: another folder on one rank is refused")
        ring.require("give every machine the same files" in ranks.log(0).read_text(), "with the way out", ranks.log(0).read_text())
    copy = shutil.copytree(adapters[0], r.folder / "copy-of-the-adapter")
    ranks = Ranks(r, "copied")
    processes = [ranks.start_command(rank, begun(rank, "copied", models[0], "--lora.initial_adapter", (adapters[0], copy)[rank])) for rank in (0, 1)]
    codes = [code_of(p, 60) for p in processes]
    ring.check(codes == [0, 0], "a copy of an adapter is the same adapter", f"{codes} {ranks.log(0).read_text()}{ranks.log(1).read_text()}")


def other_settings_are_refused(r):
    """Of ranks that are started by hand, and of two launchers. launch.join_timeout is 10 minutes."""
    other_text = r.folder / "other.txt"
    other_text.write_text(r.text.read_text()[100:] + " and a few words more")
    for out, changes, sentence in [("text", {"data__train_data_path": other_text}, "rank 1 has the data "),
                                   ("lr", {"optimizer__lr": 2e-3}, " has optimizer.lr 0.002, rank 0 has 0.003; start every machine with the same settings"),
                                   ("steps", {"train__max_steps": 3, "data__seed": 7}, " has data.seed 7, rank 0 has 42; and train.max_steps 3, rank 0 has 2; "),
                                   ("strategy", {"strategy": "zero1"}, " has strategy zero1, rank 0 has full_shard; "),
                                   ("path to a text, where none is", {"data__train_data_path": r.folder / "nowhere.txt"}, "nowhere.txt"),
                                   ("invalid", {"train__micro_batch_size": 3}, "rank 1 was refused: "),
                                   ("unknown", {"train__max_stepz": 3}, "rank 1 was refused: unknown setting train.max_stepz")]:
        ranks = Ranks(r, f"other-{out.split()[0]}", train__max_steps=2)
        processes = [ranks.start(0), ranks.start(1, **changes)]
        heard = {"invalid": "micro_batch_size", "unknown": "unknown setting train.max_stepz"}.get(out, sentence)
        all_are_refused(r, processes, [ranks.log(rank).read_text for rank in (0, 1)], heard, f"ranks by hand, one with another {out}, are refused")
        ring.require(sentence in ranks.log(0).read_text(), "rank 0 hears the reason", ranks.log(0).read_text())
    held_out = [r.folder / "held-out-0.txt", r.folder / "held-out-1.txt"]
    held_out[0].write_text(r.text.read_text())
    held_out[1].write_text(r.text.read_text()[::-1])
    ranks = Ranks(r, "other-held-out", train__max_steps=2)
    processes = [ranks.start(rank, data__val_data_path=held_out[rank]) for rank in (0, 1)]
    all_are_refused(r, processes, [ranks.log(rank).read_text for rank in (0, 1)], "rank 1 has held-out data ",
                    "ranks by hand, one with other held-out data of the same length, are refused")
    address = ring.own_address()
    if not address:
        return print("left out: two launchers (no network)")
    for out, changes, variables, sentence in [
            ("lr", {"optimizer__lr": 2e-3}, {}, "rank 1 (h1) has optimizer.lr 0.002, rank 0 has 0.003; "),
            ("decay", {}, {"TRIREME_OPTIMIZER_WEIGHT_DECAY": "0.5"}, "rank 1 (h1) has optimizer.weight_decay 0.5, rank 0 has auto; "),
            ("interval", {"train__save_interval": 7}, {}, "rank 1 (h1) has train.save_interval 7, rank 0 has 1000; ")]:
        with socket.socket() as s:
            s.bind(("0.0.0.0", 0))
            port = s.getsockname()[1]
        processes, logs = [], []
        for node in (0, 1):
            command = r.command(f"machines-{out}", num_nodes=2, launch__node_rank=node, launch__master_addr=address, launch__master_port=port,
                                train__max_steps=2, **(changes if node else {}))
            logs.append(r.folder / f"machines-{out}-{node}.txt")
            with open(logs[node], "w") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=r.folder, stdin=subprocess.DEVNULL,
                                                  env=ring.environment(TRIREME_HOST_ID=f"h{node}", **(variables if node else {}))))
        all_are_refused(r, processes, [log.read_text for log in logs], sentence, f"two launchers, one with another {out}, are refused")


with ring.Ring(sys.argv[1]) as r:
    token = r.folder / "token"
    token.write_text("5b1c9e0f7a2d48836cf04b9a1e7d25f83b60c4ad918e2f57")
    token.chmod(0o600)
    known = {"launch__token_file": token}
    refusals_reach_all(r, **known)
    other_settings_are_refused(r)
    other_files_are_refused(r, token)
    other_rules_of_a_task_are_refused(r, token)
    other_weights_are_refused(r)
    a_lone_rank_ends_as_asked(r, 1, "meeting_file")
    a_lone_rank_ends_as_asked(r, 1, "token_file", **known)
    for backend in ("auto", "gloo"):
        a_lone_rank_ends_as_asked(r, 0, backend, **known, comm__backend=backend)
    rank_zero_may_come_late(r, "meeting_file")
    rank_zero_may_come_late(r, "token_file", **known)
    the_others_may_come_late(r, **known)
