// The names that checkpoints need. Nothing here is ever called; a name that is absent is refused.
#include <algorithm>
#include <array>

#include "trireme/checkpoint/pickle_globals.h"

namespace trireme::checkpoint {
namespace {

using Role = PickleGlobal::Role;

constexpr PickleGlobal kNames[] = {
    {"collections", "OrderedDict", Role::mapping},
    {"collections", "defaultdict", Role::mapping},
    {"collections", "Counter"},
    {"torch", "Size", Role::argument},
    {"torch", "device"},
    {"torch._utils", "_rebuild_tensor"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"},
    {"torch._utils", "_rebuild_parameter"},
    {"torch._utils", "_rebuild_parameter_with_state"},
    {"torch.serialization", "_get_layout"},
    {"torch.storage", "UntypedStorage"},
    {"torch.storage", "TypedStorage"},
    {"torch.distributed.checkpoint.metadata", "Metadata"},
    {"torch.distributed.checkpoint.metadata", "MetadataIndex"},
    {"torch.distributed.checkpoint.metadata", "StorageMeta"},
    {"torch.distributed.checkpoint.metadata", "TensorStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "BytesStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "TensorProperties"},
    {"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    {"torch.distributed.checkpoint.filesystem", "_StoragePrefix"},
    {"pathlib", "PosixPath"},
    {"pathlib", "PurePosixPath"},
    {"pathlib", "WindowsPath"},
    {"pathlib._local", "PosixPath"},
    {"argparse", "Namespace"},
    {"_codecs", "encode"},
    {"numpy", "dtype"},
    {"numpy", "ndarray"},
    {"numpy.core.multiarray", "scalar"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy._core.multiarray", "_reconstruct"},
};

/// Python's own types, under the module's old and new name; `getattr` is how DCP names the members of an enum.
constexpr std::string_view kBuiltins[] = {"set",     "frozenset", "list",  "dict",    "tuple",     "int",
                                          "float",   "bool",      "str",   "complex", "bytearray", "bytes",
                                          "getattr", "slice",     "range", "object"};

/// In module torch.
constexpr std::string_view kStorages[] = {
    "DoubleStorage",  "FloatStorage",         "HalfStorage",        "BFloat16Storage", "LongStorage",
    "IntStorage",     "ShortStorage",         "CharStorage",        "ByteStorage",     "BoolStorage",
    "UntypedStorage", "ComplexDoubleStorage", "ComplexFloatStorage"};
constexpr std::string_view kTorchNames[] = {"float64",
                                            "float32",
                                            "float16",
                                            "bfloat16",
                                            "int64",
                                            "int32",
                                            "int16",
                                            "int8",
                                            "uint8",
                                            "uint16",
                                            "uint32",
                                            "uint64",
                                            "bool",
                                            "complex64",
                                            "complex128",
                                            "strided",
                                            "float",
                                            "float8_e4m3fn",
                                            "float8_e5m2",
                                            "preserve_format",
                                            "contiguous_format"};

std::vector<PickleGlobal> make_table() {
  std::vector<PickleGlobal> table(std::begin(kNames), std::end(kNames));
  for (const std::string_view name : kBuiltins) {
    table.push_back({"builtins", name});
    table.push_back({"__builtin__", name});
  }
  for (const std::string_view name : kStorages) table.push_back({"torch", name});
  for (const std::string_view name : kTorchNames) table.push_back({"torch", name});
  return table;
}

}  // namespace

const PickleGlobal* find_pickle_global(std::string_view module, std::string_view name) {
  static const std::vector<PickleGlobal> table = make_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const PickleGlobal& known) { return known.is(module, name); });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace trireme::checkpoint
