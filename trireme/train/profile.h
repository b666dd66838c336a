// The measured timeline of one step, drawn as the predicted one is (`explain schedule`).
#pragma once

#include "trireme/train/session.h"

namespace trireme::train {

/// Writes the engine's last step, all ranks as rows, to settings.profile.schedule: a picture where the file ends in
/// .svg, text for .txt, otherwise a Chrome trace. Every rank calls it; rank 0 writes.
/// Errors    Error when the file cannot be written
void write_profile(Session& session);

}  // namespace trireme::train
