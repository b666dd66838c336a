#include "trireme/train/without_dropout.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::train {

void leave_out_dropout(ParsedSettings& parsed, std::string_view why) {
  Settings& s = parsed.settings;
  for (const auto& [key, rate] : {std::pair{"model.attention_dropout", s.model.attention_dropout},
                                  {"model.residual_dropout", s.model.residual_dropout},
                                  {"model.mlp_dropout", s.model.mlp_dropout},
                                  {"model.embedding_dropout", s.model.embedding_dropout},
                                  {"lora.dropout", std::optional(s.lora.dropout)}})
    if (parsed.given(key) && rate.value_or(0) > 0)
      throw UsageError(fmt::format("{} {:g} {}: leave it out", key, *rate, why));
  s.model.attention_dropout = s.model.residual_dropout = s.model.mlp_dropout = s.model.embedding_dropout = 0;
  s.lora.dropout = 0;
  s.lora.without_dropout = true;
}

}  // namespace trireme::train
