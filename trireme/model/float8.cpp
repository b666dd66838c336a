#include "trireme/model/float8.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/model/block_layout.h"

namespace trireme::model {
namespace {

constexpr int64_t kGpuMultiple = 16;  // of every size of a product

[[noreturn]] void refuse(const std::string& why) {
  throw UsageError("precision fp8-mixed: " + why + "; set precision bf16-mixed");
}

}  // namespace

void check_float8(const ModelConfig& c, const Parallel& parallel, const Precision& precision, const Adapters& adapters,
                  const Objective& objective) {
  if (!precision.float8) return;
  if (c.is_free()) refuse("the products of a Free Transformer are not built for 8 bits");
  if (c.quantized != base::BlockFormat::none) refuse("this model's matrices lie in blocks of few bits already");
  if (objective.is_policy())
    refuse("answers are sampled token by token, where numbers would be rounded otherwise than in training");
  for (const auto& [module, adapter] : adapters.modules)
    if (adapter.dora)
      refuse(fmt::format("the adapter of {} has magnitudes (DoRA), which need the whole product", module));
  if (!precision.on_gpu) return;
  const BlockWidths widths = block_widths(c, parallel);
  for (const auto& [name, size] : {std::pair{"the model's width", widths.width},
                                   {"q|k|v", widths.qkv_width()},
                                   {"the heads", widths.q_width()},
                                   {"the MLP", widths.mlp}})
    if (size % kGpuMultiple != 0)
      refuse(fmt::format(
          "a GPU multiplies matrices whose sizes are multiples of {}, and a rank's {} columns of {} are not",
          kGpuMultiple, size, name));
}

}  // namespace trireme::model
