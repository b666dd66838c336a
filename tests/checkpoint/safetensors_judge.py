"""PyPI safetensors reads what we write, and we read what it writes.

safetensors_judge.py JUDGE_HELPER
Exits with 77 (skipped) where the package is not installed.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError as error:
    print(f"skipped: {error}; install safetensors and numpy into .venv")
    sys.exit(77)

DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
TORCH_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
               "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}


def dump(helper, paths):
    """What our reader sees: {path: {name: (dtype, shape, bytes)}}. One process: each loads LibTorch."""
    text = subprocess.run([helper, "dump", *paths], check=True, capture_output=True, encoding="utf-8").stdout
    result = {path: {} for path in paths}
    for line in text.splitlines():
        path, name, dtype, shape, data = line.split("\t")
        result[pathlib.Path(path)][name] = (dtype, json.loads(shape), bytes.fromhex(data))
    return result


def theirs(path):
    """What the package sees."""
    items = safetensors.deserialize(path.read_bytes())
    return {name: (item["dtype"], list(item["shape"]), bytes(item["data"])) for name, item in items}


def serialize(tensors, metadata):
    """The package's writer; since 0.8 it takes addresses instead of bytes."""
    if not hasattr(safetensors, "TensorSpec"):
        return safetensors.serialize(tensors, metadata)
    arrays = {name: numpy.frombuffer(item["data"], dtype=numpy.uint8) for name, item in tensors.items()}
    return safetensors.serialize({
        name: safetensors.TensorSpec(dtype=item["dtype"], shape=item["shape"], data_ptr=arrays[name].ctypes.data,
                                     data_len=arrays[name].nbytes)
        for name, item in tensors.items()}, metadata)


def judge_our_files(helper, folder):
    saved = pathlib.Path(subprocess.run([helper, "save", folder], check=True, capture_output=True, encoding="utf-8").stdout.strip())
    files = sorted(saved.glob("*.safetensors"))
    assert len(files) > 4, files
    tensors = {}
    ours = dump(helper, files)
    for path in files:
        assert ours[path] == theirs(path), path
        with safetensors.safe_open(path, framework="np") as handle:
            assert handle.metadata() == {"format": "pt"}, handle.metadata()
            tensors.update({name: path.name for name in handle.keys()})
    for index_path in saved.glob("*.index.json"):
        index = json.loads(index_path.read_text())
        for name, file_name in index["weight_map"].items():
            assert tensors.pop(name) == file_name, name
        stem = index_path.name.removesuffix(".safetensors.index.json")
        data = sum(len(item[2]) for path in files if path.name.startswith(stem + "-") for item in theirs(path).values())
        assert index["metadata"]["total_size"] == data, index["metadata"]
    assert not tensors, tensors
    master = {}
    for path in saved.glob("optimizer-*.safetensors"):
        master.update(safetensors.numpy.load_file(path))
    state = master["model.norm.weight.master"]
    assert state.dtype == numpy.float32 and state.shape == (23,), state
    return len(files)


def judge_their_files(helper, folder, rounds=40):
    source = random.Random(11)
    paths = []
    for round_index in range(rounds):
        tensors = {}
        for i in range(source.randrange(0, 8)):
            dtype = source.choice(sorted(DTYPES))
            shape = [source.randrange(0, 6) for _ in range(source.randrange(0, 4))]
            count = 1
            for size in shape:
                count *= size
            tensors[f"tensor {i} \u00e4\"\\"] = {
                "dtype": TORCH_NAMES[dtype], "shape": shape, "data": source.randbytes(count * DTYPES[dtype])}
        metadata = {"format": "pt", "note": "\u2603"} if round_index % 2 else None
        path = pathlib.Path(folder) / f"theirs-{round_index}.safetensors"
        path.write_bytes(serialize(tensors, metadata))
        paths.append(path)
    ours = dump(helper, paths)
    for path in paths:
        assert ours[path] == theirs(path), path
    return rounds


def main():
    helper = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        print(f"safetensors {safetensors.__version__} reads {judge_our_files(helper, folder)} of our files")
        print(f"we read {judge_their_files(helper, folder)} of its files")


main()
