// A sample reply: what the model says to one prompt while it is trained (eval.max_new_tokens, eval.evaluate_example).
// Rank 0 collects the whole weights from all ranks, in the compute dtype and with adapters merged, and writes the
// likeliest tokens; afterwards the copy is gone. So it works on every mesh, and the same weights give the same reply on
// any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/data/training_data.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/session.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// The prompt that the settings name, as tokens. It never changes during a run.
/// Errors    UsageError if the data have no such conversation
std::vector<int64_t> sample_prompt(const Settings& settings, const data::TrainingData& data,
                                   const text::Tokenizer& tokenizer);

/// Bytes that a sample reply takes on rank 0, beside the plan: whole weights and a cache for `tokens`.
int64_t sample_bytes(const model::ModelConfig& config, const model::Adapters& adapters,
                     const model::Precision& precision, int64_t tokens);

/// The most that sample replies of these settings take on rank 0, whatever the prompt; 0: there are none.
int64_t most_sample_bytes(const Settings& settings, const model::ModelConfig& config);

/// Refuses, before ranks start, a sample that cannot be written: without memory, without its prompt.
/// Errors    UsageError
void check_sample(const Settings& settings, const model::ModelConfig& config, const data::TrainingData& data,
                  const text::Tokenizer& tokenizer);

class SampleReply {
 public:
  /// Errors    as sample_prompt
  SampleReply(Session& session, const data::TrainingData& data, const text::Tokenizer& tokenizer);

  /// What the start says: the prompt, and the memory that a reply takes.
  std::string describe() const;

  /// The reply of the model as it is now, as a line; "" on ranks other than 0. Every rank must call. `stops` is called
  /// for each token: if the ranks stop, the reply ends there.
  ///
  /// Cost      moves the model's weights to rank 0 once, and runs it there for each token
  std::string write(const StopCheck& stops) const;

 private:
  model::Precision precision() const;
  int64_t capacity() const;

  Session& s_;
  const text::Tokenizer& tokenizer_;
  std::vector<int64_t> prompt_;
  std::vector<int64_t> stop_ids_;
};

}  // namespace trireme::train
