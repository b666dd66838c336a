#include "trireme/adapt/adapter_folder.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/quantized_tensors.h"

namespace trireme::adapt {
namespace {

namespace fs = std::filesystem;

/// What an adapter's checkpoint says about its base: {"base": {"path", "fingerprint"}} in trireme_state.json.
void read_base_record(AdapterFolder& folder) {
  const nlohmann::json state = base::parse_json_if_sound(folder.files.state_json);
  if (!state.is_object() || !state.contains("base") || !state["base"].is_object()) return;
  const auto text = [&](const char* key) {
    const auto found = state["base"].find(key);
    return found != state["base"].end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (!text("path").empty()) folder.base_path = text("path");
  folder.base_fingerprint = text("fingerprint");
}

/// The adapter's tensors, without those of its optimizer and of a copied base.
bool is_adapter_file(const fs::path& path) { return path.filename() == kAdapterModelName; }

void erase_part(std::string& name, std::string_view part, std::string_view instead) {
  if (const size_t at = name.find(part); at != std::string::npos) name.replace(at, part.size(), instead);
}

/// The name that adapter_tensors() gives to a file's tensor. Modules that are saved whole may be named through PEFT's
/// wrapper around them.
std::string our_name(std::string name) {
  if (name.starts_with(model::kPeftPrefix)) name.erase(0, std::string_view(model::kPeftPrefix).size());
  erase_part(name, ".modules_to_save.default.", ".");
  erase_part(name, ".modules_to_save.", ".");
  if (name.ends_with(".lora_magnitude_vector.weight")) name.resize(name.size() - std::string_view(".weight").size());
  return name;
}

/// The same for a folder with other names.
std::string our_name(const std::string& file_name, const checkpoint::Naming& naming) {
  std::string name = our_name(file_name);
  if (!naming.add.empty() && name.starts_with(naming.add)) name.replace(0, naming.add.size(), naming.strip);
  return name;
}

/// The base's tensor that a tensor is a copy of; nothing if it is none.
std::optional<std::string> copied_from(std::string name, const std::vector<Module>& modules) {
  erase_part(name, ".base_layer.", ".");
  erase_part(name, ".original_module.", ".");
  for (const Module& m : modules) {
    if (name == m.name + ".weight" && (m.kind == Module::Kind::embedding || m.is_head)) return m.weight;
    if (!m.bias.empty() && name == m.name + ".bias" && m.is_head) return m.bias;
  }
  return std::nullopt;
}

/// Collects what does not fit, and tells of the first.
class Misfits {
 public:
  void add(const std::string& tensor, std::string problem) {
    if (count_++ > 0) return;
    tensor_ = tensor;
    problem_ = std::move(problem);
  }
  void refuse(const AdapterFolder& folder) const {
    if (count_ == 0) return;
    throw CheckpointError(
        fmt::format("the adapter {} does not fit this model: {}{}; it was trained on another base{}, or its {} is not "
                    "its own",
                    folder.path.string(), problem_, count_ > 1 ? fmt::format(" (and {} more differ)", count_ - 1) : "",
                    folder.base_path.empty() ? "" : fmt::format(" ({})", folder.base_path), kAdapterConfigName),
        folder.path.string(), tensor_);
  }

 private:
  int64_t count_ = 0;
  std::string tensor_, problem_;
};

}  // namespace

bool is_adapter_folder(const fs::path& folder) { return base::is_file(folder / kAdapterConfigName); }

bool holds_base(const fs::path& folder) {
  return is_adapter_folder(folder) && base::is_file(folder / "config.json") &&
         base::is_file(folder / checkpoint::kManifestName);
}

checkpoint::Checkpoint open_base(const fs::path& folder) {
  checkpoint::Checkpoint base = checkpoint::with_stored_blocks(checkpoint::open_checkpoint(folder));
  checkpoint::warn_if_ruined(base.path, base.manifest.ruined);
  if (!is_adapter_folder(folder)) return base;
  if (!holds_base(folder))
    throw CheckpointError(fmt::format("{} is an adapter without its base (checkpoint.base reference)", folder.string()),
                          folder.string());
  std::erase_if(base.tensors, [&](const auto& tensor) {
    const fs::path& file = base.files[static_cast<size_t>(tensor.second.file)]->path();
    return is_adapter_file(file) || checkpoint::is_optimizer_file(file);
  });
  return base;
}

std::string no_adapters_file(const fs::path& file) {
  return fmt::format(
      "{0} is a file, and an adapter is a folder with {1}: name its folder; of a GGUF file, trireme convert {2} OUT "
      "makes one",
      file.string(), kAdapterConfigName, base::shell_quoted(file.string()));
}

AdapterFolder open_adapter_folder(const fs::path& given) {
  if (!fs::exists(given)) throw CheckpointError(fmt::format("there is no folder {}", given.string()), given.string());
  const fs::path path = is_adapter_folder(given) ? given : checkpoint::newest_or_itself(given);
  if (fs::is_regular_file(given)) throw CheckpointError(no_adapters_file(given), given.string());
  if (!is_adapter_folder(path))
    throw CheckpointError(fmt::format("{} holds no adapter: there is no {} in it", given.string(), kAdapterConfigName),
                          given.string());
  if (!fs::exists(path / kAdapterModelName))
    throw CheckpointError(
        fmt::format("{} has no {}{}", path.string(), kAdapterModelName,
                    fs::exists(path / "adapter_model.bin")
                        ? ", only adapter_model.bin; load it in PEFT and save it again, which writes safetensors"
                        : ""),
        path.string());
  AdapterFolder folder{.path = path};
  folder.files = fs::exists(path / checkpoint::kManifestName)
                     ? checkpoint::open_checkpoint(path)
                     : checkpoint::open_files(path, std::array<std::string, 1>{kAdapterModelName});
  checkpoint::warn_if_ruined(folder.files.path, folder.files.manifest.ruined);
  folder.config = parse_adapter_config(checkpoint::read_text(folder.files, kAdapterConfigName),
                                       (path / kAdapterConfigName).string());
  folder.base_path = folder.config.base_model_name_or_path;
  read_base_record(folder);
  folder.holds_base = holds_base(path);
  return folder;
}

checkpoint::Naming naming_in(const checkpoint::Checkpoint& files, const std::string& ours) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : files.tensors)
    if (name.starts_with(model::kPeftPrefix)) names.push_back(our_name(name));  // not those of a copied base
  const checkpoint::Naming naming = checkpoint::naming_of(names, ours);
  return naming.add.empty() ? checkpoint::Naming{} : naming;
}

FittedAdapter fit(const AdapterFolder& folder, const model::ModelConfig& config) {
  FittedAdapter fitted;
  try {
    fitted.adapters = resolve(folder.config, config);
  } catch (const UsageError& error) {
    throw CheckpointError(fmt::format("{}: {}", (folder.path / kAdapterConfigName).string(), error.what()),
                          folder.path.string());
  }
  std::map<std::string, std::vector<int64_t>> expected;
  for (AdapterTensor& tensor : adapter_tensors(fitted.adapters, config))
    expected[tensor.name] = std::move(tensor.shape);
  const checkpoint::Naming naming = naming_in(folder.files, std::prev(expected.end())->first);
  // The last by name: any but lm_head's, which has one name in both.
  const std::vector<Module> modules = modules_of(config);
  std::set<std::string> matched;
  Misfits misfits;
  for (const auto& [file_name, stored] : folder.files.tensors) {
    if (!is_adapter_file(folder.files.files[static_cast<size_t>(stored.file)]->path())) continue;
    const std::string name = our_name(file_name, naming);
    if (const auto found = expected.find(name); found != expected.end()) {
      if (stored.shape != found->second) {
        misfits.add(file_name,
                    fmt::format("its tensor '{}' has shape {}, and {} is asked for", file_name,
                                checkpoint::shape_text(stored.shape), checkpoint::shape_text(found->second)));
      } else if (!checkpoint::is_float(stored.dtype)) {
        misfits.add(file_name, fmt::format("its tensor '{}' is {}, which holds no plain numbers", file_name,
                                           checkpoint::dtype_name(stored.dtype)));
      }
      if (!matched.insert(name).second)
        misfits.add(file_name, fmt::format("its tensors '{}' and '{}' are one", fitted.file_names[name], file_name));
      fitted.file_names[name] = file_name;
    } else if (const auto copy = copied_from(name, modules)) {
      fitted.base_copies[file_name] = *copy;
    } else {
      misfits.add(file_name, fmt::format("its tensor '{}' has no place in it{}", file_name,
                                         config.is_text_half ? ", of which only the text half is read" : ""));
    }
  }
  for (const auto& [name, shape] : expected)
    if (!matched.contains(name))
      misfits.add(name, fmt::format("its tensor '{}{}' of shape {} is missing", model::kPeftPrefix,
                                    naming.name_of(name), checkpoint::shape_text(shape)));
  misfits.refuse(folder);
  return fitted;
}

}  // namespace trireme::adapt
