// What a run reports while it works, as plain structs. The training loop fills them in; sinks in observe/ show or store
// them (terminal line, metrics.jsonl, plots).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::base {

/// A number that a run reports beside its loss.
struct Measured {
  std::string name;  ///< "kl_bits"
  double value = 0;
  bool operator==(const Measured&) const = default;
};

/// One finished optimizer step of the whole job (losses and rates over all ranks).
struct StepEvent {
  int64_t step = 0;  ///< steps done, this one included: 1 after the first
  int64_t max_steps = 0;  ///< planned steps of the run; 0 when unknown
  std::optional<double> loss;  ///< mean over the step's supervised tokens, nats a token; empty: there were none
  double grad_norm = 0;  ///< global norm before clipping; NaN: unknown, as lr may be
  double lr = 0;  ///< learning rate of this step
  int64_t tokens = 0;  ///< tokens seen since the start of training
  double step_seconds = 0;  ///< wall time of the step
  double tokens_per_second = 0;  ///< of the job, a mean that fades over some ten steps
  std::optional<double> peak_fraction;  ///< share of the machine's peak arithmetic; empty when not known
  int64_t rss_bytes = 0;  ///< resident memory of the reporting rank
  std::optional<int64_t> shared_bytes;  ///< the part of it that other processes map too; empty when not known
  double eta_seconds = 0;  ///< to the end of training; NaN when unknown
  double epoch = 0;  ///< passes over the training data so far, with fraction
  std::optional<double> loss_scale;  ///< of the next step, if losses are scaled
  int64_t skipped = 0;  ///< steps of the run that were skipped because a gradient overflowed
  std::optional<double> val_loss;  ///< held-out loss, if this step ended with an evaluation
  bool is_kept = false;  ///< it ended with an evaluation or an epoch: it has a row and a line, whatever the interval
  std::vector<Measured> measures = {};  ///< of models whose loss has parts, and of the evaluation
};

/// A stage of the run that begins or ends: "load data", "evaluate", "save".
struct PhaseEvent {
  enum class Kind { begin, end };
  Kind kind = Kind::begin;
  std::string name;
  std::string detail;  ///< one fact in words, may be empty: "austen: 4,024,953 bytes"
  double seconds = 0;  ///< how long it took; end only
};

class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  virtual void step(const StepEvent& event) = 0;
  virtual void phase(const PhaseEvent& event) = 0;
};

}  // namespace trireme::base
