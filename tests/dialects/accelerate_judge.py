"""Accelerate's own reader of its files agrees with ours on ranks, machines, precision, strategy, prefetch, wrapping and batch.

accelerate_judge.py TRIREME
Files are drawn at random from the keys that `accelerate config` writes. Accelerate reads each as `accelerate launch`
does (its parser, its defaults, its environment, its FSDP plugin); ours is read from what convert_config writes.
Every key of its parser is on docs/dialects.md. TRIREME_SLOW=1 draws 200 files.
"""

import os
import random
import sys

os.environ.update(ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1")
import judging
import ring

accelerate, yaml = ring.judges("accelerate", "yaml")
from accelerate.commands import launch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env

STRATEGIES = {"FULL_SHARD": "full_shard", "SHARD_GRAD_OP": "shard_grad_op", "NO_SHARD": "no_shard",
              "HYBRID_SHARD": "hybrid_shard", "HYBRID_SHARD_ZERO2": "hybrid_shard_zero2", "_HYBRID_SHARD_ZERO2": "hybrid_shard_zero2"}
ZERO = ["no_shard", "zero1", "shard_grad_op", "full_shard"]
PRECISION = {"no": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
OWN_MAPS = ("fsdp_", "megatron_lm_", "parallelism_config_")


def fsdp_file(draw):
    version = draw.choice([1, 2])
    keys = {"fsdp_version": version, "fsdp_offload_params": False, "fsdp_cpu_ram_efficient_loading": False,
            "fsdp_auto_wrap_policy": draw.choice(["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP"]),
            "fsdp_activation_checkpointing": draw.choice([True, False]), "fsdp_state_dict_type": "SHARDED_STATE_DICT"}
    if keys["fsdp_auto_wrap_policy"] == "SIZE_BASED_WRAP" and draw.random() < 0.7:
        keys["fsdp_min_num_params"] = draw.choice([1000, 100000, 20000000])
    if version == 1:
        keys |= {"fsdp_sharding_strategy": draw.choice(list(STRATEGIES)[:4]), "fsdp_use_orig_params": True,
                 "fsdp_sync_module_states": False}
        if draw.random() < 0.7:
            keys["fsdp_backward_prefetch"] = draw.choice(["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"])
        if draw.random() < 0.5:
            keys["fsdp_forward_prefetch"] = draw.choice([True, False])
    elif draw.random() < 0.8:
        keys["fsdp_reshard_after_forward"] = draw.choice([True, False])
    return {"distributed_type": "FSDP", "fsdp_config": keys}


def deepspeed_file(draw):
    keys = {"zero_stage": draw.choice([0, 1, 2, 3]), "offload_optimizer_device": "none", "offload_param_device": "none",
            "zero3_init_flag": draw.choice([True, False])}
    if draw.random() < 0.7:
        keys["gradient_accumulation_steps"] = draw.choice([1, 2, 4])
    if draw.random() < 0.7:
        keys["gradient_clipping"] = draw.choice([0.5, 1.0])
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": keys}


def one_file(draw):
    machines = draw.choice([1, 1, 2])
    tree = {"compute_environment": "LOCAL_MACHINE", "num_machines": machines, "num_processes": machines * draw.choice([2, 4]),
            "machine_rank": draw.randrange(machines), "mixed_precision": draw.choice(["no", "bf16", "fp16"]), "use_cpu": False,
            "main_training_function": "main", "rdzv_backend": "static", "same_network": True, "downcast_bf16": "no"}
    if machines > 1:
        tree |= {"main_process_ip": "10.0.0.1", "main_process_port": draw.choice([29500, 29501])}
    kind = draw.choice([fsdp_file, fsdp_file, deepspeed_file, lambda _: {"distributed_type": "MULTI_GPU"}])
    return tree | kind(draw)


def what_accelerate_reads(path):
    arguments = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    arguments, _, _ = launch._validate_launch_command(arguments)
    found = {"devices": arguments.num_processes // arguments.num_machines, "num_nodes": arguments.num_machines,
             "precision": PRECISION[str(arguments.mixed_precision)]}
    if arguments.num_machines > 1:
        found |= {"launch.node_rank": int(arguments.machine_rank), "launch.master_addr": arguments.main_process_ip,
                  "launch.master_port": int(arguments.main_process_port)}
    if arguments.use_deepspeed:
        found["strategy"] = ZERO[int(arguments.zero_stage)]
        steps = int(arguments.gradient_accumulation_steps or 1)
        found["train.global_batch_size"] = 4 * steps * arguments.num_processes  # of micro-batches of 4
        if arguments.gradient_clipping:
            found["train.max_norm"] = float(arguments.gradient_clipping)
    elif arguments.use_fsdp:
        prefixes = ("FSDP_", "ACCELERATE_")
        for name in [name for name in os.environ if name.startswith("FSDP_")]:
            del os.environ[name]
        os.environ |= {k: v for k, v in prepare_multi_gpu_env(arguments).items() if k.startswith(prefixes)}
        plugin = FullyShardedDataParallelPlugin()
        if plugin.fsdp_version == 2:
            found["strategy"] = "full_shard" if plugin.reshard_after_forward else "shard_grad_op"
        else:
            found["strategy"] = STRATEGIES[plugin.sharding_strategy.name]
            if plugin.backward_prefetch is not None and "fsdp_backward_prefetch" in path.read_text():
                found["schedule.prefetch_backward"] = plugin.backward_prefetch.name.lower().replace("backward_", "")
            if "fsdp_forward_prefetch" in path.read_text():
                found["schedule.prefetch_forward"] = plugin.forward_prefetch
        if found["strategy"] == "hybrid_shard" and arguments.num_machines == 1:
            found["strategy"] = "full_shard"  # inside one machine
        found["recompute"] = "full" if plugin.activation_checkpointing else "none"
        if "SIZE_BASED" in path.read_text():
            found["wrap.min_num_params"] = int(arguments.fsdp_min_num_params)
    else:
        found["strategy"] = "no_shard"
    return found


def keys():
    """As a file has them: the parser's options by their maps, and the fields of a file."""
    from accelerate.commands.config.config_args import ClusterConfig

    for action in launch.launch_command_parser()._actions:
        for head in OWN_MAPS:
            if action.dest.startswith(head):
                yield {"fsdp_": "fsdp_config.", "megatron_lm_": "megatron_lm_config.", "parallelism_config_": "parallelism_config."}[head] + action.dest
    yield from ClusterConfig.__dataclass_fields__


with ring.Ring(sys.argv[1]) as r:
    judging.require_all_known("accelerate", sorted(set(keys())))
    draw = random.Random(24)
    compared = 0
    for number in range(judging.COUNT):
        path = r.folder / f"file{number}.yaml"
        path.write_text(yaml.safe_dump(one_file(draw)))
        theirs, ours = what_accelerate_reads(path), judging.what_we_read(r, "--config", str(path))
        ring.require(isinstance(ours, dict), f"{path.name} is accepted", f"{path.read_text()}\n{ours}")
        compared += judging.compare(ours, theirs, path)
    ring.check(True, f"Accelerate {accelerate.__version__} and Trireme agree on {compared} values of {judging.COUNT} files")
