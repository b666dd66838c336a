#include "trireme/train/failure.h"

#include "trireme/base/error.h"
#include "trireme/checkpoint/agree.h"

namespace trireme::train {

launch::Fault fault_of(const std::exception& error) {
  using launch::Fault;
  if (const auto* lost = dynamic_cast<const CommError*>(&error)) return launch::fault_of(*lost);
  const auto* told = dynamic_cast<const checkpoint::RankError*>(&error);
  return told != nullptr && !told->is_own ? Fault::lost_peer : Fault::own;
}

void report_failure(const std::exception& error) noexcept { launch::report_failure(error.what(), fault_of(error)); }

}  // namespace trireme::train
