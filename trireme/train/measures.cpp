#include "trireme/train/measures.h"

#include <algorithm>
#include <cmath>

namespace trireme::train {

namespace {

// The mean over labels of F1 = 2 (have and get) / (have + get); a label that no text has or gets does not count.
double macro_f1(int64_t num_labels, std::span<const double> counts) {
  double sum = 0;
  int64_t met = 0;
  for (int64_t i = 0; i < num_labels; ++i) {
    const std::span<const double> of = counts.subspan(static_cast<size_t>(3 * i), 3);
    if (!(of[0] + of[1] > 0)) continue;
    sum += 2 * of[2] / (of[0] + of[1]);
    ++met;
  }
  return met > 0 ? sum / static_cast<double>(met) : 0;
}

// As model::ClassifierHead::measures().
std::vector<base::Measured> of_classification(int64_t num_labels, std::span<const double> measures,
                                              const std::string& prefix) {
  if (std::ssize(measures) != 1 + 3 * num_labels) return {};
  return {{prefix + "accuracy", measures[0]}, {prefix + "macro_f1", macro_f1(num_labels, measures.subspan(1))}};
}

}  // namespace

std::vector<base::Measured> measures_of(const model::ModelConfig& config, double loss, std::span<const double> measures,
                                        const std::string& prefix) {
  if (config.is_classifier()) return of_classification(config.classifier.num_labels, measures, prefix);
  if (!config.is_free() || measures.size() != 3) return {};
  const double kl = measures[0], hinge = measures[1], cross_entropy = loss - config.free.kl_weight * hinge;
  return {{prefix + "cross_entropy", cross_entropy},
          {prefix + "kl_bits", kl / std::log(2.0)},
          {prefix + "hinge", hinge},
          {prefix + "above", measures[2]},
          {prefix + "bound", cross_entropy + kl}};
}

std::vector<base::Measured> measures_of(const model::Model& model, double loss, std::span<const double> measures,
                                        const std::string& prefix) {
  if (!model.objective.has_inputs()) return measures_of(model.config, loss, measures, prefix);
  const std::span<const char* const> names =
      model.objective.is_pairs() ? model::pair_measures() : model::policy_measures();
  std::vector<base::Measured> named;
  for (size_t i = 0; i < std::min(names.size(), measures.size()); ++i)
    named.push_back({prefix + names[i], measures[i]});
  if (!model.objective.is_pairs() || named.size() < names.size()) return named;
  const double weight = model.objective.likelihood_weight();
  if (weight == 0)
    named.pop_back();
  else
    named.back().value /= weight;
  if (!model.objective.compares_replies())
    std::erase_if(named, [&](const base::Measured& m) { return m.name.starts_with(prefix + "rewards/"); });
  return named;
}

std::vector<base::Measured> memory_by_phase(const plan::StepPlan& plan) {
  const std::vector<plan::MemoryRow> phases = plan::memory_report(plan).phases;
  std::vector<base::Measured> named;
  for (size_t i = 0; i < phases.size(); ++i) {
    if (i >= std::size(schedule::kLists)) {
      named.push_back({"memory/quantized_sampling_bytes", double(phases[i].bytes)});
      continue;
    }
    const schedule::List list = schedule::kLists[i].list;
    const char* name = list == schedule::List::train      ? "memory/training_bytes"
                       : list == schedule::List::evaluate ? "memory/logprobs_bytes"
                                                          : "memory/sampling_bytes";
    named.push_back({name, double(phases[i].bytes)});
  }
  return named;
}

void add_measures(base::StepEvent& event, const model::Model& model, std::span<const double> measures,
                  std::span<const double> held_out) {
  if (event.loss)
    for (base::Measured& measured : measures_of(model, *event.loss, measures))
      event.measures.push_back(std::move(measured));
  if (!event.val_loss) return;
  for (base::Measured& measured : measures_of(model, *event.val_loss, held_out, "val_"))
    event.measures.push_back(std::move(measured));
}

}  // namespace trireme::train
