// What a run reports beside its loss, from the sums of its units (model::Measure): the parts of a Free Transformer's
// loss, and how well a model with labels classifies.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/base/progress.h"
#include "trireme/model/model.h"
#include "trireme/plan/step_plan.h"

namespace trireme::train {

/// cross_entropy, hinge and bound in nats a token, kl_bits in bits a token, above as a share of the tokens; each name
/// behind `prefix`. `bound` is the cross-entropy plus the whole divergence: no less than the negative log-likelihood,
/// in expectation (the ELBO). For a model with labels: accuracy, and macro_f1, the mean F1 of the labels that occur.
/// Nothing for models without measures.
std::vector<base::Measured> measures_of(const model::ModelConfig& config, double loss, std::span<const double> measures,
                                        const std::string& prefix = "");
/// The same for a run's model, whose objective may have measures: model::pair_measures(), as means over pairs.
std::vector<base::Measured> measures_of(const model::Model& model, double loss, std::span<const double> measures,
                                        const std::string& prefix = "");

/// What the phases of a run that also samples need of the planned memory at most, as trireme explain memory prints it:
/// memory/training_bytes, memory/logprobs_bytes, memory/sampling_bytes, and memory/quantized_sampling_bytes if weights
/// in 4 bits write answers. Nothing for other runs.
std::vector<base::Measured> memory_by_phase(const plan::StepPlan& plan);

/// Puts them into `event`: `measures` of the step's loss, and those of the held-out loss, if there is one, behind
/// "val_".
void add_measures(base::StepEvent& event, const model::Model& model, std::span<const double> measures,
                  std::span<const double> held_out);

}  // namespace trireme::train
