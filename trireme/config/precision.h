// What `precision: auto` means on the processor that runs this.
#pragma once

#include "trireme/base/processor.h"
#include "trireme/config/settings.h"

namespace trireme::config {

/// `precision` itself, or what auto stands for: bf16-mixed with bf16 hardware, else 32-true.
Precision resolve(Precision precision, bool has_bf16 = base::processor().multiplies_bf16());

/// The precision of a run.
Precision resolve(const Settings& settings);

}  // namespace trireme::config
