#include "trireme/costs/recorded_work.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <typeinfo>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/comm/checked_communicator.h"
#include "trireme/costs/mirror_memory.h"
#include "trireme/model/wrapped_unit.h"
#include "trireme/plan/unit_pass.h"

namespace trireme::costs {
namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::List;

/// Takes every call and moves nothing.
class SilentCommunicator final : public comm::CheckedCommunicator {
 public:
  explicit SilentCommunicator(comm::Group group) : CheckedCommunicator(std::move(group)) {}
  std::string backend() const override { return "silent"; }
  comm::SharedBuffer allocate_shared(int64_t bytes, bool) override { return allocate_private(bytes); }

 protected:
  comm::WorkPtr start(comm::Call call) override {
    finished(call);
    return comm::completed_work();
  }
};

class Recorder final : public ops::Listener {
 public:
  Recorder() : before_(ops::listen(this)) {}
  ~Recorder() override { ops::listen(before_); }
  bool begins(const ops::Operation& operation) override {
    operations.push_back(operation);
    return false;
  }
  void ends() override {}

  std::vector<ops::Operation> operations;

 private:
  ops::Listener* before_;
};

/// Zeros that take no memory until someone writes to them.
at::Tensor lazy_zeros(at::IntArrayRef shape, at::ScalarType dtype) {
  const auto bytes = static_cast<size_t>(std::max<int64_t>(1, c10::multiply_integers(shape))) * c10::elementSize(dtype);
  void* const space = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) MirrorMemory::refuse(static_cast<int64_t>(bytes));
  return at::from_blob(space, shape, [bytes](void* data) { munmap(data, bytes); }, dtype);
}

/// Tensors that lie one after the other in mirrored memory. Indices and sums of losses have memory of their own, and
/// are zero: units read them.
class Places {
 public:
  /// wide: float64 is a dtype of the computation, and not only of sums.
  explicit Places(bool wide) : wide_(wide) {}

  at::Tensor place(at::IntArrayRef shape, at::ScalarType dtype) {
    if (dtype == at::kLong || dtype == at::kInt || (dtype == at::kDouble && !wide_)) return lazy_zeros(shape, dtype);
    const auto bytes =
        static_cast<int64_t>(c10::multiply_integers(shape)) * static_cast<int64_t>(c10::elementSize(dtype));
    tensors_.push_back({size_, shape.vec(), dtype});
    size_ += schedule::aligned(std::max<int64_t>(bytes, 1));
    at::Tensor tensor = at::empty({0}, dtype);
    order_.push_back(tensor);
    return tensor;
  }
  at::Tensor place(const model::TensorSpec& spec) { return place(spec.shape, spec.dtype); }

  /// Gives all tensors their memory.
  void fill(const MirrorMemory& memory) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor real = at::from_blob(memory.data() + tensors_[i].at, tensors_[i].shape, tensors_[i].dtype);
      order_[i].set_(real);
    }
  }
  int64_t size() const { return size_; }

 private:
  struct Placed {
    int64_t at;
    std::vector<int64_t> shape;
    at::ScalarType dtype;
  };
  bool wide_;
  int64_t size_ = 0;
  std::vector<Placed> tensors_;
  std::vector<at::Tensor> order_;
};

std::vector<at::Tensor> all(Places& places, const model::Slots& specs) {
  std::vector<at::Tensor> tensors;
  for (const model::TensorSpec& spec : specs) tensors.push_back(spec.name.empty() ? at::Tensor() : places.place(spec));
  return tensors;
}

std::vector<int> recomputed_by(const schedule::Schedule& s, const Action& a) {
  std::vector<int> which;
  for (const schedule::Use& use : a.uses)
    if (s.values[use.value].kind == schedule::ValueKind::saved && use.access == schedule::Access::write)
      which.push_back(schedule::tensor_index(s.values[use.value].instance));
  return which;
}

std::vector<model::TrafficRow> traffic_of(const plan::StepRequest& r, const model::Unit& unit, List list,
                                          ActionKind kind, const std::vector<int>& recomputed) {
  if (list == List::generate) return unit.generation_traffic(r.generation, r.precision);
  if (kind == ActionKind::recompute) return unit.traffic_of_recompute(r.shape_of(list), r.precision, recomputed);
  return plan::rows_of(unit.traffic(r.shape_of(list), r.precision), kind);
}

/// The same for units that do the same: kind, shapes of parameters and which are trained, values, operations.
std::string likeness(const plan::StepPlan& plan, List list, const Action& a, const std::vector<int>& recomputed) {
  const model::Model& model = *plan.model;
  const model::Unit& unit = model.unit(a.owner, list == List::generate);
  const model::UnitValues values = plan.values_of(a.owner, list);
  std::string text = fmt::format("{} {} {} {}", typeid(unit).name(), static_cast<int>(list), static_cast<int>(a.kind),
                                 unit.forward_flops(plan.request.shape_of(list)));
  for (const model::ParameterPlace& place : model.places[static_cast<size_t>(a.owner)]) {
    const shard::FlatTensor& t =
        plan.layouts[static_cast<size_t>(place.group)].tensors()[static_cast<size_t>(place.index)];
    text += fmt::format(" {}{}", model.groups[static_cast<size_t>(place.group)].trained ? "" : "f",
                        fmt::join(t.shape, "x"));
  }
  for (const model::Slots* slots : {&values.saved, &values.forward_work, &values.backward_work})
    for (const model::TensorSpec& spec : *slots) text += fmt::format(" {}", spec.bytes());
  return text + fmt::format(" r{}", fmt::join(recomputed, ","));
}

/// A unit of LibTorch modules says only how many operations a forward has.
Work module_work(const model::Unit& unit, const plan::StepRequest& r, List list, ActionKind kind) {
  const double forward = unit.forward_flops(r.shape_of(list));
  const double times = kind == ActionKind::backward ? 2 : 1;
  return {.operations = {
              {.name = "module", .dtype = r.precision.compute, .m = 1, .n = 1, .k = 1, .flops = times * forward}}};
}

}  // namespace

double Work::flops() const {
  double sum = 0;
  for (const ops::Operation& o : operations) sum += o.flops;
  return sum;
}

double Work::recomputed_flops() const {
  double sum = 0;
  for (const ops::Operation& o : operations)
    if (o.name == std::string_view("attention_backward")) sum += o.flops / 5;  // one of its five products
  return sum;
}

double Work::bytes() const {
  double sum = 0;
  for (const ops::Operation& o : operations) sum += o.bytes;
  return sum;
}

int64_t recorded_bytes(const plan::StepPlan& plan) {
  double most = 0;  // of numbers that may be absurd
  const auto bytes = [](const model::Slots& slots) {
    double sum = 0;
    for (const model::TensorSpec& spec : slots) sum += double(spec.bytes());
    return sum;
  };
  for (int unit = 0; unit < std::ssize(plan.model->units); ++unit) {
    const model::UnitValues v = plan.values_of(unit, List::train);
    const double work =
        std::max({bytes(v.forward_work), bytes(v.backward_work), bytes(v.input_work), bytes(v.weight_work)});
    most = std::max(most, bytes(v.saved) + bytes(v.deferred) + work + 4 * double(v.output.bytes()));
  }
  constexpr double kMost = 9e18;
  return static_cast<int64_t>(std::min(most, kMost));
}

const Work& WorkRecorder::of(List list, const schedule::Schedule& schedule, const Action& action) {
  const auto [place, is_new] = known_.try_emplace(likeness(plan_, list, action, recomputed_by(schedule, action)));
  if (is_new) place->second = record(list, schedule, action);
  return place->second;
}

Work WorkRecorder::record(List list, const schedule::Schedule& s, const Action& a) const {
  const plan::StepRequest& r = plan_.request;
  const model::Model& model = *plan_.model;
  const bool generates = list == List::generate;
  const model::Unit& unit = model.unit(a.owner, generates);
  const std::vector<int> recomputed = recomputed_by(s, a);
  if (dynamic_cast<const model::WrappedUnit*>(&unit) != nullptr) return module_work(unit, r, list, a.kind);
  const model::UnitValues values = plan_.values_of(a.owner, list);
  const model::BatchShape shape = r.shape_of(list);

  Places places(r.precision.compute == at::kDouble);
  model::UnitTensors t;
  t.shape = shape;
  const bool backward = a.kind == ActionKind::backward || a.kind == ActionKind::backward_input;
  for (const model::ParameterPlace& place : model.places[static_cast<size_t>(a.owner)]) {
    const auto g = static_cast<size_t>(place.group);
    const std::vector<int64_t>& of = plan_.layouts[g].tensors()[static_cast<size_t>(place.index)].shape;
    t.parameters.push_back(places.place(of, plan_.storage[g].compute));
    if (!schedule::writes_gradient(a.kind)) continue;
    const bool trained = model.groups[g].trained;
    t.gradients.push_back(trained ? places.place(of, r.precision.gradient()) : at::Tensor());
    t.accumulate.push_back(false);
  }
  const bool is_first = a.owner == 0, is_last = a.owner + 1 == std::ssize(model.units);
  if (!is_first) t.input = places.place(plan_.values_of(a.owner - 1, list).output);
  if (!values.output.shape.empty() && values.output.bytes() > 0) t.output = places.place(values.output);
  if (backward && !is_last) t.d_output = places.place(values.output);
  if (backward) t.d_boundary = is_first ? t.d_output : places.place(plan_.values_of(a.owner - 1, list).output);
  t.saved = all(places, values.saved);
  t.deferred = all(places, values.deferred);
  t.work = all(places, plan::work_of(values, a.kind));
  t.tokens = places.place(model.inputs(shape, generates));
  t.targets = places.place(model.targets(shape, generates));
  if (r.documents_of(list).any()) {
    const at::Tensor both = places.place(model::documents_of(shape));
    if (r.documents_of(list).attention) t.document_starts = both[0];
    if (r.documents_of(list).positions)
      t.position_ids = both[1].narrow(0, 0, shape.tokens() / model.parallel_of(generates).cp_size);
  }
  t.loss_sum = at::zeros({std::max<int64_t>(1, plan_.num_sums(a.owner))}, at::kDouble);

  std::vector<std::unique_ptr<SilentCommunicator>> silent;
  for (const comm::UnitAxisTraits& axis : comm::kUnitAxes) {
    const int size = r.size(axis.mesh);
    if (size == 1) continue;
    silent.push_back(std::make_unique<SilentCommunicator>(
        comm::Group{.name = axis.name, .rank = r.coordinate(axis.mesh), .size = size}));
    t.ranks[axis.axis] = silent.back().get();
  }
  if (places.size() > 2 * kMostRecordedBytes)
    throw UsageError(
        fmt::format("a micro-batch of {} tokens is too large for a prediction, which would take {} of address space; "
                    "lower train.micro_batch_size or train.max_seq_length",
                    base::human_count(shape.tokens()), base::human_bytes(places.size())));
  const MirrorMemory memory(std::max<int64_t>(1, places.size()));
  places.fill(memory);
  Recorder recorder;
  plan::run_pass(unit, a.kind, t, recomputed);
  return {.operations = std::move(recorder.operations), .traffic = traffic_of(r, unit, list, a.kind, recomputed)};
}

}  // namespace trireme::costs
