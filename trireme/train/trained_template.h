// In which chat template a model was trained. A run may write conversations in another one than the model's folder
// names (data.chat_template; Alpaca's form without one), and a model that is asked in another template answers badly.
// Checkpoints have it twice: by name in their state, and as Jinja in the files that transformers reads. So it comes
// along where these files are copied.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"

namespace trireme::train {

struct KnownTemplate {
  std::string name;  ///< of a family (text/chat_template.h)
  std::filesystem::path trained;  ///< the checkpoint that was trained in it; empty: the files of the model name it

  /// "template alpaca, in which out/mine was trained" if the files of the model in `weights` do not say the same;
  /// else "".
  std::string remark(const std::filesystem::path& weights) const;
};

/// What conversations with a model are written in, unless the user names a template. It is that in which the adapter
/// was trained, by its state or its own files. Else it is that of the training of the weights, or the one that the
/// model's files name.
/// `adapter` may be empty; it and `weights` may be a run's folder.
/// Errors    CheckpointError for a damaged trireme_state.json
std::optional<KnownTemplate> template_of_model(const std::filesystem::path& weights,
                                               const std::filesystem::path& adapter = {});

/// Puts the run's template into `state`, and beside the model if the files there name another one. Generation with the
/// saved model stops at the end of a reply in it (text/ends_of_text.h). `learned`: the family in which this run writes
/// conversations; "": it has none. Then what the run starts from keeps its template, as a tokenizer does in
/// transformers. Call it after keep_tokenizer(). Every rank must call.
/// Errors    as template_of_model(), the same on every rank
void keep_template(Session& session, const std::string& learned, RunState& state);

}  // namespace trireme::train
