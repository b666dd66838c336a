#include "trireme/adapt/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trireme/adapt/merge.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/checkpoint/quantized_tensors.h"
#include "trireme/model/model.h"
#include "trireme/model/quantized.h"

namespace trireme::adapt {
namespace {

namespace fs = std::filesystem;

fs::path newest(const fs::path& folder) {
  return is_adapter_folder(folder) ? folder : checkpoint::newest_or_itself(folder);
}

void check_exists(const fs::path& folder) {
  if (fs::exists(folder)) return;
  throw UsageError(
      fmt::format("there is no folder {}: give a checkpoint, a run's out_dir or a Hugging Face folder; nothing is "
                  "downloaded, and a shape's name (llama-5m) has no weights",
                  folder.string()));
}

}  // namespace

fs::path adapter_of(const ModelPlace& place) {
  check_exists(place.model);
  const fs::path model = newest(place.model);
  if (!is_adapter_folder(model)) {
    if (!place.base.empty())
      throw UsageError(fmt::format("--base says where an adapter's base lies, and {} is no adapter", model.string()));
    return place.adapter.empty() ? fs::path() : newest(place.adapter);
  }
  if (!place.adapter.empty())
    throw UsageError(fmt::format("--adapter goes with a base model, and {} is an adapter itself; name its base first",
                                 model.string()));
  return model;
}

fs::path base_of(const AdapterFolder& adapter, const fs::path& given) {
  if (given.empty() && adapter.holds_base) return adapter.path;
  const fs::path named = given.empty() ? fs::path(adapter.base_path) : given;
  if (named.empty())
    throw UsageError(
        fmt::format("the adapter {} does not say which model it belongs to; name its base with --base PATH",
                    adapter.path.string()));
  if (!fs::exists(named))
    throw UsageError(
        fmt::format("the base of the adapter {}, {}, is not there; if it lies elsewhere, say so with --base PATH ({})",
                    adapter.path.string(), named.string(), base::kFetchFirst));
  const fs::path folder = newest(named);
  if (is_adapter_folder(folder) && !holds_base(folder))
    throw UsageError(
        fmt::format("the base of the adapter {}, {}, is itself an adapter; merge that one first, with "
                    "trireme merge_lora, and name the result with --base PATH",
                    adapter.path.string(), folder.string()));
  return folder;
}

fs::path weights_of(const ModelPlace& place) {
  const fs::path adapter = adapter_of(place);
  if (adapter.empty() || !place.adapter.empty()) return newest(place.model);
  return base_of(open_adapter_folder(adapter), place.base);
}

namespace {

/// The base of the place's adapter, in the place's format.
checkpoint::Checkpoint base_in_format(const ModelPlace& place, const AdapterFolder& adapter) {
  checkpoint::Checkpoint base = open_base(place.adapter.empty() ? base_of(adapter, place.base) : newest(place.model));
  return place.quantize == base::BlockFormat::none ? base : in_format(std::move(base), place.quantize);
}

bool only_in_blocks(const model::Adapters& adapters, const std::vector<Module>& modules) {
  const auto stands_beside = [&](const auto& module) {
    const auto& [name, spec] = module;
    return !spec.dora && !spec.bias && name != modules.front().name && name != "lm_head";
  };
  return adapters.whole.empty() && std::ranges::all_of(adapters.modules, stands_beside);
}

}  // namespace

std::optional<Beside> open_beside(const ModelPlace& place) {
  const fs::path path = adapter_of(place);
  if (path.empty()) return std::nullopt;
  Beside beside{.adapter = open_adapter_folder(path)};
  beside.base = base_in_format(place, beside.adapter);
  if (beside.base.quantized == nullptr) return std::nullopt;
  const model::ModelConfig config = model::parse_hugging_face_config(checkpoint::read_text(beside.base, "config.json"),
                                                                     (beside.base.path / "config.json").string());
  beside.fitted = fit(beside.adapter, config);
  if (config.is_free() || !only_in_blocks(beside.fitted.adapters, modules_of(config))) return std::nullopt;
  check_base(beside.base, beside.adapter);
  return beside;
}

checkpoint::Checkpoint open_model(const ModelPlace& place, std::vector<std::string>* notes) {
  const fs::path path = adapter_of(place);
  if (path.empty()) return open_base(newest(place.model));
  const AdapterFolder adapter = open_adapter_folder(path);
  return with_adapter(base_in_format(place, adapter), adapter, notes);
}

checkpoint::Checkpoint in_format(checkpoint::Checkpoint c, base::BlockFormat format) {
  model::ModelConfig config =
      model::parse_hugging_face_config(checkpoint::read_text(c, "config.json"), (c.path / "config.json").string());
  model::quantize(config, format, c.path.string());
  if (c.quantized != nullptr) return c;
  const model::Model model = model::build_model(config, {});
  const checkpoint::Naming naming = checkpoint::naming_of(c, model.groups.at(0).parameters.at(0).name);
  std::set<std::string> matrices;
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters)
      if (p.is_quantized()) matrices.insert(naming.name_of(p.name));
  return checkpoint::in_blocks(std::move(c), format,
                               [matrices](const std::string& name) { return matrices.contains(name); });
}

}  // namespace trireme::adapt
