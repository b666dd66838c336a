#include "trireme/model/settings_policy.h"

#include <vector>

namespace trireme::model {

std::span<const config::Choice<KlLoss>> choices_of(KlLoss) {
  static const std::vector<config::Choice<KlLoss>> kTable = {
      {KlLoss::kl, "kl", {"k1"}}, {KlLoss::mse_kl, "mse_kl", {"k2"}}, {KlLoss::low_var_kl, "low_var_kl", {"k3"}}};
  return kTable;
}

std::span<const config::Choice<RatioOf>> choices_of(RatioOf) {
  static const std::vector<config::Choice<RatioOf>> kTable = {{RatioOf::token, "grpo", {"token"}},
                                                              {RatioOf::sequence, "gspo-token", {"sequence", "gspo"}}};
  return kTable;
}

}  // namespace trireme::model
