"""trireme checkpoint as a user sees it: tables, exit codes, and folders that the safetensors package and transformers open.

checkpoint_command.py TRIREME
"""

import itertools
import json
import os
import pathlib
import shutil
import signal
import sys

import ring


class Suite:
    def __init__(self, r):
        self.ring = r
        self.out = r.train("run", devices=2, train__max_steps=4, train__save_interval=2, save__dtype="bf16")
        self.first, self.second = (str(self.out / name) for name in ring.step_folders(self.out))

    def state(self, name):
        """The optimizer's tensors; the model's are bf16, which numpy has not."""
        [reader] = ring.judges("safetensors.numpy")
        return {k: v for path in (self.out / name).glob("optimizer-*.safetensors") for k, v in reader.load_file(path).items()}

    def command(self, *words):
        return self.ring.run([self.ring.program, "checkpoint", *map(str, words)])

    def lists(self):
        result = self.command("list", self.out)
        rows = result.out.splitlines()
        ring.check(result.code == 0 and len(rows) == 3 and all("complete" in row and "BF16" in row for row in rows[1:]),
                   "list: a row for each checkpoint, newest first", str(result))
        ring.require(rows[1].split()[0] == "4" and rows[2].split()[0] == "2", "list: newest first", str(result))
        result = self.command("list", self.ring.folder / "nowhere")
        ring.check(result.code == 2 and "there is no folder" in result.err and result.out == "", "list: a folder that is not there is one error", str(result))

    def keeps_private_what_is(self):
        """Whoever may not read the model may not read what was made of it."""
        private = self.ring.folder / "private"
        shutil.copytree(self.second, private)
        for path in private.glob("*.safetensors"):
            path.chmod(0o600)
        text = self.ring.folder / "private.txt"
        text.write_text(self.ring.text.read_text())
        text.chmod(0o600)
        self.ring.folder.chmod(0o755)
        made = self.ring.folder / "made"
        made.mkdir()
        for words in (["checkpoint", "reshard", private, made / "resharded"], ["checkpoint", "consolidate", private, made / "whole"],
                      ["convert", private, made / "model.gguf"], ["convert", private, made / "folder", "--dtype", "float32"],
                      ["data", "train_tokenizer", text, "--output", made / "tokenizer", "--vocab_size", "300"],
                      ["data", "tokenize", text, "--output", made / "tokens", "--data.tokenizer", "byte"]):
            result = self.ring.run([self.ring.program, *map(str, words)])
            files = [path for path in made.rglob("*") if path.is_file()]
            wide = [f"{path.relative_to(made)} {path.stat().st_mode & 0o777:o}" for path in files if path.stat().st_mode & 0o077]
            ring.check(result.code == 0 and files and not wide, f"{' '.join(map(str, words[:2] if words[0] != 'convert' else ['convert', words[2].name]))}: "
                       "what is made of files of mode 600 has no wider one", f"{wide}\n{result}")

    def dates(self):
        """A folder without files has no date."""
        (self.out / "step-00000099").mkdir()
        result = self.command("list", self.out)
        row = result.out.splitlines()[1]
        ring.check(row.split()[0] == "99" and "2174" not in row and " -  " in row, "list: a folder without files has no date", str(result))

    def verifies(self):
        result = self.command("verify", self.second)
        ring.check(result.code == 0 and "blocks are as they were saved" in result.out, "verify: exit code 0 when all is well", str(result))
        damaged = self.ring.folder / "damaged"
        ring.require(self.command("reshard", self.second, damaged).code == 0, "reshard copies")
        path = damaged / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        result = self.command("verify", damaged)
        ring.check(result.code == 1 and "model.safetensors, block 0" in result.out and "tensor '" in result.out,
                   "verify: exit code 1, file and tensors of the damaged block", str(result))

    def differs(self):
        result = self.command("diff", self.first, self.first)
        ring.check(result.code == 0 and "0 differ" in result.out, "diff: exit code 0 for equal ones", str(result))
        result = self.command("diff", self.first, self.second)
        ring.check(result.code == 1 and "largest difference" in result.out, "diff: exit code 1 and each tensor that differs", str(result))
        [numpy] = ring.judges("numpy")
        one, other = self.state("step-00000002"), self.state("step-00000004")
        name = "model.layers.0.mlp.up_proj.weight.master"
        largest = numpy.abs(one[name].astype("f8") - other[name].astype("f8")).max()
        ring.check(f"values      {name} F32: largest difference {largest:.3g}" in result.out, "diff: numpy finds the same largest difference", str(result))

    def rewrites(self):
        [reader] = ring.judges("safetensors.numpy")
        small = self.ring.folder / "small"
        result = self.command("reshard", self.second, small, "--max_shard_bytes", "20kB")
        ring.check(result.code == 0 and len(list(small.glob("model-*.safetensors"))) > 1, "reshard: files of another size", str(result))
        ring.check(self.command("diff", self.second, small).code == 0, "reshard: every tensor byte for byte")
        whole = self.ring.folder / "whole"
        result = self.command("consolidate", self.second, whole, "--dtype", "fp32")
        names = sorted(path.name for path in whole.iterdir())
        ring.check(result.code == 0 and names == ["config.json", "manifest.json", "model.safetensors", "settings.yaml"],
                   "consolidate: the weights in one file, without optimizer state", str(result) + str(names))
        tensors, goal = reader.load_file(whole / "model.safetensors"), self.state("step-00000004")
        ring.check(all((tensors[name] == goal[name + ".master"]).all() for name in tensors), "consolidate --dtype fp32: the master weights, bit for bit")
        config = json.loads((whole / "config.json").read_text())
        ring.require(config.get("dtype", config.get("torch_dtype")) == "float32", "config.json names the dtype", str(config))
        [transformers] = ring.judges("transformers")
        model = transformers.AutoModelForCausalLM.from_pretrained(whole)
        found = {name: value.detach().numpy() for name, value in model.state_dict().items()}
        ring.check(all((found[name] == tensors[name]).all() for name in tensors), "consolidate: transformers opens it with the same weights")
        result = self.command("reshard", self.second, small)
        ring.check(result.code == 2 and "exists already" in result.err, "reshard: a folder that exists is refused", str(result))

    def keeps_weights_out_of_runs(self):
        """Weights alone in a run's folder would count as its newest step."""
        for words in (["checkpoint", "consolidate", self.first], ["convert", self.first], ["checkpoint", "reshard", str(self.ring.folder / "whole")]):
            result = self.ring.run([self.ring.program, *words, str(self.out / "step-9")])
            ring.check(result.code == 2 and f"would be a step of the run in {self.out}" in result.err and not (self.out / "step-9").exists(),
                       f"{' '.join(words[:-1])}: weights alone are no step of a run", str(result))
        result = self.command("reshard", self.first, self.out / "step-9")
        ring.check(result.code == 2 and "step-9 would be taken for step 9" in result.err and not (self.out / "step-9").exists(),
                   "reshard: a step gets no other step's name", str(result))
        row = self.command("list", self.ring.folder / "whole").out.splitlines()[-1]
        ring.check("weights alone: no run can go on from them" in row, "list: weights alone are called so", row)

    def refuses_what_is_no_file(self):
        """A named pipe has no writer: whoever opens it to read waits for ever."""
        model = self.ring.folder / "pipes"
        ring.require(self.command("consolidate", self.second, model).code == 0, "consolidate")
        (model / "manifest.json").unlink()
        for name in ("model.safetensors", "config.json", "tokenizer.json", "generation_config.json", "model.safetensors.index.json"):
            there = (model / name).read_bytes() if (model / name).exists() else None
            (model / name).unlink(missing_ok=True)
            os.mkfifo(model / name)
            words = {"generate": ["--prompt", "a", "--generate.max_new_tokens", "1"], "convert": [self.ring.folder / "converted"], "pretrain": [],
                     "checkpoint": []}
            for command in words:
                first = [self.ring.program, command, *(["verify"] if command == "checkpoint" else []), str(model), *map(str, words[command])]
                if command == "pretrain":
                    first = self.ring.command("from-pipe", model={}, train__max_steps=1)
                    first[2] = str(model)
                result = self.ring.run(first, timeout=60)  # ends, and not by a signal
                ring.require(result.code in (0, 1, 2), f"{command} with a pipe as {name} ends", str(result))
                if name == "model.safetensors":
                    ring.check(result.code != 0 and "named pipe, not a file" in result.text, f"{command} refuses a named pipe as {name}", str(result))
            shutil.rmtree(self.ring.folder / "converted", ignore_errors=True)
            (model / name).unlink()
            if there is not None:
                (model / name).write_bytes(there)
        ring.check(True, "no command waits for a named pipe in a model's folder")
        result = self.ring.run([self.ring.program, "convert", str(self.second), "bare-name"])
        ring.check(result.code == 0 and (self.ring.folder / "bare-name/model.safetensors").exists(), "convert SOURCE OUT with a bare name", str(result))

    def ends_work_as_asked(self):
        """Of a large tensor of zeros, which takes no room on the disk, and of many conversations."""
        folder, out, rows = self.ring.folder / "large", self.ring.folder / "stopped", 1 << 19
        folder.mkdir()
        header = json.dumps({"a": {"dtype": "F32", "shape": [rows, 1024], "data_offsets": [0, rows * 4096]}}).encode()
        header += b" " * (-len(header) % 8)
        with open(folder / "model.safetensors", "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(file.tell() + rows * 4096)
        chats = self.ring.folder / "chats.jsonl"
        chats.write_text((json.dumps({"instruction": "x" * 200, "output": "y" * 2000}) + "\n") * 20000)
        tokenize = ["data", "tokenize", chats, "--data.tokenizer", "byte", "--data.chat_template", "alpaca", "--threads", "1", "--output", out]
        for number, words in itertools.product((signal.SIGTERM, signal.SIGHUP), (["convert", folder, out, "--dtype", "bfloat16"], ["checkpoint", "reshard", folder, out, "--dtype", "bf16"], tokenize)):
            process = self.ring.start([self.ring.program, *map(str, words)])

            def takes_signals():
                caught = pathlib.Path(f"/proc/{process.pid}/status").read_text().split("SigCgt:")[1].split()[0]
                return int(caught, 16) >> (signal.SIGTERM - 1) & 1
            ring.wait_for(lambda: process.poll() is not None or takes_signals(), "work that takes signals")
            process.send_signal(number)
            result = self.ring.finish(process)
            ring.check(result.code == 75 and "stopped by request: nothing was written" in result.err and not list(self.ring.folder.glob("stopped*"))
                       and not list(self.ring.folder.glob(".tmp-*")), f"{words[0]}: {number.name} ends it with 75, and leaves nothing", str(result))

    def helps(self):
        result = self.command("--help")
        ring.check(result.code == 0 and all(word in result.out for word in ("full ", "sharded ", "local ", "StateDictType")),
                   "the help says what full, sharded and local are here", str(result))
        for words, hint in ((["verfy", "x"], "did you mean verify?"), (["diff", self.first], "takes 2 folders, 1 given"),
                            (["verify", self.first, "--thread", "2"], "the nearest is threads")):
            result = self.command(*words)
            ring.check(result.code == 2 and hint in result.err, f"checkpoint {words[0]}: {hint}", str(result))


with ring.Ring(sys.argv[1]) as r:
    suite = Suite(r)
    suite.lists()
    suite.verifies()
    suite.differs()
    suite.rewrites()
    suite.keeps_weights_out_of_runs()
    suite.keeps_private_what_is()
    suite.refuses_what_is_no_file()
    suite.dates()
    suite.ends_work_as_asked()
    suite.helps()
