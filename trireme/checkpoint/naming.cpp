#include "trireme/checkpoint/naming.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/model/config.h"

namespace trireme::checkpoint {
namespace {

// Tensors that no text model trains: buffers in old files, masks, other parts of a multimodal model. A model with
// labels leaves out the heads of other uses.
bool is_ignored(const std::string& name, const model::ModelConfig& config) {
  for (const char* suffix : {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
                             ".attention.masked_bias", "embeddings.position_ids"})
    if (name.ends_with(suffix)) return true;
  if (config.is_classifier())
    for (const char* head : {"cls.", "lm_head.", "embed_out.", "vocab_transform.", "vocab_layer_norm.",
                             "vocab_projector.", "roberta.pooler.", "pooler.", "qa_outputs.", "classifier.", "score."})
      if (name.starts_with(head)) return true;
  const bool tied = config.tie_word_embeddings;
  for (const char* part : {"vision_tower.", "multi_modal_projector.", "visual."})
    if (name.starts_with(part) || name.starts_with(std::string("model.") + part)) return true;
  return tied && is_head(name);
}

}  // namespace

std::string Naming::name_of(const std::string& ours) const {
  if (strip.empty() && ours.starts_with("score.")) return ours;  // the head for labels is the whole model's
  std::string name = ours.starts_with(strip) ? add + ours.substr(strip.size()) : ours;
  if (!old_norms) return name;
  for (const auto& [newer, older] : {std::pair(".weight", ".gamma"), {".bias", ".beta"}})
    if (const std::string norm = std::string("LayerNorm") + newer; name.ends_with(norm))
      return name.substr(0, name.rfind(newer)) + older;
  return name;
}

Naming in_vision_model() { return {"model.", "model.language_model.", true}; }

Naming naming_of(const Checkpoint& folder, const std::string& ours) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : folder.tensors) names.push_back(name);
  return naming_of(names, ours);
}

Naming naming_of(const std::vector<std::string>& names, const std::string& ours) {
  static const Naming kNamings[] = {{"", ""},
                                    {"transformer.", ""},
                                    {"model.", "", true},
                                    {"bert.", "", true},
                                    {"roberta.", "", true},
                                    {"distilbert.", "", true},
                                    {"", "language_model.", true},
                                    in_vision_model()};
  for (Naming naming : kNamings) {
    if (!ours.starts_with(naming.strip) || std::ranges::count(names, naming.name_of(ours)) == 0) continue;
    naming.old_norms = std::ranges::any_of(names, [](const auto& name) { return name.ends_with("LayerNorm.gamma"); });
    naming.is_part = naming.is_part || naming.old_norms;
    return naming;
  }
  return {};
}

bool is_head(const std::string& name) { return name.ends_with("lm_head.weight") || name == "embed_out.weight"; }

void check_unused_tensor(const std::string& name, const model::ModelConfig& config, const std::string& folder,
                         std::string_view because) {
  if (is_ignored(name, config)) return;
  throw CheckpointError(
      fmt::format("{} holds the tensor '{}', which this model does not use: {}", folder, name, because), folder, name);
}

}  // namespace trireme::checkpoint
