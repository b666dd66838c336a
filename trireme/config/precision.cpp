#include "trireme/config/precision.h"

namespace trireme::config {

Precision resolve(Precision precision, bool has_bf16) {
  if (precision != Precision::automatic) return precision;
  return has_bf16 ? Precision::bf16_mixed : Precision::fp32_true;
}

Precision resolve(const Settings& settings) {
  if (settings.accelerator == Accelerator::cuda) return resolve(settings.precision, true);
  return resolve(settings.precision);
}

}  // namespace trireme::config
