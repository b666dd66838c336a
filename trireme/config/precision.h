// What `precision: auto` means on the processor that runs this.
#pragma once

#include "trireme/config/settings.h"

namespace trireme::config {

/// True where the processor multiplies bf16 in hardware (AVX512-BF16 or AMX).
bool processor_has_bf16();

/// `precision` itself, or what auto stands for: bf16-mixed with bf16 hardware, else 32-true.
Precision resolve(Precision precision, bool has_bf16 = processor_has_bf16());

}  // namespace trireme::config
