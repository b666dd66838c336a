"""Whoever comes from PyTorch, LitGPT or torchrun and types what they are used to gets one sentence with the way out.

newcomer.py TRIREME
A table of commands: exit code, words that the answer holds, words that it must not hold. What settings alone say is
tests/settings/refusals_test.cpp's.
"""

import json
import os
import pty
import random
import subprocess
import sys

import ring

TINY = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 64}
UGLY = ("Traceback", "terminate called", "std::", "c10::", "Exception raised", "filesystem error", "json.exception")

# (arguments, exit code, words of the answer); {train} stands for a run of one step of a tiny model, {run} for its folder.
ANSWERS = [
    ("version", 0, ["trireme "]),
    ("--version", 0, ["trireme "]),
    ("help", 0, ["trireme pretrain"]),
    ("help pretrain", 0, ["--train.max_norm", "(or --max_restarts)"]),
    ("help generate", 0, ["--generate.prompt  (or --prompt)"]),
    ("help explain memory", 0, ["trireme explain memory", "--rank  whole number"]),
    ("help finetune_lora", 0, ["trireme finetune_lora FOLDER", "adapters of rank 8", "--lora.alpha", "[out/finetune/lora]", "[0.0002]", "[16 sequences]", "[best_fit]"]),
    ("help finetune_dpo", 0, ["[preferences]", "[out/finetune/dpo]", "[1e-6]", "[3 epochs]"]),
    ("help grpo", 0, ["[rewards]", "[out/grpo]", "[1e-6]", "[1 epoch]"]),
    ("bench scaling --help", 0, ["--bench.steps  (or --steps)  whole number of steps, at least 1  [5 steps]"]),
    ("help merge_lora", 0, ["trireme merge_lora ADAPTER [--base PATH]"]),
    ("merge_lora nowhere", 2, ["there is no folder nowhere"]),
    ("merge_lora " + 300 * "a", 2, ["cannot use aaa", "File name too long"]),
    ("report hang " + 300 * "a", 2, ["cannot use aaa", "File name too long"]),
    ("merge_lora {run} --base x", 2, ["holds no adapter", "adapter_config.json"]),
    ("generate {run} --base x", 2, ["--base says where an adapter's base lies", "is no adapter"]),
    ("generate {run} --adapter {run}", 2, ["holds no adapter"]),
    ("convert {run} merged --adapter nowhere", 2, ["there is no folder nowhere"]),
    ("train", 2, ["no subcommand train", "trireme pretrain"]),
    ("finetune_lora llama-5m --data.json_path chat.jsonl", 2, ["llama-5m has none", "trireme pretrain"]),
    ("finetune_lora llama-5m --lora_r 0", 2, ["lora.r must be at least 1 and at most 1,048,576, not 0"]),
    ("{train} --lora.r 4", 2, ["lora.r trains an adapter on existing weights, but llama-5m has none", "or leave lora.r out"]),
    ("finetune_adapter", 2, ["trireme finetune_lora FOLDER"]),
    ("finetune llama-5m --data.json_path chat.jsonl", 2, ["finetune_lora", "llama-5m has none"]),
    ("finetune_full llama-5m --data.json_path chat.jsonl", 2, ["llama-5m has none", "trireme pretrain"]),
    ("help finetune_full", 0, ["trireme finetune_full FOLDER", "5 epochs", "(or --max_restarts)"]),
    ("chat", 2, ["trireme generate CHECKPOINT --chat"]),
    ("serve", 2, ["there is no server", "trireme generate CHECKPOINT --chat"]),
    ("eval", 2, ["trireme evaluate"]),
    ("download meta-llama/Llama-3.2-1B", 2, ["nothing is downloaded"]),
    ("pretrian", 2, ["did you mean pretrain?"]),
    ("help pretrian", 2, ["did you mean pretrain?"]),
    ("help finetune", 0, ["trireme finetune_lora FOLDER"]),
    ("help optimizer.lr", 0, ["optimizer.lr"]),
    ("help train.learning_rat", 2, ["no setting or group of settings 'train.learning_rat'", "the learning rate is optimizer.lr"]),
    ("--config run.yaml", 2, ["settings follow a subcommand"]),
    ("''", 2, ["no subcommand ''"]),
    ("pretrain", 2, ["no model is named"]),
    ("explain memory", 2, ["no model is named; name a folder with a config.json behind the command, or for new weights a shape such as llama-5m"]),
    ("evaluate {run} --tasks piqaa=text.txt", 2, ["there is no task piqaa (did you mean piqa?)"]),
    ("{train} --dry_run true", 0, ["planned peak"]),
    ("{train} --dry_run true --out_dir run", 2, ["run holds checkpoints of another run"]),
    ("{train} --dry_run true --out_dir text.txt", 2, ["text.txt is a file"]),
    ("{train} --data.train_data_path . --out_dir inside", 2, ["out_dir inside lies in the folder of data.train_data_path"]),
    ("{train} --data.train_data_path . --out_dir inside --dry_run", 2, ["out_dir inside lies in the folder of data.train_data_path"]),
    ("pretrain meta-llama/Llama-3.2-1B --train.max_steps 1", 2, ["meta-llama/Llama-3.2-1B", "nothing is downloaded", "llama-3.2-1b"]),
    ("pretrain model.gguf --train.max_steps 1", 2, ["model.gguf is a file; make a model's folder of it: trireme convert model.gguf OUT"]),
    ("explain memory model.gguf", 2, ["model.gguf is a file; make a model's folder of it: trireme convert model.gguf OUT"]),
    ("plan model.safetensors", 2, ["model.safetensors is one safetensors file: name its folder, where config.json is"]),
    ("explain memory text.txt", 2, ["text.txt is a file, and a model is a folder with config.json and weights"]),
    ("generate model.gguf", 2, ["model.gguf is a file; make a model's folder of it: trireme convert model.gguf OUT"]),
    ("evaluate model.gguf --text text.txt", 2, ["model.gguf is a file; make a model's folder of it: trireme convert model.gguf OUT"]),
    ("checkpoint list model.gguf", 2, ["model.gguf is a file; make a model's folder of it: trireme convert model.gguf OUT"]),
    ("merge_lora model.gguf", 2, ["model.gguf is a file, and an adapter is a folder", "trireme convert model.gguf OUT makes one"]),
    ("{train} --resume model.gguf", 2, ["resume: model.gguf is a file; name a run's out_dir, or a checkpoint in it"]),
    ("pretrain LLAMA-5M --train.max_steps 1", 2, ["did you mean llama-5m?"]),
    ("pretrain run.yaml", 2, ["run.yaml is a file of settings", "--config run.yaml"]),
    ("convert_config ds_config.json --output made.yaml", 2, ["ds_config.json is a file of settings", "--config ds_config.json"]),
    ("convert_config --config run.yaml --output made.yaml", 0, ["wrote made.yaml"]),
    ("convert_config --config run.yaml --output made.yaml", 2, ["made.yaml is there already", "--overwrite true"]),
    ("convert_config --config run.yaml --output made.yaml --overwrite true", 0, ["wrote made.yaml"]),
    ("launch --nproc_per_node 2 convert {run} other", 2, ["trireme convert runs in one process"]),
    ("pretrain llama-5m --train.max_steps 1 --out_dir ~/x", 2, ["out_dir ~/x would be a folder of the name ~ here", "$HOME/x"]),
    ("pretrain llama-5m --train.max_steps 1 --out_dir s3://bucket/x", 2, ["out_dir s3://bucket/x is an address", "name a folder"]),
    ("merge_lora --adapter {run}", 2, ["holds no adapter"]),
    ("pretrain llama-5m --train.max_steps 1 --data TextFiles --data.train_data_path ids.bin --out_dir none", 2, ["ids.bin holds control characters", "is not read as text"]),
    ("finetune_lora {run} --data JSON --data.json_path records.jsonl", 2, ["records.jsonl:1: this is no conversation"]),
    ("convert_config --config run.yaml --output ./run.yaml", 2, ["--output ./run.yaml is a file that --config reads or names", "name another --output"]),
    ("convert_config --config accelerate.yaml --output ./ds.json", 2, ["--output ./ds.json is a file that --config reads or names", "name another --output"]),
    ("convert_config llama-5m --output made.yaml", 2, ["there is nothing to convert", "--config ds.json"]),
    ("pretrain --config ''", 2, ["--config needs the path of a YAML file"]),
    ("pretrain llama-5m --config /dev/stdin --devices 2 --train.max_steps 1", 2, ["the settings in /dev/stdin can be read once", "write them to a file"]),
    ("pretrain --config large.yaml", 2, ["large.yaml: it holds more than 1 MiB"]),
    ("pretrain llama-5m \u2014train.max_steps 1", 2, ["not two hyphens", "type --train.max_steps"]),
    ("pretrain llama-5m --train.max_time 5 minutes", 2, ["what is 'minutes'?", "a value with spaces stands in quotes"]),
    ("pretrain llama-5m --train.max_steps 3B", 2, ["train.max_steps wants a whole number", "3e9"]),
    ("pretrain llama-5m --train.max_steps 1e30", 2, ["train.max_steps must be at most 9,000,000,000,000,000,000, not 1e30"]),
    ("pretrain llama-5m --devices 1e30", 2, ["devices must be at least 1 and at most 100,000, not 1e30"]),
    ("data tokenize text.txt --data.tokenizer byte --output set", 0, []),
    ("data train_tokenizer text.txt --output tok --vocab_size 300", 0, []),
    ("data show several/a.txt --data.tokenizer byte --ids", 0, ["\u21b5 10]"]),
    ("data show text.txt --data.tokenizer of_bytes", 2, ["holds no tokenizer", "if the model reads bytes, as llama-5m does: --data.tokenizer byte"]),
    ("data show set --data.tokenizer tok", 2, ["set was tokenized with another tokenizer (byte) than --data.tokenizer tok (", "name the one it was made with"]),
    ("data tokenize text.txt --data.tokenizer byte --output more --data.mixture [text.txt]", 2,
     ["trireme data tokenize does not use data.mixture (command line)", "leave it out; it uses data, data.tokenizer"]),
    ("data show text.txt --data.tokenizer byte --max_documents 1", 2, ["trireme data show does not use prepare.max_documents", "prepare.count"]),
    ("data train_tokenizer text.txt --output more --max_documents 5", 2, ["trireme data train_tokenizer does not use prepare.max_documents"]),
    ("data stats set --optimizer.lr 1", 2, ["trireme data stats does not use optimizer.lr"]),
    ("data stats set --config whole.yaml", 0, ["documents"]),
    ("data stats set --config other.yaml", 0, ["documents"]),  # a file may hold the settings of several commands
    ("data ledger llama-5m --optimizer.lr 1e-3 --count 1 --step 1", 2, ["trireme data ledger does not use prepare.count"]),
    ("data stats --help", 0, ["--prepare.json  (or --json)"]),
    ("data tokenize --help", 0, ["[null: it must be given]", "--prepare.output  (or --output)  text  [it must be given]", "[null: conversations have any length]"]),
    ("data show --help", 0, ["[null: it must be given]"]),
    ("data tokenize text.txt --data.tokenizer byte --output more/", 2, ["--output more/ is a folder", "--output more/tokens"]),
    ("data tokenize text.txt --data.tokenizer byte --output .", 2, ["--output . is a folder"]),
    ("data tokenize text.txt --data.tokenizer byte --output named.bin", 0, ["named.bin, .idx and .json"]),
    ("{train} --data.train_data_path apart --out_dir whole", 0, ["apart holds train.txt and test.txt, and all files of a folder are learned alike", "--data.val_data_path apart/test.txt"]),
    ("finetune_full {run} --data JSON --data.json_path parts --data.val_split_fraction 0.3 --train.max_steps 1 --out_dir none", 2,
     ["data.val_split_fraction has no effect: parts/val.jsonl is what is held out"]),
    ("data show several --data.tokenizer byte --count 3", 0, ["several/a.txt, document 0", "several/b.txt, document 0", "several/c.jsonl, document 0"]),
    ("data show mixed --data.tokenizer byte", 2, ["some of these files hold conversations and some text", "mixed/b.txt text"]),
    ("plan --table llama-5m", 2, ["leave the other words out"]),
    ("plan --table --cluster 8xA100-80", 2, ["leave the other words out"]),
    ("explain memory llama-5m --rank 1", 2, ["there is no rank 1: the mesh has 1 rank, counted from 0"]),
    ("explain generate llama-5m --rank 1", 2, ["there is no rank 1: the mesh has 1 rank, counted from 0"]),
    ("pretrain llama-5m --optimizer.betas 0.9", 2, ["two numbers such as [0.9, 0.95]"]),
    ("pretrain llama-5m --no_pin", 2, ["unknown setting no_pin", "--launch.pin false"]),
    ("pretrain llama-5m --no-launch.pin", 2, ["--launch.pin false"]),
    ("pretrain llama-5m --devices 3000000000", 2, ["devices must be at least 1 and at most 100,000"]),
    ("{train} --launch.log_ranks 5", 2, ["launch.log_ranks names rank 5, and there is rank 0 alone"]),
    ("{train} --launch.token_file nofile", 2, ["cannot read nofile"]),
    ("{train} --launch.log_link metrics.jsonl", 2, ["launch.log_link metrics.jsonl is a name that a run uses itself in out_dir", "train.log"]),
    ("{train} --launch.log_link step-00000003 --dry_run true", 2, ["launch.log_link step-00000003 is a name that a run uses itself"]),
    ("{train} --launch.log_link .lock", 2, ["launch.log_link .lock begins with a dot"]),
    ("{train} --launch.log_link logs", 2, ["launch.log_link logs is a name that a run uses itself"]),
    ("{train} --pipeline.schedule zigzag", 2, ["pipeline.schedule wants gpipe", "zb_v", "not 'zigzag'"]),
    ("{train} --wrap.units [blok]", 2, ["wrap.units names 'blok'"]),
    ("{train} --data.train_data_path https://example.com/x.txt", 2, ["nothing is downloaded"]),
    ("{train} --comm.backend dry-run", 2, ["backend dry_run moves nothing", "trireme explain"]),
    ("{train} --comm.backend threads --devices 2", 2, ["backend threads", "shm or gloo"]),
    ("{train} --comm.backend nccl --devices 2", 2, ["backend nccl", "needs accelerator cuda"]),
    ("{train} --out_dir text.txt", 2, ["out_dir text.txt cannot be a folder", "is a file"]),
    ("{train} --out_dir text.txt/inside", 2, ["text.txt is a file"]),
    ("{train} --out_dir ''", 2, ["out_dir wants text, not an empty text"]),
    ("{train} --profile.schedule nowhere/at/all.svg", 2, ["profile.schedule", "there is no folder"]),
    ("{train} --optimizer.lr 3e-5 --out_dir low", 0, ["saved"]),
    ("{train} --prompt hello", 2, ["prompt"]),
    ("{train} --generate.prompt hello", 2, ["generate.prompt belongs to trireme generate"]),
    ("generate {run} 'It is'", 2, ["for generate.prompt say --prompt"]),
    ("generate {run} --data.chat_template llama2", 2, ["data.chat_template belongs to training", "say --chat_template"]),
    ("generate {run} --resume true --task classify", 2, ["resume belongs to training", "task belongs to training"]),
    ("evaluate {run} --text text.txt --overwrite true", 2, ["overwrite belongs to training"]),
    ("{train} --launch.node_rank 3", 2, ["launch.node_rank 3 is not one of the num_nodes 1"]),
    ("generate {run} --lora.r 4 --optimizer.lr 1", 2, ["lora.r belongs to training", "optimizer.lr belongs to training"]),
    ("evaluate {run} --score text.txt --max_seq_length 8", 2, ["evaluate.max_seq_length has no effect", "--text FILE"]),
    ("evaluate {run} --text text.txt --model.hidden_size 8", 2, ["model.hidden_size belongs to training", "takes the model's own"]),
    ("generate {run} --cpu_offload true", 2, ["belongs to training", "command line: --cpu_offload true"]),
    ("evaluate {run} --text text.txt --cpu_offload true", 2, ["belongs to training", "command line: --cpu_offload true"]),
    ("generate {run} --num_beams 4", 2, ["num_beams is not available"]),
    ("generate {run} --comm.backend dry_run", 2, ["backend dry_run moves nothing"]),
    ("generate {run} --prompt '\u65e5\u672c \U0001F600' --max_new_tokens 2", 0, ["\u65e5\u672c"]),
    ("generate meta-llama/Llama-3.2-1B", 2, ["there is no folder meta-llama/Llama-3.2-1B", "nothing is downloaded"]),
    ("generate llama-5m", 2, ["a shape's name (llama-5m) has no weights"]),
    ("evaluate {run} text.txt", 2, ["for evaluate.text say --text"]),
    ("evaluate {run} --text text.txt --json nowhere/at/all.json", 2, ["evaluate.json", "there is no folder"]),
    ("convert meta-llama/Llama-3.2-1B other", 2, ["there is no meta-llama/Llama-3.2-1B", "nothing is downloaded, so fetch it first"]),
    ("convert {run} other --train.max_steps 3", 2, ["train.max_steps belongs to trireme pretrain", "convert does not read it"]),
    ("convert {run} other --generate.samples 3", 2, ["generate.samples belongs to trireme generate", "convert does not read it"]),
    ("explain config no-such-model", 2, ["unknown model no-such-model"]),
    ("explain config llama-5m --train.global_batch_size 7", 2, ["a global batch of 7"]),
    ("explain config llama-5m", 0, ["out_dir"]),
    ("explain config {run} --task preferences --lora.r 4", 0, ["lora.dropout                      0 "]),
    ("explain config llama-5m --train.max_seq_length 99999", 2, ["train.max_seq_length 99999 exceeds the model's"]),
    ("explain mesh llama-5m --train.max_seq_length 99999", 2, ["train.max_seq_length 99999 exceeds the model's"]),
    ("explain config llama-5m --devices 2 --mesh.tp 2 --optimizer AdamW8bit", 2, ["AdamW8bit"]),
    ("explain config llama-5m --lora.r 8 --lora.target_modules [foo]", 2, ["foo"]),
    ("explain config llama-5m --devices 2 --mesh.pp 2 --train.global_batch_size 16 --pipeline.split [1,1]", 2, ["pipeline.split gives 2 stages"]),
    ("explain config llama-5m --devices 2 --mesh.pp 2 --train.global_batch_size 16 --pipeline.schedule 1f1b --pipeline.chunks 3", 2, ["on each rank, not 3"]),
    ("explain config llama-5m --devices 2 --mesh.pp 2 --train.global_batch_size 16 --pipeline.schedule interleaved_1f1b --pipeline.chunks 9", 2, ["stages"]),
    ("explain mesh llama-5m --devices 2 --mesh.pp 2 --train.global_batch_size 16 --pipeline.split [1,1]", 2, ["pipeline.split gives 2 stages"]),
    ("explain mesh no-such-model", 2, ["unknown model no-such-model"]),
    ("explain memory --help", 0, ["trireme explain memory", "--rank  whole number"]),
    ("explain schedule --help", 0, ["--bandwidth  number of GB/s"]),
    ("explain memory llama-5m", 0, ["planned peak", "outside the plan: ", "of the program and LibTorch", "of scratch"]),
    ("explain settings train.max_norm", 0, ["--train.max_norm"]),
    ("explain settings --train.max_norm", 0, ["--train.max_norm"]),
    ("explain settings optimizer", 0, ["--optimizer.betas"]),
    ("explain settings max_norm", 2, ["it is train.max_norm"]),
    ("explain settings --markdwn", 2, ["no setting or group of settings 'markdwn'", "groups are run, precision, model, free, data"]),
    ("pretrain --help", 0, ["trireme pretrain MODEL --data TextFiles", "--dry_run shows"]),
    ("plan llama-5m --cluster 8xH100 --help", 0, ["trireme plan: what a training would need", "Hardware that is known"]),
    ("data train_tokenizer text.txt --output tok --vocab_size 300 --overwrite --dry_run", 2, ["trireme data train_tokenizer does not train; leave dry_run out"]),
    ("bench calibrate --dry_run", 2, ["trireme bench calibrate does not train; leave dry_run out"]),
    ("bench train llama-5m --json", 2, ["for instance --bench.json=result.json"]),
    ("bench train llama-5m --json nowhere/at/all.json", 2, ["bench.json", "there is no folder"]),
    ("bench gemm llama-5m --quick --json nowhere/at/all.json", 2, ["bench.json", "there is no folder"]),
    ("plan llama-5m --json nowhere/at/all.json", 2, ["json nowhere/at/all.json", "there is no folder"]),
    ("explain schedule llama-5m --hardware a10 --rate 50", 2, ["--rate changes nothing here: --hardware says how fast everything is; leave it out"]),
    ("explain schedule llama-5m --format list --bandwidth 5", 2, ["--bandwidth changes nothing here: a list has no times"]),
    ("explain schedule llama-5m --format svg --width 80", 2, ["--width changes nothing here: only --format text has columns"]),
    ("explain schedule llama-5m --devices 2 --rank 1", 2, ["--rank changes nothing here", "only --format list shows one"]),
    ("explain schedule llama-5m --output nowhere/at/all.svg", 2, ["output nowhere/at/all.svg", "there is no folder"]),
    ("convert_config --config run.yaml --output nowhere/at/all.yaml", 2, ["output nowhere/at/all.yaml", "there is no folder"]),
    ("evaluate {run} --text text.txt --json /dev/fd/1", 2, ["evaluate.json /dev/fd/1 is a device or a pipe"]),
    ("evaluate {run} --text text.txt --json ./text.txt", 2, ["evaluate.json ./text.txt is the file of evaluate.text, too"]),
]


def split(line):
    """As a shell would, without its expansions."""
    words, word, inside, begun = [], "", False, False
    for c in line:
        if c == "'":
            inside, begun = not inside, True
        elif c == " " and not inside:
            words += [word] if word or begun else []
            word, begun = "", False
        else:
            word += c
    return words + ([word] if word or begun else [])


def answers_hold(r):
    train = r.command("run", model=TINY, train__max_steps=1)[1:]
    (r.folder / "large.yaml").write_text("#" * (2 << 20))
    for name in ("model.gguf", "model.safetensors"):
        (r.folder / name).write_bytes(b"GGUF")
    (r.folder / "run.yaml").write_text("seed: 1\n")
    (r.folder / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    (r.folder / "accelerate.yaml").write_text("distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n")
    (r.folder / "whole.yaml").write_text("optimizer: {lr: 1e-3}\ndata: {mixture: [text.txt]}\ntrain: {max_steps: 3}\n")
    (r.folder / "other.yaml").write_text("prepare:\n  vocab_size: 300\n")
    (r.folder / "of_bytes").mkdir()
    (r.folder / "of_bytes" / "config.json").write_text('{"vocab_size": 256}')
    for name in ("several", "mixed"):
        (r.folder / name).mkdir()
    for name in ("several/a.txt", "several/b.txt", "mixed/b.txt"):
        (r.folder / name).write_text("some words")
    for name in ("apart/train.txt", "apart/test.txt", "parts/train.jsonl", "parts/val.jsonl"):
        (r.folder / name).parent.mkdir(exist_ok=True)
        (r.folder / name).write_text(r.text.read_text() if name.endswith(".txt") else '{"prompt": "Hi", "response": "Hello"}\n')
    (r.folder / "records.jsonl").write_text('{"text": "a line"}\n')
    (r.folder / "ids.bin").write_bytes(random.Random(7).randbytes(3000))
    (r.folder / "several/c.jsonl").write_text('{"text": "a line"}\n')
    (r.folder / "mixed/a.jsonl").write_text('{"prompt": "Hi", "response": "Hello"}\n')
    result = r.run([r.program, *train])
    ring.require(result.code == 0, "a run to look at", str(result))
    bad = []
    for line, code, words in ANSWERS:
        arguments = [w for word in split(line) for w in (train if word == "{train}" else [str(r.folder / "run") if word == "{run}" else word])]
        if "{train}" in line and "--out_dir" not in line:  # of the run that is there
            arguments[arguments.index("--out_dir") + 1] = str(r.folder / "other")
        result = r.run([r.program, *arguments])
        missing = [word for word in words if word not in result.text]
        ugly = [word for word in UGLY if word in result.text]
        long = code == 2 and not line.startswith("explain") and len(result.err.splitlines()) > 8
        if result.code != code or missing or ugly or long:
            bad.append(f"{line}: exit code {result.code} instead of {code}, lacks {missing}, says {ugly}\n{result.err[-1500:]}")
    ring.check(not bad, f"{len(ANSWERS)} commands are answered in words", "\n".join(bad))


def the_first_page_names_every_part(r):
    """What `trireme --help` says of bench, explain and data is what they have."""
    page = r.run([r.program, "--help"]).out
    for command in ("bench", "explain", "data"):
        line = next(line for line in page.splitlines() if line.startswith(f"  trireme {command} "))
        parts = [line.split()[0] for line in r.run([r.program, command, "--help"]).out.splitlines() if line[:2] == "  " and line[2:3].isalpha()]
        missing = [part for part in parts if part not in line]
        ring.check(len(parts) > 3 and not missing, f"trireme --help names the parts of {command}", f"{missing} of {parts}: {line}")


def a_result_that_is_lost_is_no_success(r):
    for words in (["--help"], ["explain", "memory", "llama-5m"], ["pretrain", "--help"], ["explain", "schedule", "llama-5m"], ["generate", r.folder / "run", "--prompt", "a", "--max_new_tokens", "2"],
                  ["evaluate", r.folder / "run", "--text", "text.txt", "--devices", "2"], ["launch", "--nproc_per_node", "2", "--", "echo", "a result"]):
        result = r.run(["bash", "-c", '"$0" "$@" > /dev/full', r.program, *map(str, words)])
        ring.check(result.code == 74 and "cannot write standard output: the disk is full" in result.err, f"{words[0]} into a full disk", str(result))


def a_reader_that_goes_away_does_not_end_the_training(r):
    for devices in (1, 2):
        command = r.command(f"unread-{devices}", model=TINY, devices=devices, train__max_steps=20, train__log_interval=1)
        result = r.run(["bash", "-c", '"$0" "$@" | head -n 1; exit ${PIPESTATUS[0]}', *map(str, command)])
        ring.check(result.code == 2 and "cannot write standard output: what read it has gone" in result.err and (r.folder / f"unread-{devices}" / "step-00000020").is_dir(),
                   f"a run on {devices} whose reader goes away ends and saves, and says so", str(result))


def a_terminal_shows_what_is_done(r):
    here, there = pty.openpty()
    command = r.command("on-a-terminal", model=TINY, train__max_steps=2, eval__interval=1)
    process = subprocess.Popen(list(map(str, command)), cwd=r.folder, env=ring.environment(TERM="xterm"), stdin=subprocess.DEVNULL, stdout=there, stderr=there)
    os.close(there)
    text = b""
    try:
        while part := os.read(here, 1 << 16):
            text += part
    except OSError:  # the other end has gone
        pass
    os.close(here)
    ring.check(process.wait() == 0 and b"evaluate ..." in text and b"sample ..." not in text,
               "a terminal shows evaluations, and no sample that nobody asked for", text.decode(errors="replace"))


def what_is_printed_goes_into_no_file(r):
    """A process that is started with closed descriptors opens its files under their numbers."""
    command = r.command("closed", model=TINY, train__max_steps=2, train__save_interval=1)
    result = r.run(["bash", "-c", '"$0" "$@" 0>&- 1>&- 2>&-', *map(str, command)])
    lines = (r.folder / "closed" / "metrics.jsonl").read_text().splitlines()
    ring.check(result.code == 0 and all(line.startswith("{") for line in lines), "with closed descriptors, metrics.jsonl holds metrics", str(result) + str(lines))


def labels_are_predicted_on_one_rank_of_any_machine(r):
    env = ring.environment(HWLOC_SYNTHETIC="numa:2 core:1 pu:1", HWLOC_THISSYSTEM="1")
    result = r.run([r.program, "evaluate", str(r.folder / "run"), "--classify", "text.txt"], env=env)
    ring.check(result.code == 2 and "has no classification head" in result.text, "on two NUMA nodes, too, one rank predicts labels", str(result))


def one_setting_is_one_setting(r):
    text = r.run([r.program, "explain", "settings", "train.max_norm"]).out
    ring.check(text.count("  --") == 1, "explain settings train.max_norm shows that setting alone", text)


def the_environment_is_checked(r):
    command = r.command("environment", model=TINY, train__max_steps=1)
    result = r.run(command, env=ring.environment(TRIREME_TRAIN_MICRO_BATCHSIZE="4"))
    ring.check(result.code == 2 and "TRIREME_TRAIN_MICRO_BATCHSIZE" in result.err and "TRIREME_TRAIN_MICRO_BATCH_SIZE" in result.err,
               "a variable that is no setting is refused with the nearest name", str(result))
    result = r.run(command, env=ring.environment(TRIREME_HOME="x", TRIREME_DATA_SERVICE_HOST="10.0.0.1"))
    ring.check(result.code == 0, "variables that resemble no setting, and Kubernetes' own, are left alone", str(result))


def documents(r, name, count):
    path = r.folder / name
    with open(path, "w") as out:
        for i in range(count):
            out.write(json.dumps({"text": ("early " if i < count * 0.85 else "late ") * (8 + i % 5)}) + "\n")
    return path


def a_sample_is_held_out(r):
    """Of many documents; and a run that began with the last part keeps it."""
    path = documents(r, "many.jsonl", 200)
    settings = {"model": TINY, "data__train_data_path": path, "train__save_interval": 2, "devices": 2}
    result = r.run(r.command("sampled", train__max_steps=2, **settings))
    ring.check(result.code == 0 and "a sample of " in result.out and " of 200 documents" in result.out, "the start says that a sample is held out",
               str(result))
    result = r.run(r.command("sampled", train__max_steps=4, resume="true", **(settings | {"devices": 1})))
    ring.check(result.code == 0 and "a sample of " in result.out, "its resume on another mesh holds out the same", str(result))
    result = r.run(r.command("old", train__max_steps=2, data__val_split="last", **settings))
    ring.check(result.code == 0 and "held out (the last " in result.out, "the last part is held out where that is asked for", str(result))
    result = r.run(r.command("old", train__max_steps=4, resume="true", **settings))
    ring.check(result.code == 0 and "held out (the last " in result.out, "a resumed run that held out the last part keeps it", str(result))
    result = r.run(r.command("old", train__max_steps=6, resume="true", data__val_split="sample", **settings))
    ring.check(result.code == 2 and "data.val_split" in result.err, "it is told when a resume asks for the other", str(result))


def long_conversations_stay_what_they_were(r):
    chats = r.folder / "chats.jsonl"
    chats.write_text("".join(json.dumps({"prompt": "a", "response": "b" * (300 if i == 3 else 20)}) + "\n" for i in range(40)))
    made = r.run([r.program, "data", "tokenize", str(chats), "--data.tokenizer", "byte", "--data.chat_template", "default", "--output", str(r.folder / "chats")])
    ring.require(made.code == 0, "a set of conversations", str(made))
    settings = {"model": TINY, "data__train_data_path": r.folder / "chats", "data__packing": "none", "train__max_seq_length": 64, "train__save_interval": 2}
    result = r.run(r.command("chats", train__max_steps=2, **settings))
    ring.check(result.code == 0 and "1 cut at 65 tokens" in result.out, "a long conversation of a set is cut", str(result))
    result = r.run(r.command("chats", train__max_steps=4, resume="true", **settings))
    ring.check(result.code == 0 and "1 cut at 65 tokens" in result.out, "and is cut in a resumed run", str(result))
    result = r.run(r.command("chats", train__max_steps=6, resume="true", data__long_conversations="drop", **settings))
    ring.check(result.code == 2 and "data.long_conversations was cut and is drop" in result.err, "a resume that would drop it is refused", str(result))


def the_start_says_what_lies_outside_the_plan(r):
    result = r.run(r.command("outside", train__max_steps=2))
    line = next((line for line in result.out.splitlines() if "outside the plan: " in line), "")
    ring.check("MiB of the program and LibTorch, measured" in line and "of scratch for matrix products (1 thread)" in line, line.strip(), str(result))
    outside = sum(float(part.split(" MiB")[0].split()[-1]) for part in line.split(";") if " MiB" in part)
    planned = float(next(line for line in result.out.splitlines() if line.startswith("memory")).split()[1])
    resident = json.loads((r.folder / "outside" / "metrics.jsonl").read_bytes().splitlines()[-1])["rss_bytes"] / 2**20
    ring.check(0.75 * resident < planned + outside < 1.35 * resident,
               f"plan ({planned:.0f} MiB) and what is outside ({outside:.0f}) are about what is resident ({resident:.0f})")


def a_resume_is_marked_in_the_picture(r):
    r.train("marked", train__max_steps=6)
    result = r.run(r.command("marked", train__max_steps=12, resume="true", train__log_interval=3))
    svg = (r.folder / "marked" / "loss.svg").read_text()
    ring.check(result.code == 0 and svg.count('<line class="resume"') == 1 and ("▲ resumed" in result.out or "^ resumed" in result.out),
               "the loss picture shows where the run went on", str(result))


with ring.Ring(sys.argv[1]) as r:
    answers_hold(r)
    one_setting_is_one_setting(r)
    the_first_page_names_every_part(r)
    a_result_that_is_lost_is_no_success(r)
    a_reader_that_goes_away_does_not_end_the_training(r)
    a_terminal_shows_what_is_done(r)
    what_is_printed_goes_into_no_file(r)
    labels_are_predicted_on_one_rank_of_any_machine(r)
    the_environment_is_checked(r)
    a_sample_is_held_out(r)
    long_conversations_stay_what_they_were(r)
    the_start_says_what_lies_outside_the_plan(r)
    a_resume_is_marked_in_the_picture(r)
