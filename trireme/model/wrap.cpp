#include "trireme/model/wrap.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "trireme/base/error.h"
#include "trireme/model/wrapped_unit.h"

namespace trireme::model {
namespace {

void check_parts(const std::vector<Wrapped>& parts, const Parallel& parallel) {
  if (parallel.cp_size > 1)
    throw UsageError(
        fmt::format("[wrap] a wrapped module has whole sequences: cp={} must be 1; divide the data (shard, replicate), "
                    "the layers (pp) or the matrices (tp, with parallel layers) instead",
                    parallel.cp_size));
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

// The TensorRanks of all parallel layers; null if there is none to meet.
TensorRanksPtr ranks_of(const std::vector<Wrapped>& parts, const Parallel& parallel) {
  TensorRanksPtr ranks;
  for (const Wrapped& part : parts)
    for (const NamedLayer& layer : part.layers) {
      if (!(layer.ranks->parallel() == parallel))
        throw UsageError(
            fmt::format("[wrap] '{}' was made for rank {} of tp={}{}, the model is built for rank {} of "
                        "tp={}{}; give build_model the parallel() of its TensorRanks",
                        part.name, layer.ranks->rank(), layer.ranks->size(),
                        layer.ranks->sequence() ? " with sequence parallelism" : "", parallel.tp_rank, parallel.tp_size,
                        parallel.tp_size > 1 && parallel.sequence_parallel ? " with sequence parallelism" : ""));
      if (ranks && ranks != layer.ranks)
        throw UsageError(
            fmt::format("[wrap] '{}' has a parallel layer of another TensorRanks; make one, and give it "
                        "to all layers of the model",
                        part.name));
      ranks = layer.ranks;
    }
  if (parallel.tp_size == 1) return nullptr;
  if (!ranks)
    throw UsageError(
        fmt::format("[wrap] tp={}, but no module has a parallel layer, so all ranks would compute the same; "
                    "use ColumnParallelLinear, RowParallelLinear or VocabParallelEmbedding, or divide the "
                    "data (shard, replicate) or the layers (pp)",
                    parallel.tp_size));
  return ranks;
}

void check_dtypes(const std::vector<Wrapped>& parts) {
  for (const Wrapped& part : parts)
    for (const NamedTensor& p : part.parameters)
      if (!p.tensor.is_floating_point())
        throw UsageError(
            fmt::format("[wrap] the parameter '{}.{}' is {}, and parameters are real numbers with a point; of a "
                        "complex one register torch::view_as_real, and take torch::view_as_complex of it in forward",
                        part.name, p.name, c10::toString(p.tensor.scalar_type())));
}

// Autograd computes wrapped modules, on the processor.
void check_precision(const Precision& p) {
  const at::ScalarType c = p.compute;
  if (c != at::kFloat && c != at::kDouble && c != at::kBFloat16 && c != at::kHalf)
    throw UsageError(
        fmt::format("[wrap] modules cannot be trained in {}; set Precision::compute to Float, Double, BFloat16 or Half",
                    c10::toString(c)));
  if (p.float8)
    throw UsageError(
        "[wrap] Precision::float8 is for the products of built-in blocks, and wrapped modules have their own; leave it "
        "out");
  if (p.on_gpu) throw UsageError("[wrap] wrapped modules compute on the processor; leave Precision::on_gpu out");
}

void check_example(const Example& example) {
  const auto check = [](const char* what, const at::Tensor& given) {
    if (!given.defined())
      throw UsageError(fmt::format(
          "[wrap] the example's {} are a tensor without values (undefined); pass those of one micro-batch", what));
  };
  check("inputs", example.inputs);
  check("targets", example.targets);
}

// Two tensors in one memory would be two parameters with values and gradients of their own.
void check_memory(const std::vector<Wrapped>& parts) {
  struct Trained {
    at::Tensor tensor;
    std::string name;
  };
  std::map<const void*, std::vector<Trained>> trained;  // by storage
  const auto check = [&](const Wrapped& part, const NamedTensor& p) {
    if (!p.tensor.has_storage() || p.tensor.numel() == 0) return;
    const auto found = trained.find(p.tensor.storage().unsafeGetStorageImpl());
    if (found == trained.end()) return;
    for (const Trained& other : found->second) {
      if (other.tensor.is_same(p.tensor)) continue;
      using Status = at::MemOverlapStatus;
      const Status overlap = at::get_overlap_status(other.tensor, p.tensor);
      const bool begins_alike = other.tensor.storage_offset() == p.tensor.storage_offset();
      if (overlap == Status::No || (overlap == Status::TooHard && !begins_alike)) continue;  // of other strides
      throw UsageError(fmt::format(
          "[wrap] '{}.{}' and '{}' are two tensors in one memory; register one tensor in both modules to tie "
          "them (register_parameter, register_module), or clone one of them",
          part.name, p.name, other.name));
    }
  };
  for (const Wrapped& part : parts)
    for (const NamedTensor& p : part.parameters) {
      check(part, p);
      if (p.tensor.has_storage())
        trained[p.tensor.storage().unsafeGetStorageImpl()].push_back({p.tensor, part.name + "." + p.name});
    }
  for (const Wrapped& part : parts)
    for (const auto* kept : {&part.frozen, &part.buffers})
      for (const NamedTensor& b : *kept) check(part, b);
}

using Divisions = std::map<const void*, Division>;

// By tensor, because another part may have a divided parameter under another name.
Divisions divisions_of(const std::vector<Wrapped>& parts) {
  Divisions found;
  for (const Wrapped& part : parts)
    for (const NamedLayer& layer : part.layers)
      for (const ParallelLayer::Divided& d : layer.divided) {
        const std::string name = layer.name.empty() ? d.name : layer.name + "." + d.name;
        for (const NamedTensor& p : part.parameters)
          if (p.name == name) found[p.tensor.unsafeGetTensorImpl()] = d.division;
      }
  return found;
}

// Trained and frozen ones.
std::set<const void*> divided_tensors(const std::vector<Wrapped>& parts) {
  std::set<const void*> found;
  for (const Wrapped& part : parts)
    for (const NamedLayer& layer : part.layers)
      for (const ParallelLayer::Divided& d : layer.divided)
        for (const auto* list : {&part.parameters, &part.frozen})
          for (const NamedTensor& p : *list)
            if (p.name == (layer.name.empty() ? d.name : layer.name + "." + d.name))
              found.insert(p.tensor.unsafeGetTensorImpl());
  return found;
}

void place(ParameterSpec& spec, const NamedTensor& parameter, const Divisions& divisions, int tp_rank) {
  const auto division = divisions.find(parameter.tensor.unsafeGetTensorImpl());
  spec.counted = division != divisions.end() || tp_rank == 0;
  if (division == divisions.end()) return;
  spec.full_shape = division->second.whole_shape;
  spec.split_dim = division->second.dim;
  spec.pieces = division->second.pieces;
}

// Used by Engine::initialize only; load_parameters() takes the module's values.
Initializer initializer_of(const std::string& name, size_t dims) {
  if (dims > 1) return {};
  return {.kind = name.ends_with("bias") ? Initializer::Kind::zeros : Initializer::Kind::ones};
}

// A tensor is one parameter, under its first name; each part lists it once. `taken`: all names so far.
std::vector<ParameterSpec> name_parameters(Wrapped& part, ParameterNames& seen, std::set<std::string>& taken,
                                           const Divisions& divisions, int tp_rank) {
  std::vector<ParameterSpec> specs;
  std::vector<NamedTensor> kept;
  std::set<std::string> mine;
  for (NamedTensor& p : part.parameters) {
    const auto [found, is_new] = seen.try_emplace(p.tensor.unsafeGetTensorImpl(), part.name + "." + p.name);
    if (is_new && !taken.insert(found->second).second)
      throw UsageError(
          fmt::format("[wrap] two parameters are named '{}', one of them in the part '{}'; give that part "
                      "a name that begins otherwise than another part's",
                      found->second, part.name));
    if (!mine.insert(found->second).second) continue;
    const auto dims = static_cast<size_t>(p.tensor.dim());
    specs.push_back({.name = found->second,
                     .shape = p.tensor.sizes().vec(),
                     .init = initializer_of(p.name, dims),
                     .decay = dims > 1});
    place(specs.back(), p, divisions, tp_rank);
    kept.push_back(std::move(p));
  }
  part.parameters = std::move(kept);
  return specs;
}

// Checkpoints keep "m.scale.exp_avg" beside the parameter "m.scale", so no other parameter's name may begin so.
void check_names(const std::set<std::string>& names) {
  for (const std::string& name : names)
    if (const auto below = names.lower_bound(name + "."); below != names.end() && below->starts_with(name + "."))
      throw UsageError(
          fmt::format("[wrap] the parameter '{}' has the name of a module, that of '{}'; give one of the "
                      "parts a name that begins otherwise",
                      name, *below));
}

// The parameters that a gradient of the loss reaches: a part may use its own, and the part behind it not its output.
std::set<std::string> reached_by_the_loss(const std::vector<const WrappedUnit*>& units) {
  std::set<std::string> reached;
  for (size_t i = units.size(); i-- > 0;) {
    reached.insert(units[i]->reached().begin(), units[i]->reached().end());
    if (!units[i]->passes_gradients()) break;
  }
  if (reached.empty())
    throw UsageError(fmt::format(
        "[wrap] no gradient of the loss of '{}' reaches a trainable parameter, so nothing would be learned; compute it "
        "from what the parts give, without detach(), as a real number, and let some parameter require gradients",
        units.back()->name()));
  return reached;
}

std::vector<std::string> unreached(const Model& m, const std::set<std::string>& reached) {
  std::vector<std::string> names;
  for (const ParameterGroup& g : m.groups)
    for (const ParameterSpec& p : g.parameters)
      if (g.trained && !reached.contains(p.name)) names.push_back(p.name);
  return names;
}

TensorSpec spec_of(const char* name, const at::Tensor& t) { return {name, t.sizes().vec(), t.scalar_type()}; }

}  // namespace

Model build_model(std::vector<Wrapped> parts, const Example& example, const Precision& precision,
                  const Parallel& parallel, const Grouping& grouping) {
  if (c10::InferenceMode::is_enabled())
    throw UsageError("[wrap] a model that learns cannot be built inside c10::InferenceMode; leave its scope first");
  check_parts(parts, parallel);
  check_precision(precision);
  check_example(example);
  check_dtypes(parts);
  check_memory(parts);
  const TensorRanksPtr ranks = ranks_of(parts, parallel);
  const Divisions divisions = divisions_of(parts);
  const std::set<const void*> divided = divided_tensors(parts);
  Model m{.parallel = parallel};
  at::Tensor x = example.inputs.detach().clone();  // a part may change its input in place
  if (x.is_floating_point()) x = x.to(precision.compute);
  const at::Tensor targets = example.targets.detach().clone();
  m.own_inputs = spec_of("inputs", x);
  m.own_targets = spec_of("targets", targets);
  ParameterNames names;
  std::set<std::string> taken;
  std::vector<std::unique_ptr<WrappedUnit>> units;
  for (Wrapped& part : parts) {
    std::vector<ParameterSpec> specs = name_parameters(part, names, taken, divisions, parallel.tp_rank);
    units.push_back(std::make_unique<WrappedUnit>(std::move(part), std::move(specs), precision.compute, ranks));
    units.back()->know_divided(divided);
  }
  check_names(taken);
  std::vector<const WrappedUnit*> probed;
  for (std::unique_ptr<WrappedUnit>& unit : units) {
    try {
      x = unit->probe({x, targets}, m.units.empty(), names);
    } catch (const c10::Error& e) {
      throw ShapeError(fmt::format("[wrap] '{}' cannot run on an input of shape [{}], {}: {}", unit->name(),
                                   fmt::join(x.sizes(), ", "), c10::toString(x.scalar_type()),
                                   e.what_without_backtrace()));
    }
    probed.push_back(unit.get());
    for (std::string& name : unit->rounded_statistics()) m.rounded_statistics.push_back(std::move(name));
    m.units.push_back(std::move(unit));
  }
  const std::set<std::string> reached = reached_by_the_loss(probed);
  group_parameters(m, grouping);
  m.unreached = unreached(m, reached);
  return m;
}

}  // namespace trireme::model
