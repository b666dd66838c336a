#include "trireme/formats/whole_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/formats/scaled_floats.h"
#include "trireme/model/embedding.h"
#include "trireme/model/model.h"

namespace trireme::formats {
namespace {

std::vector<std::string> names_of(std::span<const TensorSpec> tensors) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  return names;
}

const std::string& first_parameter(const model::Model& model) { return model.groups.at(0).parameters.at(0).name; }

}  // namespace

std::string wrapper_prefix(const model::ModelConfig& config, std::span<const TensorSpec> tensors) {
  const std::vector<std::string> names = names_of(tensors);
  if (config.num_hidden_layers > std::ssize(names)) return "";  // whatever config.json says, it is not that model
  const std::string first = first_parameter(model::build_model(config, {at::kFloat, at::kFloat}));
  const auto fits = [&](size_t from) {
    std::vector<std::string> rest;
    for (const std::string& name : names) rest.push_back(name.substr(from));
    return std::ranges::count(rest, checkpoint::naming_of(rest, first).name_of(first)) > 0;
  };
  // The shortest prefix counts: a model without its head has names that begin with "model.", too.
  for (size_t end = 0; end != std::string::npos;) {
    const std::string prefix = names.front().substr(0, end);
    if (!std::ranges::all_of(names, [&](const std::string& name) { return name.starts_with(prefix); })) return "";
    if (fits(end)) return prefix;
    const size_t dot = names.front().find('.', end);
    end = dot == std::string::npos ? dot : dot + 1;
  }
  return "";
}

void check_model_tensors(const model::ModelConfig& config, std::span<const TensorSpec> tensors, const std::string& path,
                         bool may_vary) {
  const auto fail = [&](const std::string& problem, const std::string& tensor) {
    throw CheckpointError(
        fmt::format(
            "{} is not a whole model: {}; if it is one part of several, name the file or folder that holds them all",
            path, problem),
        path, tensor);
  };
  if (config.num_hidden_layers > std::ssize(tensors))
    fail(fmt::format("it has {} tensors for {} blocks", tensors.size(), config.num_hidden_layers), "");
  std::map<std::string_view, const TensorSpec*> there;
  for (const TensorSpec& tensor : tensors) there[tensor.name] = &tensor;
  const model::Model model = model::build_model(config, {at::kFloat, at::kFloat});
  const checkpoint::Naming naming =
      may_vary ? checkpoint::naming_of(names_of(tensors), first_parameter(model)) : checkpoint::Naming{};
  const std::string head = model::head_table_name(config.architecture);
  // transformers' AutoModel saves models without their heads, and without the prefix of their names.
  const bool may_lack_head = may_vary && (config.tie_word_embeddings || !naming.strip.empty() || !naming.add.empty());
  std::string first, first_name;
  int64_t wrong = 0;
  std::set<std::string> used;
  for (const model::ParameterGroup& group : model.groups) {
    for (const model::ParameterSpec& parameter : group.parameters) {
      const std::string& name = *used.insert(naming.name_of(parameter.name)).first;
      const auto found = there.find(name);
      const std::vector<int64_t>& shape = parameter.whole_shape();
      const bool is_there = found != there.end();
      // Codes of 8 bits are read with their scales, or refused, by others.
      const bool holds_numbers =
          is_there && (checkpoint::is_float(found->second->dtype) || found->second->dtype >= Dtype::f8_e4m3);
      if (is_there && found->second->shape == shape && holds_numbers) continue;
      if (may_vary && parameter.may_be_new) continue;
      if (may_lack_head && !is_there && parameter.name == head) continue;
      if (wrong++ > 0) continue;
      first_name = name;
      if (!is_there)
        first = fmt::format("tensor '{}' {} is missing", name, shape_text(shape));
      else if (found->second->shape != shape)
        first = fmt::format("tensor '{}' has shape {} instead of {}", name, shape_text(found->second->shape),
                            shape_text(shape));
      else
        first = fmt::format("tensor '{}' holds {}, no floating-point numbers", name,
                            checkpoint::dtype_name(found->second->dtype));
    }
  }
  if (wrong > 0) fail(first + (wrong > 1 ? fmt::format(" (and {} more are)", wrong - 1) : ""), first_name);
  for (const TensorSpec& tensor : tensors)
    if (!used.contains(tensor.name)) checkpoint::check_unused_tensor(tensor.name, config, path);
}

std::optional<model::ModelConfig> known_model(const std::string& config_json, int64_t num_tensors) {
  if (config_json.empty()) return std::nullopt;
  try {
    model::ModelConfig config = model::parse_hugging_face_config(config_json, "config.json");
    if (config.quantized != base::BlockFormat::none) return std::nullopt;
    if (config.num_hidden_layers <= num_tensors) model::build_model(config, {at::kFloat, at::kFloat});
    return config;
  } catch (const Error&) {  // it is copied, whatever it says
    return std::nullopt;
  }
}

void check_model_folder(const std::filesystem::path& folder) {
  const checkpoint::SafetensorsSource source(checkpoint::open_checkpoint(folder));
  const checkpoint::Checkpoint& c = source.checkpoint();
  const bool has_config = c.texts.contains("config.json") || std::filesystem::exists(c.path / "config.json");
  if (!has_config || c.quantized != nullptr || has_scaled_floats(source)) return;
  const auto config = known_model(checkpoint::read_text(c, "config.json"), std::ssize(source.tensors()));
  if (config) check_model_tensors(*config, source.tensors(), c.path.string(), /*may_vary=*/true);
}

}  // namespace trireme::formats
