#include "trireme/checkpoint/tensor_source.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::checkpoint {

Dtype dtype_for(const SourceTensor& tensor, std::optional<Dtype> wanted) {
  if (!wanted || tensor.dtype == *wanted) return tensor.dtype;
  if (is_scaled(tensor.dtype))
    throw UsageError(
        fmt::format("error: tensor '{}' is {}: its values need scales from other tensors, which are not applied here, "
                    "so it cannot become {}\n  take the model's {} files, or leave --dtype out to copy it as it is",
                    tensor.name, dtype_name(tensor.dtype), dtype_name(*wanted), dtype_name(*wanted)));
  return is_float(tensor.dtype) ? *wanted : tensor.dtype;
}

}  // namespace trireme::checkpoint
