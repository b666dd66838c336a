#include "trireme/train/measures.h"

#include <cmath>

namespace trireme::train {

std::vector<base::Measured> measures_of(const model::ModelConfig& config, double loss, std::span<const double> measures,
                                        const std::string& prefix) {
  if (!config.is_free() || measures.size() != 3) return {};
  const double kl = measures[0], hinge = measures[1], cross_entropy = loss - config.free.kl_weight * hinge;
  return {{prefix + "cross_entropy", cross_entropy},
          {prefix + "kl_bits", kl / std::log(2.0)},
          {prefix + "hinge", hinge},
          {prefix + "above", measures[2]},
          {prefix + "bound", cross_entropy + kl}};
}

void add_measures(base::StepEvent& event, const model::ModelConfig& config, std::span<const double> measures,
                  std::span<const double> held_out) {
  event.measures = measures_of(config, event.loss, measures);
  if (!event.val_loss) return;
  for (base::Measured& measured : measures_of(config, *event.val_loss, held_out, "val_"))
    event.measures.push_back(std::move(measured));
}

}  // namespace trireme::train
