// The names that checkpoints need. Nothing here is ever called; a name that is absent is refused.
#include <algorithm>

#include "trireme/formats/torch/pickle_machine.h"

namespace trireme::formats {
namespace {

using Role = PickleGlobal::Role;

/// Names of one module, with blanks between.
struct Names {
  std::string_view module;
  std::string_view names;
  Role role = Role::inert;
};

/// Python's own types; `getattr` is how DCP names the members of an enum.
constexpr std::string_view kBuiltins =
    "set frozenset list dict tuple int float bool str complex bytearray bytes getattr slice range object";

constexpr Names kNames[] = {
    {"collections", "OrderedDict defaultdict", Role::mapping},
    {"collections", "Counter"},
    {"builtins", kBuiltins},
    {"__builtin__", kBuiltins},  // the older name of the module
    {"torch", "Size", Role::argument},
    {"torch",
     "device DoubleStorage FloatStorage HalfStorage BFloat16Storage LongStorage IntStorage ShortStorage CharStorage "
     "ByteStorage BoolStorage UntypedStorage ComplexDoubleStorage ComplexFloatStorage float64 float32 float16 bfloat16 "
     "int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128 strided float float8_e4m3fn "
     "float8_e5m2 preserve_format contiguous_format"},
    {"torch._utils",
     "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter _rebuild_parameter_with_state"},
    {"torch.serialization", "_get_layout"},
    {"torch.storage", "UntypedStorage TypedStorage"},
    {"torch.distributed.checkpoint.metadata",
     "Metadata MetadataIndex StorageMeta TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata "
     "TensorProperties _MEM_FORMAT_ENCODING"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo _StoragePrefix"},
    {"pathlib", "PosixPath PurePosixPath WindowsPath"},
    {"pathlib._local", "PosixPath"},
    {"argparse", "Namespace"},
    {"_codecs", "encode"},
    {"numpy", "dtype ndarray"},
    {"numpy.core.multiarray", "scalar _reconstruct"},
    {"numpy._core.multiarray", "scalar _reconstruct"},
};

std::vector<PickleGlobal> make_table() {
  std::vector<PickleGlobal> table;
  for (const auto& [module, names, role] : kNames)
    for (size_t begin = 0, end = 0; begin < names.size(); begin = end + 1) {
      end = std::min(names.find(' ', begin), names.size());
      table.push_back({module, names.substr(begin, end - begin), role});
    }
  return table;
}

}  // namespace

const PickleGlobal* find_pickle_global(std::string_view module, std::string_view name) {
  static const std::vector<PickleGlobal> table = make_table();
  const auto found = std::ranges::find_if(table, [&](const PickleGlobal& known) { return known.is(module, name); });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace trireme::formats
