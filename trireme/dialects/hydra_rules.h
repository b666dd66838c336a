// What the keys of agent-tunix and tunix mean together (hydra.cpp has the table).
#pragma once

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

/// "[[4,2],[fsdp,tp]]", as tunix writes it too: axes, and the number of ranks.
void set_mesh(Reading& reading, std::string_view text, const config::Given& entry);
void finish_hydra(Reading& reading);

/// Whether the command, or the setting `task`, is that of `trireme grpo`.
bool learns_from_rewards(const Reading& reading);

}  // namespace trireme::dialects
