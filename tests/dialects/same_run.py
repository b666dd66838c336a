"""The same small run in the words of every system: the same losses and gradient norms, to the bit.

same_run.py TRIREME
DeepSpeed's JSON with stages 0 to 3, Accelerate's FSDP (also with `launch --config_file`) and its DeepSpeed file, LitGPT's
YAML and flags, free-transformer's YAML, Hydra's overrides, and what convert_config makes of each file. Two machines
(network namespaces) train from the file that Accelerate's page prints for two machines.
"""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
import namespaces
import ring

# What no system's file says: the model's size, the data and the length.
SHAPE = [f"--model.{key}={value}" for key, value in ring.LLAMA.items()]
REST = ["--data=TextFiles", "--train.max_seq_length=32", "--train.max_steps=4", "--launch.threads_per_rank=1",
        "--eval.final_validation=false", "--comm.timeout=60s"]
OPTIMIZER = ["--optimizer=AdamW", "--optimizer.lr=2e-3", "--optimizer.betas=[0.9,0.95]", "--optimizer.weight_decay=0.1",
             "--train.lr_warmup_steps=0", "--train.lr_decay=constant", "--train.max_norm=1.0"]
BATCH = ["--train.global_batch_size=8", "--train.micro_batch_size=2"]
FP32 = ["--precision=32-true"]
DEVICES = ["--devices=2"]

DEEPSPEED = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
             "gradient_clipping": 1.0, "fp16": {"enabled": False},
             "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}}
FSDP = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: 'no'
num_machines: 1
num_processes: 2
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_forward_prefetch: true}
"""
LITGPT = """model_name: llama-5m
precision: 32-true
devices: 2
optimizer:
  class_path: torch.optim.AdamW
  init_args: {lr: 2e-3, betas: [0.9, 0.95], weight_decay: 0.1}
train: {global_batch_size: 8, micro_batch_size: 2, lr_warmup_steps: 0, max_norm: 1.0, lr_decay: constant}
"""
FREE = """distributed: {use_fsdp: true, fsdp_sharding_strategy: shard_grad_op, fsdp_param_dtype: float32}
training:
  batch_size: 2
  gradient_accumulation_steps: 2
  learning_rate: 2e-3
  weight_decay: 0.1
  beta1: 0.9
  beta2: 0.95
  grad_clip: 1.0
  warmup_steps: 0
  lr_scheduler_type: constant
"""
HYDRA = ["model.mesh_shape=[[2,1],[fsdp,tp]]", "training.micro_batch_size=4", "training.gradient_accumulation_steps=2",
         "training.mixed_precision=no", "optimizer.learning_rate=2e-3", "optimizer.beta1=0.9", "optimizer.beta2=0.95",
         "optimizer.weight_decay=0.1", "optimizer.max_grad_norm=1.0", "--train.lr_warmup_steps=0", "--train.lr_decay=constant"]
TWO_MACHINES = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
num_machines: 2
num_processes: 2
machine_rank: {rank}
main_process_ip: 10.77.32.1
main_process_port: 29751
mixed_precision: 'no'
"""


def curve(folder):
    return [(row["loss"], row["grad_norm"]) for row in ring.metrics(folder).values()]


class Runs:
    def __init__(self, r):
        self.ring, self.wanted = r, None

    def file(self, name, text):
        path = self.ring.folder / name
        path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
        return str(path)

    def command(self, name, words, before=("pretrain", "llama-5m")):
        return [self.ring.program, *before, *SHAPE, *REST, f"--data.train_data_path={self.ring.text}",
                f"--out_dir={self.ring.folder / name}", *words]

    def same(self, name, words, before=("pretrain", "llama-5m")):
        result = self.ring.run(self.command(name, words, before))
        ring.require(result.code == 0, f"{name}: the run succeeds", str(result))
        found = curve(self.ring.folder / name)
        ring.check(len(found) == 4 and found == self.wanted, f"{name}: the losses and norms of Trireme's own settings, to the bit",
                   f"{found}\n{self.wanted}")

    def converted(self, name, words):
        result = self.ring.run([self.ring.program, "convert_config", "--overwrite", "--output", f"{name}-native.yaml", *words])
        ring.require(result.code == 0, f"{name}: convert_config writes it", str(result))
        text = (self.ring.folder / f"{name}-native.yaml").read_text()
        ring.check("overwrite" not in text, f"{name}: --overwrite is no setting of the run", text)
        if "model:" in text and "name: llama-5m" in text:
            self.same(f"{name}-native", ["--config", f"{name}-native.yaml"], ("pretrain",))
        else:
            self.same(f"{name}-native", ["--config", f"{name}-native.yaml", *[w for w in words[2:] if w.startswith("--")]])


def all_dialects(runs):
    r = runs.ring
    native = [*OPTIMIZER, *BATCH, *FP32, *DEVICES]
    result = r.run(runs.command("native", native))
    ring.require(result.code == 0, "Trireme's own settings train", str(result))
    runs.wanted = curve(r.folder / "native")
    for stage in range(4):
        path = runs.file(f"ds{stage}.json", DEEPSPEED | {"zero_optimization": {"stage": stage}})
        runs.same(f"deepspeed-{stage}", ["--config", path, *DEVICES])
        if stage == 2:
            runs.converted(f"deepspeed-{stage}", ["--config", path, *DEVICES])
    path = runs.file("ds3.json", DEEPSPEED | {"zero_optimization": {"stage": 3}})
    runs.same("deepspeed-option", ["--deepspeed", "--deepspeed_config", path, *DEVICES])
    runs.same("deepspeed-launched", ["--config", path], ("launch", "--nproc_per_node=2", "pretrain", "llama-5m"))
    fsdp = runs.file("fsdp.yaml", FSDP)
    runs.same("accelerate", ["--config", fsdp, *OPTIMIZER, *BATCH])
    runs.converted("accelerate", ["--config", fsdp, *OPTIMIZER, *BATCH])
    runs.same("accelerate-launch", [*OPTIMIZER, *BATCH], ("launch", "--config_file", fsdp, "--", "pretrain", "llama-5m"))
    eight = runs.file("eight.yaml", FSDP.replace("num_processes: 2", "num_processes: 8"))
    for name, words in {"processes": ["--num_processes", "2"], "ranks": ["--nproc_per_node", "2"]}.items():
        runs.same(f"accelerate-launch-{name}", [*OPTIMIZER, *BATCH], ("launch", "--config_file", eight, *words, "--", "pretrain", "llama-5m"))
    machines = runs.file("machines.yaml", FSDP.replace("num_machines: 1", "num_machines: 4").replace("num_processes: 2", "num_processes: -1"))
    runs.same("accelerate-launch-machines", [*OPTIMIZER, *BATCH],
              ("launch", "--config_file", machines, "--num_machines", "1", "--num_processes", "2", "--", "pretrain", "llama-5m"))
    one = runs.file("no.yaml", "distributed_type: 'NO'\nnum_processes: 8\nmixed_precision: 'no'\n")
    runs.same("accelerate-launch-one", [*OPTIMIZER, *BATCH],
              ("launch", "--config_file", one, "--num_processes", "2", "--", "pretrain", "llama-5m"))
    named = runs.file("named.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\n"
                      f"deepspeed_config: {{deepspeed_config_file: {path}, zero3_init_flag: true}}\n")
    runs.same("accelerate-deepspeed", ["--config", named])
    litgpt = runs.file("litgpt.yaml", LITGPT)
    runs.same("litgpt-file", ["--config", litgpt], ("pretrain",))
    runs.converted("litgpt", ["--config", litgpt])
    runs.same("litgpt-flags", ["--optimizer", "torch.optim.AdamW", "--train.learning_rate", "2e-3", "--optimizer.betas", "[0.9,0.95]",
                               "--optimizer.weight_decay", "0.1", "--train.lr_warmup_steps", "0", "--train.lr_decay", "constant",
                               "--train.max_norm", "1.0", "--strategy", "fsdp", "--compiler", "thunder", *BATCH, *FP32, *DEVICES])
    free = runs.file("free.yaml", FREE)
    runs.same("free-transformer", ["--config", free, *DEVICES])
    runs.converted("free-transformer", ["--config", free, *DEVICES])
    runs.same("hydra", HYDRA)


def two_machines(runs):
    r = runs.ring
    if why := namespaces.why_not():
        print(f"not shown here: two machines ({why})")
        return
    with namespaces.namespaces(2) as names, namespaces.cable(names, ["10.77.32.1", "10.77.32.2"]):
        jobs = []
        for rank, name in enumerate(names):
            path = runs.file(f"machine{rank}.yaml", TWO_MACHINES.format(rank=rank))
            command = runs.command("machines", [*OPTIMIZER, *BATCH, "--comm.tls=false"],
                                   ("launch", "--config_file", path, "--", "pretrain", "llama-5m"))
            log = open(r.folder / f"machine{rank}.txt", "w")
            jobs.append(subprocess.Popen(["ip", "netns", "exec", name, *command], stdout=log, stderr=subprocess.STDOUT,
                                         stdin=subprocess.DEVNULL, cwd=r.folder, env=ring.environment(TRIREME_HOST_ID=name)))
        codes = [job.wait(120) for job in jobs]
        said = "".join((r.folder / f"machine{rank}.txt").read_text() for rank in (0, 1))
        ring.check(codes == [0, 0], "two machines train from Accelerate's file for two machines", said)
        ring.check(curve(r.folder / "machines") == runs.wanted, "with the same losses and norms, to the bit", said)


def explained(runs):
    r = runs.ring
    path = runs.file("told.json", DEEPSPEED | {"zero_optimization": {"stage": 2, "round_robin_gradients": True}, "wandb": {"enabled": True}})
    result = r.run([r.program, "explain", "config", "llama-5m", "--config", path, *DEVICES])
    ring.require(result.code == 0, "explain config reads the file", str(result))
    for line in ["zero_optimization.stage", "strategy shard_grad_op", "wandb.enabled", "ignored: metrics are always in out_dir",
                 "as Trireme's YAML", "told.json:2 "]:
        ring.require(line in result.out, f"explain config says {line}", result.out)
    ring.check(True, "explain config says what became of each key, and the YAML")


with ring.Ring(sys.argv[1]) as r:
    runs = Runs(r)
    all_dialects(runs)
    explained(runs)
    two_machines(runs)
