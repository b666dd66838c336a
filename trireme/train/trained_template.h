// In which chat template a model was trained. A run may write conversations in another one than the model's folder
// names (data.chat_template; Alpaca's form without one), and a model that is asked in another template answers badly.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trireme::train {

struct KnownTemplate {
  std::string name;  ///< of a family (text/chat_template.h)
  std::filesystem::path trained;  ///< the checkpoint that was trained in it; empty: the files of the model name it

  /// "template alpaca, in which out/mine was trained" if the files of the model in `weights` do not say the same;
  /// else "".
  std::string remark(const std::filesystem::path& weights) const;
};

/// What conversations with a model are written in, unless the user names a template: that in which the adapter was
/// trained, that of the training of the weights, or the one that the model's files name. `adapter` may be empty; it and
/// `weights` may be a run's folder.
/// Errors    CheckpointError for a damaged trireme_state.json
std::optional<KnownTemplate> template_of_model(const std::filesystem::path& weights,
                                               const std::filesystem::path& adapter = {});

}  // namespace trireme::train
