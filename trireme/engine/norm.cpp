// The gradient's norm: each rank sums the squares of blocks of 4096 elements, and the sums of all blocks are added
// without rounding. So the bits do not depend on the number of ranks, and a rank sends half a kilobyte.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "trireme/engine/engine.h"
#include "trireme/ops/checks.h"
#include "trireme/optim/exact_sum.h"
#include "trireme/optim/stored_update.h"

namespace trireme::engine {
namespace {

// Leaves out elements that another tensor-parallel rank counts.
template <typename T>
void leave_out(double* partials, const T* gradient, shard::Range counted_here, const shard::FlatLayout& layout,
               const std::vector<model::ParameterSpec>& parameters) {
  const auto counted = [&](size_t i) { return parameters[i].counted; };
  for (int64_t block = counted_here.begin; block < counted_here.end; block += shard::kBlockElements) {
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
        const double x = gradient[e - counted_here.begin];
        sum += x * x;
      }
    }
    partials[(block - counted_here.begin) / shard::kBlockElements] = sum;
  }
}

}  // namespace

void Engine::add_squares(int g, const at::Tensor& step_gradient) {
  const shard::Range held = plan_.held(g), mine = plan_.saved(g);
  const int64_t blocks = mine.size() / shard::kBlockElements;
  if (blocks == 0) return;
  const schedule::Value& scratch = plan_.train().values[static_cast<size_t>(norm_partials_)];
  at::Tensor partials = view(scratch, {blocks}, at::kDouble);
  at::Tensor gradient = step_gradient.narrow(0, mine.begin - held.begin, mine.size());
  optim::stored_norm_partials(partials, gradient);
  const auto& parameters = model_.groups[g].parameters;
  const bool all_counted = std::ranges::all_of(parameters, &model::ParameterSpec::counted);
  if (on_gpu() && all_counted) {
    // The terms are added there, so that the host waits once for all groups.
    if (!squares_on_gpu_.defined())
      squares_on_gpu_ = at::zeros({optim::ExactSum::kLimbs}, partials.options().dtype(at::kLong));
    optim::add_exactly(squares_on_gpu_, partials);
    return;
  }
  partials = partials.to(at::kCPU);  // the tensor itself where it lies there
  if (!all_counted) {
    gradient = gradient.to(at::kCPU);
    if (ops::is_narrow(gradient.scalar_type())) gradient = gradient.to(at::kFloat);
    if (gradient.scalar_type() == at::kDouble)
      leave_out(partials.data_ptr<double>(), gradient.data_ptr<double>(), mine, plan_.layouts[g], parameters);
    else
      leave_out(partials.data_ptr<double>(), gradient.data_ptr<float>(), mine, plan_.layouts[g], parameters);
  }
  squares_.add({partials.data_ptr<double>(), static_cast<size_t>(blocks)});
}

void Engine::sum_squares(const schedule::Action& a, const Bound& b) { add_squares(a.owner, b.group.step_gradient); }

// Adds the squares of the gradients that it reads to those of the gradients that have left.
void Engine::gather_norm(const schedule::Schedule& list, const schedule::Action& a) {
  static_assert(schedule::kNormSumBytes == 8 * optim::ExactSum::kLimbs);
  if (!given_up_)  // else gradients may be anything
    for (const schedule::Use& u : a.uses)
      if (const schedule::Value& v = list.values[u.value]; v.kind == schedule::ValueKind::gradient)
        add_squares(v.owner, views_.at(v.owner).step_gradient);
  optim::ExactSum& sum = squares_;
  if (squares_on_gpu_.defined()) {
    const at::Tensor on_host = squares_on_gpu_.to(at::kCPU);
    sum.add_limbs({on_host.data_ptr<int64_t>(), optim::ExactSum::kLimbs});
  }
  const schedule::Schedule& s = plan_.train();
  const auto tensor = [&](schedule::ValueKind kind, at::ScalarType dtype) {
    const schedule::Value& v = s.values[s.find(kind, -1, -1)];
    return view(v, {v.bytes / 8}, dtype);
  };
  if (const int ranks = comm_.world->size(); ranks > 1) {
    constexpr int64_t kLimbs = optim::ExactSum::kLimbs;
    const at::Tensor sums =
        on_gpu() ? at::empty({kLimbs * (ranks + 1)}, at::kLong) : tensor(schedule::ValueKind::norm_all, at::kLong);
    const at::Tensor all = sums.narrow(0, 0, kLimbs * ranks), own = sums.narrow(0, kLimbs * ranks, kLimbs);
    sum.normalize();
    std::copy(sum.limbs().begin(), sum.limbs().end(), own.data_ptr<int64_t>());
    comm_.world->all_gather(all, own, std::vector<int64_t>(ranks, kLimbs))->wait();
    sum.clear();
    for (int r = 0; r < ranks; ++r) sum.add_limbs({all.data_ptr<int64_t>() + r * kLimbs, kLimbs});
  }
  gradient_norm_ = std::sqrt(sum.value()) / loss_scale_;
}

}  // namespace trireme::engine
