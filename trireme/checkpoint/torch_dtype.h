// PyTorch's names of element types: "float32" and "FloatStorage" are our F32.
#pragma once

#include <optional>
#include <string_view>

#include "trireme/checkpoint/dtype.h"
#include "trireme/checkpoint/pickle.h"

namespace trireme::checkpoint {

/// Of torch.float32 or torch.FloatStorage; nothing for others and for nullptr.
std::optional<Dtype> torch_dtype(const PickleGlobal* global);
/// "float32"
std::string_view torch_dtype_name(Dtype dtype);
/// "FloatStorage"; empty for the types that PyTorch stores untyped (unsigned beyond 8 bits, 8-bit floats).
std::string_view torch_storage_name(Dtype dtype);

}  // namespace trireme::checkpoint
