#include "trireme/optim/by_tensor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ops/products/products.h"
#include "trireme/optim/adafactor.h"
#include "trireme/optim/adamw8bit.h"

namespace trireme::optim {
namespace {

/// Divides the planned work memory into tensors; without memory, it only counts.
class Scratch {
 public:
  explicit Scratch(const at::Tensor& memory) : memory_(memory) {}
  at::Tensor take(at::IntArrayRef shape, at::ScalarType dtype) {
    int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t size : shape) bytes *= size;
    const int64_t at = std::exchange(bytes_, bytes_ + (bytes + 63) / 64 * 64);
    if (!memory_.defined()) return {};
    check_invariant(bytes_ <= memory_.numel(), "the work memory of a step is as large as planned");
    return at::from_blob(static_cast<char*>(memory_.mutable_data_ptr()) + at, shape, memory_.options().dtype(dtype));
  }
  int64_t bytes() const { return bytes_; }

 private:
  const at::Tensor& memory_;
  int64_t bytes_ = 0;
};

int64_t num_blocks(int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

int64_t longest_of(std::span<const DecaySegment> segments) {
  int64_t longest = 0;
  for (const DecaySegment& s : segments)
    if (s.parameter != nullptr) longest = std::max(longest, s.end - s.begin);
  return longest;
}

int64_t num_tensors(std::span<const DecaySegment> segments) {
  return std::ranges::count_if(segments, [](const DecaySegment& s) { return s.parameter != nullptr; });
}

// Whether other tensor-parallel ranks have the rest. (On one rank, rows may only lie in another order than in the
// file.)
bool is_split(const DecaySegment& segment) {
  return segment.parameter->numel() != c10::multiply_integers(segment.parameter->whole_shape());
}

/// The blocks' sums of squares, added from the tensor's first element to its last.
double sum_of(const at::Tensor& partials, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += partials.data_ptr<double>()[i];
  return sum;
}

double squares_of(const at::Tensor& tensor, const at::Tensor& partials) {
  const int64_t blocks = num_blocks(tensor.numel());
  squared_norm_partials(partials.narrow(0, 0, blocks), tensor);
  return sum_of(partials, blocks);
}

/// Memory of LARS and LAMB: the two norms of every tensor, and partial sums of one.
struct Norms {
  at::Tensor sums, partials;
  Norms(std::span<const DecaySegment> segments, Scratch& scratch)
      : sums(scratch.take({num_tensors(segments), 2}, at::kDouble)),
        partials(scratch.take({2, num_blocks(longest_of(segments))}, at::kDouble)) {}
};

/// Of LARS: lambda = eta |w| / (|g| + wd |w| + eps).
double lars_rate(double w, double g, double decay, const OptimizerOptions& o) {
  return w > 0 && g > 0 ? o.trust_coefficient * w / (g + decay * w + o.eps) : 1;
}

/// Of LAMB, with DeepSpeed's bounds: |w| / |r|.
double lamb_ratio(double w, double r, const OptimizerOptions& o) {
  return w > 0 && r > 0 ? std::clamp(w / r, o.trust_bounds[0], o.trust_bounds[1]) : 1;
}

void step_by_norms(const StepTensors& t, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                   const AddParts& add_parts) {
  Scratch scratch(t.work);
  const Norms norms(segments, scratch);
  if (norms.sums.numel() == 0) return;
  auto* sums = norms.sums.data_ptr<double>();
  int64_t at = 0;
  for (const DecaySegment& s : segments) {
    if (s.parameter == nullptr) continue;
    const int64_t size = s.end - s.begin, blocks = num_blocks(size);
    double* mine = sums + 2 * at++;
    mine[0] = squares_of(t.master.narrow(0, s.begin, size), norms.partials[0]);
    if (options.rule == Rule::lars) {
      mine[1] = squares_of(t.gradient.narrow(0, s.begin, size), norms.partials[1]) *
                (options.gradient_scale * options.gradient_scale);
    } else {
      lamb_directions(t.master, t.state, t.gradient, s, options, norms.partials[1].narrow(0, 0, blocks));
      mine[1] = sum_of(norms.partials[1], blocks);
    }
    if (!s.parameter->counted) mine[0] = mine[1] = 0;
  }
  add_parts(norms.sums);
  std::vector<DecaySegment> scaled(segments.begin(), segments.end());
  at = 0;
  for (DecaySegment& s : scaled) {
    if (s.parameter == nullptr) continue;
    const double first = std::sqrt(sums[2 * at]), second = std::sqrt(sums[2 * at + 1]);
    ++at;
    const double decay = s.decay ? s.weight_decay.value_or(options.weight_decay) : 0;
    if (options.rule == Rule::lamb)
      s.rate *= lamb_ratio(first, second, options);
    else if (s.parameter->whole_shape().size() > 1)  // norms and biases are left out
      s.rate *= lars_rate(first, second, decay, options);
  }
  optimizer_update(t.master, t.state, t.gradient, t.compute, scaled, options);
}

/// Memory of one matrix's step, of the whole matrix unless it says otherwise.
struct MuonMemory {
  at::Tensor update;  ///< of this rank's part; the same memory as `whole` if nothing is split
  at::Tensor whole, partials;
  at::Tensor x, y, a, b;
  MuonMemory(const DecaySegment& s, at::ScalarType master, at::ScalarType multiplied, Scratch& scratch) {
    const std::vector<int64_t>& shape = s.parameter->whole_shape();
    const int64_t small = std::min(shape[0], shape[1]), large = std::max(shape[0], shape[1]);
    whole = scratch.take({shape[0] * shape[1]}, master);
    update = is_split(s) ? scratch.take({s.end - s.begin}, master) : whole;
    partials = scratch.take({num_blocks(shape[0] * shape[1])}, at::kDouble);
    x = scratch.take({small, large}, multiplied);
    y = scratch.take({small, large}, multiplied);
    a = scratch.take({small, small}, multiplied);
    b = scratch.take({small, small}, multiplied);
  }
};

// Five steps of Newton and Schulz: the singular values of X go to about 1, by X = c0 X + (c1 A + c2 A A) X, A = X X^T.
void orthogonalize(const at::Tensor& matrix, MuonMemory& m) {
  constexpr int kSteps = 5;
  constexpr double kC0 = 3.4445, kC1 = -4.7750, kC2 = 2.0315, kEps = 1e-7;
  at::Tensor(matrix).mul_(1 / std::max(std::sqrt(squares_of(m.whole, m.partials)), kEps));
  const bool tall = matrix.size(0) > matrix.size(1);
  m.x.copy_(tall ? matrix.t() : matrix);
  for (int i = 0; i < kSteps; ++i) {
    ops::multiply(m.a, m.x, m.x.t());
    ops::multiply(m.b, m.a, m.a);
    m.b.mul_(kC2).add_(m.a, kC1);
    ops::multiply(m.y, m.b, m.x);
    m.y.add_(m.x, kC0);
    std::swap(m.x, m.y);
  }
  at::Tensor(matrix).copy_(tall ? m.x.t() : m.x);
}

at::ScalarType multiplied_in(at::ScalarType master, at::ScalarType compute) {
  return compute == at::kBFloat16 ? compute : master;
}

void step_matrix(const StepTensors& t, const DecaySegment& s, const OptimizerOptions& o, const AddParts& add_parts) {
  const model::ParameterSpec& parameter = *s.parameter;
  const int64_t size = s.end - s.begin;
  const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, s.begin, size); };
  Scratch scratch(t.work);
  MuonMemory m(s, t.master.scalar_type(),
               multiplied_in(t.master.scalar_type(), t.compute.defined() ? t.compute.scalar_type() : at::kDouble),
               scratch);
  at::mul_out(m.update, part(t.gradient), at::scalar_tensor(o.gradient_scale, m.update.options()));
  part(t.state[0]).lerp_(m.update, 1 - o.momentum);
  if (o.nesterov)
    m.update.lerp_(part(t.state[0]), o.momentum);
  else
    m.update.copy_(part(t.state[0]));
  const auto for_each_run = [&](const auto& visit) { model::for_each_run(parameter, 0, size, visit); };
  if (is_split(s)) {
    m.whole.zero_();
    if (parameter.counted)
      for_each_run([&](int64_t local, int64_t full, int64_t count) {
        m.whole.narrow(0, full, count).copy_(m.update.narrow(0, local, count));
      });
    add_parts(m.whole);
  }
  const int64_t rows = parameter.whole_shape()[0], columns = parameter.whole_shape()[1];
  orthogonalize(m.whole.view({rows, columns}), m);
  if (is_split(s)) {
    m.update.zero_();
    for_each_run([&](int64_t local, int64_t full, int64_t count) {
      m.update.narrow(0, local, count).copy_(m.whole.narrow(0, full, count));
    });
  }
  const double ratio = o.match_rms ? 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)))
                                   : std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
  const double lr = o.lr * s.rate;
  if (s.decay) part(t.master).mul_(1 - lr * s.weight_decay.value_or(o.weight_decay));
  part(t.master).add_(m.update, -lr * ratio);
  if (t.compute.defined()) part(t.compute).copy_(part(t.master));
}

void step_matrices(const StepTensors& t, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                   const AddParts& add_parts) {
  for (const DecaySegment& s : segments)
    if (s.parameter != nullptr) step_matrix(t, s, options, add_parts);
}

}  // namespace

void step_group(const StepTensors& t, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                const AddParts& add_parts) {
  switch (options.rule) {
    case Rule::lars:
    case Rule::lamb:
      return step_by_norms(t, segments, options, add_parts);
    case Rule::adamw8bit:
      return step_adamw8bit(t, segments, options);
    case Rule::adafactor:
      return step_adafactor(t, segments, options, add_parts);
    case Rule::muon:
      return step_matrices(t, segments, options, add_parts);
    default:
      return optimizer_update(t.master, t.state, t.gradient, t.compute, segments, options);
  }
}

int64_t step_work_bytes(Rule rule, std::span<const DecaySegment> segments, at::ScalarType master,
                        at::ScalarType compute) {
  if (rule == Rule::adafactor) return adafactor_work_bytes(segments);
  const at::Tensor none;
  int64_t bytes = 0;
  if (rule == Rule::lars || rule == Rule::lamb) {
    Scratch scratch(none);
    const Norms norms(segments, scratch);
    bytes = scratch.bytes();
  }
  for (const DecaySegment& s : segments) {
    if (rule != Rule::muon || s.parameter == nullptr) continue;
    Scratch scratch(none);
    const MuonMemory memory(s, master, multiplied_in(master, compute), scratch);
    bytes = std::max(bytes, scratch.bytes());
  }
  return bytes;
}

std::vector<model::TrafficRow> step_traffic(Rule rule, std::span<const DecaySegment> segments, at::ScalarType master) {
  if (rule == Rule::adafactor) return adafactor_traffic(segments);
  std::vector<model::TrafficRow> rows;
  const auto add = [&](at::ScalarType dtype, int64_t elements) {
    rows.push_back({comm::UnitAxis::tp, comm::Operation::all_reduce, dtype, elements});
  };
  if ((rule == Rule::lars || rule == Rule::lamb) && num_tensors(segments) > 0)
    add(at::kDouble, 2 * num_tensors(segments));
  if (rule == Rule::muon)
    for (const DecaySegment& s : segments)
      if (s.parameter != nullptr && is_split(s)) add(master, c10::multiply_integers(s.parameter->whole_shape()));
  return rows;
}

}  // namespace trireme::optim
