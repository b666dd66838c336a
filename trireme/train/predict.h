// Labels of texts by a trained model, for trireme evaluate --classify.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "trireme/settings/settings.h"

namespace trireme::train {

/// Refuses what predict_labels would refuse. Errors: UsageError, CheckpointError
void check_predict(const Settings& settings);

/// Predicts the labels of evaluate.classify's texts. With evaluate.predictions, writes {"label", "probability",
/// "logits"} of each text to that file, in the order of the texts. Returns accuracy, macro_f1 and loss of those that
/// have a label.
///
/// Cost      a forward of a few texts at a time, of similar lengths
/// Errors    as check_predict
nlohmann::ordered_json predict_labels(const Settings& settings);

}  // namespace trireme::train
