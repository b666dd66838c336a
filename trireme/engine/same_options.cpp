#include "trireme/engine/same_options.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/value.h"

namespace trireme::engine {
namespace {

// The rows of a section of settings; folders may differ from rank to rank.
template <typename Settings>
void add_settings(NamedValues& to, Settings settings) {
  for (const config::Setting& row : section(settings).rows)
    if (row.key != "offload.path") to.emplace_back(row.key, config::value_text(row));
}

std::string text_of(const optim::OptimizerOptions& o) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", config::name_of(o.rule), o.beta1, o.beta2, o.eps,
                     o.momentum, o.nesterov, o.trust_coefficient, fmt::join(o.trust_bounds, " "), o.match_rms,
                     o.relative_step, o.scale_parameter, o.warmup_init, o.companion_rate, o.gradient_scale);
}

std::string text_of(const model::Precision& p) {
  return fmt::format("{} {} {} {} {} {} {}", c10::toString(p.compute), c10::toString(p.state), p.float8,
                     p.narrow_weights, p.narrow_gradients, p.wide_slots, static_cast<int>(p.rounding));
}

std::string text_of(const optim::LossScaleOptions& o) {
  return fmt::format("{} {} {} {} {} {} {}", static_cast<int>(o.rule), o.dynamic, o.initial, o.window, o.hysteresis,
                     o.consecutive_hysteresis, o.minimum);
}

std::string text_of(const model::TensorSpec& spec) {
  return fmt::format("{} [{}]", c10::toString(spec.dtype), fmt::join(spec.shape, ", "));
}

std::string text_of(const model::Model& model) {
  std::string text;
  for (const model::ParameterGroup& group : model.groups) {
    for (const model::ParameterSpec& p : group.parameters)
      text += fmt::format("{} [{}], ", p.name, fmt::join(p.whole_shape(), ", "));
    text += group.trained ? "; " : "frozen; ";
  }
  return text;
}

std::string frozen_values(const model::Model& model) {
  std::string text;
  for (const auto& unit : model.units)
    if (const uint64_t value = unit->frozen_values(); value != 0)
      text += fmt::format("{} {:016x}, ", unit->name(), value);
  return text;
}

}  // namespace

NamedValues describe_trainer(const TrainerOptions& o, const model::Model& model) {
  const comm::ProcessMesh mesh(o.mesh, o.ranks.size);  // auto and the size that it means are the same
  std::vector<int> sizes;
  for (int axis = 0; axis < comm::kNumAxes; ++axis) sizes.push_back(mesh.size(static_cast<comm::Axis>(axis)));
  NamedValues values = {{"mesh", fmt::format("{}", fmt::join(sizes, " x "))},
                        {"sequence_parallel", fmt::format("{}", o.sequence_parallel)},
                        {"strategy", std::string(config::name_of(o.strategy))},
                        {"precision", text_of(o.precision)},
                        {"accumulate", fmt::format("{}", o.accumulate)},
                        {"local_accumulation", fmt::format("{}", o.local_accumulation)},
                        {"optimizer.weight_decay", fmt::format("{}", o.optimizer.weight_decay)},
                        {"optimizer", text_of(o.optimizer)},
                        {"steps_in_backward", fmt::format("{}", o.steps_in_backward)},
                        {"max_norm", o.max_norm ? fmt::format("{}", *o.max_norm) : "none"},
                        {"loss_scale", text_of(o.loss_scale)},
                        {"poison", fmt::format("{}", o.poison)},
                        {"model's parameters", text_of(model)}};
  // A rank of a pipeline may have loaded the values of its own stage alone.
  values.emplace_back("values of frozen parameters", mesh.size(comm::Axis::pp) > 1 ? "any" : frozen_values(model));
  // Ranks of one pipeline or of one tensor-parallel group compute one micro-batch; ranks of data alone may differ.
  const bool meets = mesh.size(comm::Axis::pp) * mesh.size(comm::Axis::tp) > 1;
  values.emplace_back("the shape of the example",
                      meets ? text_of(model.inputs({})) + " and " + text_of(model.targets({})) : "any");
  add_settings(values, o.pipeline);
  add_settings(values, o.recompute);
  add_settings(values, o.offload);
  return values;
}

void check_same(const NamedValues& mine, comm::Communicator& world) {
  if (world.size() == 1 || world.backend() == "dry_run") return;
  const auto count = std::ssize(mine);
  const at::Tensor own = at::empty({count}, at::kLong), all = at::empty({count * world.size()}, at::kLong);
  for (int64_t i = 0; i < count; ++i)
    own.data_ptr<int64_t>()[i] = static_cast<int64_t>(base::hash_text(mine[static_cast<size_t>(i)].second));
  world.all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(world.size()), count))->wait();
  const int64_t* hashes = all.data_ptr<int64_t>();
  for (int rank = 1; rank < world.size(); ++rank)
    for (int64_t i = 0; i < count; ++i)
      if (hashes[rank * count + i] != hashes[i]) {
        const auto& [name, value] = mine[static_cast<size_t>(i)];
        throw UsageError(
            fmt::format("[trainer] ranks 0 and {} differ in {} (here, on rank {}: {}); make the trainers of all ranks "
                        "with the same options and parts",
                        rank, name, world.rank(), base::shortened(value, 200)));
      }
}

}  // namespace trireme::engine
