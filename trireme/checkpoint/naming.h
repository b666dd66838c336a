// Folders whose tensor names begin differently from ours: early uploads of GPT-2; models without a head (LlamaModel,
// BertModel), which are saved with one; and vision models, whose text half is saved as a model of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/load.h"

namespace trireme::model {
struct ModelConfig;
}

namespace trireme::checkpoint {

struct Naming {
  std::string strip, add;  ///< the folder's names have the prefix `add` where ours have `strip`
  bool is_part = false;    ///< the folder holds more or less than this model
  bool old_norms = false;  ///< early BERTs have LayerNorm.gamma and .beta; they are saved under the newer names

  /// The folder's name of a tensor.
  std::string name_of(const std::string& ours) const;
};

/// The names that a whole vision model has for its text half, which is our model.
Naming in_vision_model();

/// How the folder names the tensor that we call `ours`; as we do, if it has no such tensor.
Naming naming_of(const Checkpoint& folder, const std::string& ours);
/// The same of the names of all its tensors.
Naming naming_of(const std::vector<std::string>& names, const std::string& ours);

/// Whether the name is that of a head that a model may tie to its embedding.
bool is_head(const std::string& name);

/// For a stored tensor under whose name the model has no parameter. Some may be there: buffers of old files, masks, the
/// other parts of a multimodal model, a tied head, and heads of other uses beside one for labels. Any other tensor
/// would be lost.
/// Errors    CheckpointError naming folder and tensor, and `because`
void check_unused_tensor(const std::string& name, const model::ModelConfig& config, const std::string& folder,
                         std::string_view because =
                             "its config.json is not that of the weights, or the architecture "
                             "has something that is not supported");

}  // namespace trireme::checkpoint
