#include "trireme/model/wrap.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/model/wrapped_unit.h"

namespace trireme::model {
namespace {

void check_parts(const std::vector<Wrapped>& parts, const Parallel& parallel) {
  if (parallel.tp_size > 1 || parallel.cp_size > 1)
    throw UsageError(
        fmt::format("[wrap] a wrapped module runs whole on one rank: tp={} and cp={} must be 1; divide "
                    "the data (shard, replicate) or the layers (pp) instead",
                    parallel.tp_size, parallel.cp_size));
  if (parts.empty()) throw UsageError("[wrap] a model needs at least one part, the one with the loss (wrap_loss)");
  std::set<std::string> names;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!names.insert(parts[i].name).second)
      throw UsageError(fmt::format("[wrap] two parts are named '{}'; give each a name of its own", parts[i].name));
    const bool last = i + 1 == parts.size(), has_loss = parts[i].loss != nullptr;
    if (last && !has_loss)
      throw UsageError(fmt::format("[wrap] the last part, '{}', has no loss; make it with wrap_loss", parts[i].name));
    if (!last && has_loss)
      throw UsageError(fmt::format("[wrap] '{}' has a loss but is not the last part", parts[i].name));
  }
}

// Used by Engine::initialize only; load_parameters() takes the module's values.
Initializer initializer_of(const std::string& name, size_t dims) {
  if (dims > 1) return {};
  return {.kind = name.ends_with("bias") ? Initializer::Kind::zeros : Initializer::Kind::ones};
}

// A tensor is one parameter, under its first name; each part lists it once.
std::vector<ParameterSpec> name_parameters(Wrapped& part, std::map<const void*, std::string>& seen) {
  std::vector<ParameterSpec> specs;
  std::vector<NamedTensor> kept;
  std::set<std::string> mine;
  for (NamedTensor& p : part.parameters) {
    const auto [found, is_new] = seen.try_emplace(p.tensor.unsafeGetTensorImpl(), part.name + "." + p.name);
    if (!mine.insert(found->second).second) continue;
    const auto dims = static_cast<size_t>(p.tensor.dim());
    specs.push_back({.name = found->second,
                     .shape = p.tensor.sizes().vec(),
                     .init = initializer_of(p.name, dims),
                     .decay = dims > 1});
    kept.push_back(std::move(p));
  }
  part.parameters = std::move(kept);
  return specs;
}

TensorSpec spec_of(const char* name, const at::Tensor& t) { return {name, t.sizes().vec(), t.scalar_type()}; }

}  // namespace

Model build_model(std::vector<Wrapped> parts, const Example& example, const Precision& precision,
                  const Parallel& parallel, const Grouping& grouping) {
  check_parts(parts, parallel);
  Model m;
  at::Tensor x = example.inputs.detach();
  if (x.is_floating_point()) x = x.to(precision.compute);
  m.own_inputs = spec_of("inputs", x);
  m.own_targets = spec_of("targets", example.targets);
  std::map<const void*, std::string> seen;
  for (Wrapped& part : parts) {
    std::vector<ParameterSpec> specs = name_parameters(part, seen);
    auto unit = std::make_unique<WrappedUnit>(std::move(part), std::move(specs), precision.compute);
    try {
      x = unit->probe({x, example.targets}, m.units.empty());
    } catch (const c10::Error& e) {
      throw ShapeError(fmt::format("[wrap] '{}' cannot run on an input of shape [{}], {}: {}", unit->name(),
                                   fmt::join(x.sizes(), ", "), c10::toString(x.scalar_type()),
                                   e.what_without_backtrace()));
    }
    m.units.push_back(std::move(unit));
  }
  group_parameters(m, grouping);
  return m;
}

}  // namespace trireme::model
