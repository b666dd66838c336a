#include "trireme/checkpoint/model_tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/model.h"

namespace trireme::checkpoint {

void check_model_tensors(const model::ModelConfig& config, std::span<const SourceTensor> tensors,
                         const std::string& path) {
  const auto fail = [&](const std::string& problem, const std::string& tensor) {
    throw CheckpointError(fmt::format("{} is not a whole model: {}; where it is one part of several, name a file or "
                                      "folder that holds them all",
                                      path, problem),
                          path, tensor);
  };
  if (config.num_hidden_layers > static_cast<int64_t>(tensors.size()))
    fail(fmt::format("it has {} tensors for {} blocks", tensors.size(), config.num_hidden_layers), "");
  std::map<std::string_view, const SourceTensor*> there;
  for (const SourceTensor& tensor : tensors) there[tensor.name] = &tensor;
  const model::Model model = model::build_model(config, {at::kFloat, at::kFloat});
  std::string first, first_name;
  int64_t wrong = 0;
  for (const model::ParameterGroup& group : model.groups) {
    for (const model::ParameterSpec& parameter : group.parameters) {
      const auto found = there.find(parameter.name);
      const std::vector<int64_t> shape = parameter.whole_shape();
      if (found != there.end() && found->second->shape == shape) continue;
      if (wrong++ > 0) continue;
      first_name = parameter.name;
      first = found == there.end() ? fmt::format("tensor '{}' {} is missing", parameter.name, shape_text(shape))
                                   : fmt::format("tensor '{}' has shape {} instead of {}", parameter.name,
                                                 shape_text(found->second->shape), shape_text(shape));
    }
  }
  if (wrong > 0) fail(first + (wrong > 1 ? fmt::format(" (and {} more are)", wrong - 1) : ""), first_name);
}

}  // namespace trireme::checkpoint
