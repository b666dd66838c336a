// The task that docs/adding-a-task.md adds.
#pragma once

#include "trireme/train/task.h"

namespace trireme::train {

std::unique_ptr<Task> make_counting(Session& session, const std::filesystem::path& resume, const StopCheck& stops);

}  // namespace trireme::train
