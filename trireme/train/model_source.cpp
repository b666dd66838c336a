#include "trireme/train/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/checkpoint/tied_head.h"
#include "trireme/model/embedding.h"
#include "trireme/model/tensor_names.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {

// Whether the numbers of both heads' labels mean the same. Labels without names, LABEL_0 and LABEL_1, may get some.
bool same_labels(const std::vector<std::string>& old, const std::vector<std::string>& now) {
  if (old.size() != now.size()) return false;
  for (size_t i = 0; i < old.size(); ++i)
    if (old[i] != now[i] && old[i] != fmt::format("LABEL_{}", i)) return false;
  return true;
}

// Whether the folder's head is for other labels than the model's. A resumed run keeps its labels.
bool has_other_labels(const checkpoint::Checkpoint& folder, const model::ModelConfig& config, bool may_lack_head) {
  const std::vector<std::string> old =
      model::parse_hugging_face_config(checkpoint::read_text(folder, "config.json"), folder.path.string())
          .classifier.labels;
  if (same_labels(old, config.classifier.labels)) return false;
  if (may_lack_head) return true;
  throw CheckpointError(
      fmt::format("{} has a head for the labels {}, and model.labels are {}; leave model.labels out to go on, or begin "
                  "a new run from that folder: trireme finetune_full FOLDER --task classify",
                  folder.path.string(), base::join(old, ", "), base::join(config.classifier.labels, ", ")),
      folder.path.string());
}

bool is_side_file(const fs::path& path) {
  static const std::set<std::string> kinds = {".json", ".txt", ".model", ".jinja", ".tiktoken", ".md"};
  const std::string name = path.filename().string();
  // Hidden files are ignored: macOS leaves "._tokenizer.json" beside a tokenizer.json, and checkpoints refuse such
  // names.
  return checkpoint::is_plain_name(name) && kinds.contains(path.extension().string()) && name != "config.json" &&
         name != checkpoint::kManifestName && name != checkpoint::kStateName &&
         !name.ends_with(".safetensors.index.json");
}

// What may be given by mistake if tensors are missing or have other shapes.
std::string way_out_of_other_shapes(const checkpoint::Checkpoint& folder, const model::ModelConfig& config) {
  if (!config.is_free()) return "its config.json, or a setting under model., belongs to other weights";
  const model::ModelConfig own =
      model::parse_hugging_face_config(checkpoint::read_text(folder, "config.json"), folder.path.string());
  if (own.is_free()) return "its config.json, or a setting under model. or free., belongs to other weights";
  return fmt::format(
      "free.latent_bits makes a new Free Transformer, and this folder has the weights of a plain {}: give "
      "--model.from_scratch true to draw new ones, or leave free.latent_bits out",
      model::model_type(own.architecture));
}

constexpr const char* kBuildFromSameParts = "build the model with the parts that saved it (trireme::wrap)";

}  // namespace

ModelSource describe_source(const checkpoint::Checkpoint& folder, const model::Model& model,
                            const SourceOptions& options) {
  ModelSource s;
  const std::string first = model.groups.at(0).parameters.at(0).name;
  s.naming = checkpoint::naming_of(folder, first);
  const bool classifies = model.config.is_classifier(), tied = model.config.tie_word_embeddings && !classifies;
  const bool other_labels = classifies && has_other_labels(folder, model.config, options.may_lack_head);
  const std::string labels = model::tensor_names(model.config.architecture).classifier + std::string(".");
  s.head = model::head_table_name(model.config.architecture);
  if (tied) s.tied = first;
  std::set<std::string> used;
  std::vector<checkpoint::TensorSpec> expected;
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters) {
      if (model::is_adapter(p.name)) continue;
      const std::string name = s.name_of(p.name);
      const auto stored = folder.tensors.find(name);
      if (options.may_lack_head && p.may_be_new &&
          (stored == folder.tensors.end() || stored->second.shape != p.whole_shape() ||
           (other_labels && p.name.starts_with(labels)))) {
        s.fresh.insert(p.name);
        continue;
      }
      expected.push_back({name, p.whole_shape()});
      used.insert(name);
    }
  for (const auto& [name, tensor] : folder.tensors) {
    const std::string file = folder.files[static_cast<size_t>(tensor.file)]->path().filename().string();
    if (file.starts_with("optimizer-")) continue;
    if (used.contains(name))
      s.tensors[name] = {tensor.dtype, file, folder.has_tensor(name + ".master")};
    else if (model.is_wrapped())
      checkpoint::check_unused_tensor(name, model.config, folder.path.string(), kBuildFromSameParts);
    else
      checkpoint::check_unused_tensor(name, model.config, folder.path.string());
  }
  if (model.is_wrapped()) {
    checkpoint::check_tensors(folder, expected, kBuildFromSameParts);
    return s;
  }
  if (!tied && !classifies && !folder.has_tensor("lm_head.weight") && s.naming.strip == "model." &&
      s.naming.add.empty())
    throw CheckpointError(
        fmt::format(
            "{} holds a model without a head, and its config.json does not tie the head to the embedding: a head "
            "would begin with random values; train it with model.tie_word_embeddings true, or take the model's "
            "folder with lm_head.weight",
            folder.path.string()),
        folder.path.string(), "lm_head.weight");
  checkpoint::check_tensors(folder, expected, way_out_of_other_shapes(folder, model.config));
  if (tied) checkpoint::check_tied_head(checkpoint::SafetensorsSource(folder), s.name_of(first), folder.path.string());
  if (!options.side_files) return s;
  if (fs::exists(folder.path / "model.safetensors.index.json"))
    s.index_json = base::read_side_file(folder.path / "model.safetensors.index.json");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path))
    if (entry.is_regular_file() && is_side_file(entry.path()) &&
        entry.file_size() <= static_cast<uintmax_t>(base::kLargestSideFile))
      s.side_files[entry.path().filename().string()] = base::read_side_file(entry.path());
  return s;
}

}  // namespace trireme::train
