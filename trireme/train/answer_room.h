// What is planned for the answers that a model writes while it is trained.
#pragma once

#include "trireme/generate/generator.h"
#include "trireme/train/settings_grpo.h"

namespace trireme::train {

/// Room for the answers of a copy of the model.
generate::Room room_for_answers(const GrpoSettings& settings);

}  // namespace trireme::train
