"""PyTorch reads what we write, and we read what it writes: torch.save files and distributed checkpoints.

torch_judge.py TORCH_JUDGE_HELPER
Exits with 77 (skipped) where PyTorch is not installed.
"""

import collections
import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings
import zipfile

warnings.filterwarnings("ignore")
try:
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --judges installs it")
    sys.exit(77)
logging.disable(logging.WARNING)

NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
         torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.float8_e4m3fn: "F8_E4M3"}


def raw(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def described(tensors):
    return {name: (NAMES[t.dtype], list(t.shape), raw(t)) for name, t in tensors.items()}


class Judge:
    def __init__(self, helper, folder):
        self.helper, self.folder, self.count = helper, pathlib.Path(folder), 0

    def run(self, *arguments):
        return subprocess.run([self.helper, *map(str, arguments)], capture_output=True, encoding="utf-8")

    def ours(self, kind, path):
        done = self.run("dump", kind, path)
        assert done.returncode == 0, done.stderr
        result = {}
        for line in done.stdout.splitlines():
            name, dtype, shape, data = line.split("\t")
            result[name] = (dtype, json.loads(shape), bytes.fromhex(data))
        return result

    def same(self, kind, path, tensors):
        ours, theirs = self.ours(kind, path), described(tensors)
        assert list(ours) == list(theirs) if kind == "pth" else ours.keys() == theirs.keys(), (list(ours), list(theirs))
        for name in theirs:
            assert ours[name] == theirs[name], (path, name, ours[name][:2], theirs[name][:2])
        self.count += len(theirs)

    def refused(self, path, text, kind="pth"):
        done = self.run("dump", kind, path)
        assert done.returncode == 1 and text in done.stderr and done.stderr.count("\n") == 1, done

    def copied(self, kind, path, target_kind):
        self.number = getattr(self, "number", 0) + 1
        target = self.folder / f"copy-{self.number}"
        if target_kind == "dcp":
            target.mkdir()
        done = self.run("copy", kind, path, target_kind, target)
        assert done.returncode == 0, done.stderr
        return target


def sample():
    torch.manual_seed(3)
    floats = {f"float.{str(d)[6:]}": torch.randn(3, 5, dtype=torch.float64).to(d)
              for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    numbers = {f"number.{str(d)[6:]}": torch.randint(0, 99, (2, 3, 4)).to(d)
               for d in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)}
    base = torch.arange(60.0).reshape(3, 4, 5)
    views = {"whole": base, "transposed": base.transpose(0, 2), "column": base[:, 1, 3], "strided": base[::2, 1:3, ::2],
             "expanded": torch.arange(3.0)[:, None].expand(3, 2), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 7),
             "parameter": torch.nn.Parameter(torch.randn(4)), "channels": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)}
    return {**floats, **numbers, **views}


def judge_reading(judge):
    tensors = sample()
    path = judge.folder / "model.pth"
    torch.save(tensors, path)
    judge.same("pth", path, tensors)
    torch.save(tensors, path, _use_new_zipfile_serialization=False)  # as before PyTorch 1.6
    judge.same("pth", path, tensors)
    for wrapper in ("model", "state_dict"):
        torch.save({"step": 7, "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 1e-3}]},
                    wrapper: collections.OrderedDict(tensors), "best": None}, path)
        judge.same("pth", path, tensors)
    nested = {"encoder": {"layers": [{"w": torch.ones(2)}, {"w": torch.zeros(2)}]}, "head": {"b": torch.ones(1)}}
    torch.save(nested, path)
    judge.same("pth", path, {"encoder.layers.0.w": torch.ones(2), "encoder.layers.1.w": torch.zeros(2), "head.b": torch.ones(1)})
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(module.state_dict(), path, pickle_protocol=4)
    judge.same("pth", path, module.state_dict())
    extra = {"u16": torch.arange(5).to(torch.uint16), "u64": torch.arange(5).to(torch.uint64),
             "f8": torch.randn(4, 4).to(torch.float8_e4m3fn)}
    torch.save(extra, path)
    judge.same("pth", path, extra)
    judge.same("pth", judge.copied("pth", path, "pth"), extra)
    assert all(torch.equal(a.view(torch.uint8), extra[n].view(torch.uint8))
               for n, a in torch.load(judge.copied("pth", path, "pth"), weights_only=True).items())

    first, second = dict(list(tensors.items())[:6]), dict(list(tensors.items())[6:])
    folder = judge.folder / "sharded"
    folder.mkdir()
    torch.save(first, folder / "pytorch_model-00001-of-00002.bin")
    torch.save(second, folder / "pytorch_model-00002-of-00002.bin")
    weights = {name: f"pytorch_model-0000{1 if name in first else 2}-of-00002.bin" for name in tensors}
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    judge.same("pth", folder, tensors)
    index.write_text(json.dumps({"weight_map": {"a": "../model.pth"}}))
    judge.refused(folder, "said to be in '../model.pth'")
    index.write_text(json.dumps({"weight_map": {"nowhere": "pytorch_model-00001-of-00002.bin"}}))
    judge.refused(folder, "holds no tensor 'nowhere'")


def judge_refusals(judge):
    path = judge.folder / "bad.pth"
    torch.save({"a": torch.ones(2), "b": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()
    for end in (40, 200, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:end])
        judge.refused(path, "cut off")
    at = whole.index(b"\x88", whole.index(b"little_endian"))  # True
    path.write_bytes(whole[:at] + b"\x89" + whole[at + 1:])
    judge.refused(path, "big-endian")
    path.write_bytes(whole[1:])
    judge.refused(path, "neither a zip archive nor a row of pickles")
    torch.save({"a": torch.ones(2), "code": types.SimpleNamespace}, path, _use_new_zipfile_serialization=False)
    judge.refused(path, "types.SimpleNamespace")
    torch.save({"a": torch.ones(2), "code": types.SimpleNamespace}, path)
    judge.refused(path, "types.SimpleNamespace")
    torch.save({"a": torch.ones(2, dtype=torch.complex64)}, path)
    judge.refused(path, "tensor 'a' has the type ComplexFloatStorage")
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))
    judge.refused(path, "TorchScript")
    torch.save({"a": torch.ones(2)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    judge.refused(path, "truncated")
    path.write_bytes(whole.replace(b"little", b"big" + b"\0" * 3))
    with zipfile.ZipFile(judge.folder / "big.pth", "w") as big:
        with zipfile.ZipFile(judge.folder / "good.pth", "w") as good:
            torch.save({"a": torch.ones(2)}, path)
            for item in zipfile.ZipFile(path).infolist():
                data = zipfile.ZipFile(path).read(item)
                big.writestr(item.filename, b"big" if item.filename.endswith("byteorder") else data)
                good.writestr(item.filename, data)
    judge.refused(judge.folder / "big.pth", "big-endian")
    judge.same("pth", judge.folder / "good.pth", {"a": torch.ones(2)})
    with zipfile.ZipFile(judge.folder / "packed.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a/data.pkl", b"\x80\x02}.")
    judge.refused(judge.folder / "packed.pth", "'a/data.pkl' is compressed")


def judge_writing(judge):
    tensors = sample()
    path = judge.folder / "model.pth"
    torch.save(tensors, path)
    copy = judge.copied("pth", path, "pth")
    theirs = torch.load(copy, weights_only=True, mmap=True)
    assert list(theirs) == list(tensors) and described(theirs) == described(tensors)
    with zipfile.ZipFile(copy) as archive:
        assert archive.testzip() is None, "a checksum is wrong"
    reader = torch._C.PyTorchFileReader(str(copy))
    assert all(reader.get_record_offset(n) % 64 == 0 for n in reader.get_all_records() if n.startswith("data/"))
    judge.count += len(tensors)


def judge_distributed(judge):
    tensors = sample()
    folder = judge.folder / "theirs-dcp"
    dcp.save({"model": dict(tensors), "step": 3, "optimizer": {"m": torch.ones(2), "lr": 0.1}}, checkpoint_id=folder)
    judge.same("dcp", folder, tensors)
    flat = {name.replace("float", "model"): t for name, t in tensors.items()}
    folder = judge.folder / "flat-dcp"
    dcp.save(dict(flat), checkpoint_id=folder)
    judge.same("dcp", folder, flat)

    ours = judge.copied("dcp", folder, "dcp")
    judge.same("dcp", ours, flat)
    dcp_to_torch_save(ours, judge.folder / "back.pth")
    assert described(torch.load(judge.folder / "back.pth", weights_only=True)) == described(flat)
    target = {name: torch.zeros_like(t) for name, t in flat.items()}
    dcp.load(target, checkpoint_id=ours)
    assert described(target) == described(flat)
    judge.count += 2 * len(flat)

    metadata = folder / ".metadata"
    whole = metadata.read_bytes()
    metadata.write_bytes(whole.replace(b"__0_0.distcp", b"../_0.distcp"))
    judge.refused(folder, "said to be in '../_0.distcp'", "dcp")
    metadata.write_bytes(whole[:-9])
    judge.refused(folder, "cut off", "dcp")


SHARDED = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate, distribute_tensor
rank, folder, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=4)
mesh = init_device_mesh("cpu", (2, 2))
def make(shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
state = {"rows": distribute_tensor(make((7, 3)), mesh, [Shard(0), Replicate()]),
         "columns": distribute_tensor(make((5, 6)), mesh, [Replicate(), Shard(1)]),
         "boxes": distribute_tensor(make((6, 5, 3)), mesh, [Shard(0), Shard(1)]),
         "twice": distribute_tensor(make((9, 2)), mesh, [Shard(0), Shard(0)])}
dcp.save({"model": state}, checkpoint_id=folder)
dist.destroy_process_group()
"""


def judge_sharded(judge):
    """Four ranks: tensors cut by rows, by columns, into boxes, and unevenly."""
    folder = judge.folder / "sharded-dcp"
    ranks = [subprocess.Popen([sys.executable, "-c", SHARDED, str(rank), folder, judge.folder / "store"],
                              stderr=subprocess.DEVNULL) for rank in range(4)]
    assert all(rank.wait() == 0 for rank in ranks)
    shapes = {"rows": (7, 3), "columns": (5, 6), "boxes": (6, 5, 3), "twice": (9, 2)}
    judge.same("dcp", folder, {name: torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
                               for name, shape in shapes.items()})


def main():
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(sys.argv[1], folder)
        judge_reading(judge)
        judge_refusals(judge)
        judge_writing(judge)
        judge_distributed(judge)
        judge_sharded(judge)
        print(f"PyTorch {torch.__version__} and Trireme agree on {judge.count} tensors, byte for byte")


main()
