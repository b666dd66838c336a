// The gradient's norm: partial sums of squares of every 4096 elements, of all ranks that hold one copy of the model
// together, summed in the order of the flat layouts: the same bits on any number of ranks.
#include <ATen/ATen.h>

#include <cmath>

#include "trireme/engine/engine.h"

namespace trireme::engine {
namespace {

// Elements that another tensor-parallel rank counts are left out of their blocks.
template <typename T>
void leave_out(double* partials, const T* gradient, shard::Range held, const shard::FlatLayout& layout,
               const std::vector<model::ParameterSpec>& parameters) {
  const auto counted = [&](size_t i) { return parameters[i].counted; };
  for (int64_t block = held.begin; block < held.end; block += shard::kBlockElements) {
    const int64_t end = block + shard::kBlockElements;
    bool mixed = false;
    for (size_t i = 0; i < parameters.size() && !mixed; ++i) {
      const shard::FlatTensor& t = layout.tensors()[i];
      mixed = !counted(i) && t.offset < end && t.offset + t.numel > block;
    }
    if (!mixed) continue;
    double sum = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const shard::FlatTensor& t = layout.tensors()[i];
      if (!counted(i)) continue;
      for (int64_t e = std::max(block, t.offset); e < std::min(end, t.offset + t.numel); ++e) {
        const double x = gradient[e - held.begin];
        sum += x * x;
      }
    }
    partials[(block - held.begin) / shard::kBlockElements] = sum;
  }
}

}  // namespace

Engine::NormPlan Engine::plan_norm() const {
  const plan::StepRequest& request = plan_.request;
  const std::vector<int>& members = plan_.groups.norm;
  const auto blocks_of = [&](int g, const plan::StepRequest& who) {
    return plan_.layouts[g].owned(who.shard_index(), who.num_shards()).size() / shard::kBlockElements;
  };
  NormPlan out;
  std::vector<int64_t> cursor;
  int64_t total = 0;
  for (int member : members) {
    const plan::StepRequest who = request.of_rank(member);
    int64_t n = 0;
    for (int g : plan_.counted_groups(who.coordinate(comm::Axis::pp))) n += blocks_of(g, who);
    cursor.push_back(total);
    out.counts.push_back(n);
    total += n;
  }
  for (int g = 0; g < static_cast<int>(plan_.layouts.size()); ++g)
    for (int tp = 0; tp < request.size(comm::Axis::tp); ++tp)
      for (size_t m = 0; m < members.size(); ++m) {
        const plan::StepRequest who = request.of_rank(members[m]);
        if (who.coordinate(comm::Axis::pp) != plan_.holders(g).front() || who.coordinate(comm::Axis::tp) != tp)
          continue;
        const int64_t n = blocks_of(g, who);
        out.order.emplace_back(cursor[m], n);
        cursor[m] += n;
      }
  return out;
}

void Engine::gather_norm() {
  const schedule::Schedule& s = plan_.train();
  const plan::StepRequest& request = plan_.request;
  const auto tensor = [&](schedule::ValueKind kind) {
    const schedule::Value& v = s.values[s.find(kind, -1, -1)];
    return view(v, {v.bytes / 8}, at::kDouble);
  };
  at::Tensor own = tensor(schedule::ValueKind::norm_partials), all = tensor(schedule::ValueKind::norm_all);
  int64_t at = 0;
  for (int g : plan_.counted_groups(request.coordinate(comm::Axis::pp))) {
    const shard::Range held = plan_.held(g);
    const int64_t blocks = held.size() / shard::kBlockElements;
    if (blocks == 0) continue;
    const at::Tensor partials = own.narrow(0, at, blocks), &gradient = views_.at(g).step_gradient;
    optim::squared_norm_partials(partials, gradient);
    if (request.size(comm::Axis::tp) > 1) {
      const auto& parameters = model_.groups[g].parameters;
      if (gradient.scalar_type() == at::kDouble)
        leave_out(partials.data_ptr<double>(), gradient.data_ptr<double>(), held, plan_.layouts[g], parameters);
      else
        leave_out(partials.data_ptr<double>(), gradient.data_ptr<float>(), held, plan_.layouts[g], parameters);
    }
    at += blocks;
  }
  const double* partials = own.data_ptr<double>();
  if (norm_.counts.size() > 1) {
    comm_.norm->all_gather(all, own, norm_.counts)->wait();
    partials = all.data_ptr<double>();
  }
  double sum = 0;
  for (const auto& [first, number] : norm_.order)
    for (int64_t i = first; i < first + number; ++i) sum += partials[i];
  gradient_norm_ = std::sqrt(sum);
}

}  // namespace trireme::engine
