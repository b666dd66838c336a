#include "trireme/model/tensor_ranks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme::model {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// The gradient of one collective.
struct CollectiveGradient : Node {
  enum class Kind { sum, gather, sum_scatter } kind;
  TensorRanksPtr ranks;
  int64_t dim;

  CollectiveGradient(Kind kind, TensorRanksPtr ranks, int64_t dim) : kind(kind), ranks(std::move(ranks)), dim(dim) {}

  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    const at::NoGradGuard no_grad;
    switch (kind) {
      case Kind::sum:
        return {ranks->all_reduce(gradients[0], comm::ReduceOp::sum)};
      case Kind::gather:
        return {ranks->reduce_scatter(gradients[0], dim)};
      default:
        return {ranks->all_gather(gradients[0], dim)};
    }
  }
};

namespace {

// `y` was computed from `x` without a graph: tells autograd how.
at::Tensor link(at::Tensor y, const at::Tensor& x, CollectiveGradient::Kind kind, TensorRanksPtr ranks, int64_t dim) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return y;
  y = y.variable_data();  // a view could not be changed in place later
  const std::shared_ptr<Node> node(new CollectiveGradient(kind, std::move(ranks), dim), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(x));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace

int64_t TensorRanks::share(int64_t count, const std::string& what) const {
  if (count % size() != 0)
    throw UsageError(
        fmt::format("[wrap] {} {} cannot be shared evenly by tp={} ranks; take a number that is a "
                    "multiple of {}, or another mesh.tp",
                    count, what, size(), size()));
  return count / size();
}

void TensorRanks::check_divides(const at::Tensor& x, int64_t dim) const {
  if (x.dim() < (dim < 0 ? -dim : dim + 1) || x.size(dim) % size() != 0)
    throw ShapeError(
        fmt::format("[wrap] dimension {} of a tensor of shape [{}] cannot be shared evenly by tp={} "
                    "ranks; make it a multiple of {}{}",
                    dim, fmt::join(x.sizes(), ", "), size(), size(),
                    sequence() && dim == -2 ? ", or leave sequence parallelism off" : ""));
}

bool TensorRanks::records(comm::Operation operation, const at::Tensor& x, int64_t elements, comm::ReduceOp op) {
  if (rows_ != nullptr) {
    rows_->push_back({comm::UnitAxis::tp, operation, x.scalar_type(), elements, op});
    return true;
  }
  if (ranks_ == nullptr)
    throw UsageError(
        fmt::format("[wrap] a parallel layer of tp={} runs inside the steps of a model (build_model, "
                    "Trainer); elsewhere, give its TensorRanks a communicator (connect)",
                    size()));
  return false;
}

at::Tensor TensorRanks::all_reduce(const at::Tensor& x, comm::ReduceOp op) {
  if (records(comm::Operation::all_reduce, x, x.numel(), op)) return x.clone();
  at::Tensor y = at::empty(x.sizes(), x.options());
  ranks_->all_reduce(y.view({-1}), x.contiguous().view({-1}), {.op = op})->wait();
  return y;
}

at::Tensor TensorRanks::all_ranks(const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), size());
  const at::Tensor all = at::empty(shape, x.options());
  if (records(comm::Operation::all_gather, x, all.numel())) return all.copy_(x.unsqueeze(0).expand(shape));
  const std::vector<int64_t> counts(static_cast<size_t>(size()), x.numel());
  ranks_->all_gather(all.view({-1}), x.contiguous().view({-1}), counts)->wait();
  return all;
}

at::Tensor TensorRanks::all_gather(const at::Tensor& x, int64_t dim) {
  const int64_t d = dim < 0 ? dim + x.dim() : dim;
  return all_ranks(x).movedim(0, d).flatten(d, d + 1);
}

at::Tensor TensorRanks::reduce_scatter(const at::Tensor& x, int64_t dim) {
  const int64_t d = dim < 0 ? dim + x.dim() : dim;
  const at::Tensor parts = x.unflatten(d, {size(), x.size(d) / size()}).movedim(d, 0).contiguous();
  if (records(comm::Operation::reduce_scatter, x, x.numel())) return parts[rank()].clone();
  at::Tensor y = at::empty(parts.sizes().slice(1), x.options());
  const std::vector<int64_t> counts(static_cast<size_t>(size()), y.numel());
  ranks_->reduce_scatter(y.view({-1}), parts.view({-1}), counts, {})->wait();
  return y;
}

at::Tensor TensorRanks::sum(const at::Tensor& x) {
  if (size() == 1) return x;
  return link(all_reduce(x.detach(), comm::ReduceOp::sum), x, CollectiveGradient::Kind::sum, shared_from_this(), 0);
}

at::Tensor TensorRanks::gather(const at::Tensor& x, int64_t dim) {
  if (size() == 1) return x;
  return link(all_gather(x.detach(), dim), x, CollectiveGradient::Kind::gather, shared_from_this(), dim);
}

at::Tensor TensorRanks::sum_scatter(const at::Tensor& x, int64_t dim) {
  if (size() == 1) return x;
  check_divides(x, dim);
  return link(reduce_scatter(x.detach(), dim), x, CollectiveGradient::Kind::sum_scatter, shared_from_this(), dim);
}

at::Tensor TensorRanks::own(const at::Tensor& x, int64_t dim) const {
  if (size() == 1) return x;
  check_divides(x, dim);
  const int64_t part = x.size(dim) / size();
  return x.narrow(dim, rank() * part, part);
}

at::Tensor TensorRanks::max(const at::Tensor& x) {
  return size() == 1 ? x.detach() : all_reduce(x.detach(), comm::ReduceOp::max);
}

at::Tensor take_pieces(const at::Tensor& whole, int dim, const std::vector<Piece>& pieces) {
  std::vector<at::Tensor> parts;
  for (const Piece& p : pieces) parts.push_back(whole.narrow(dim, p.begin, p.size()));
  return at::cat(parts, dim);
}

ParallelLayer::ParallelLayer(TensorRanksPtr ranks) : ranks_(std::move(ranks)) {
  if (!ranks_) throw UsageError("[wrap] a parallel layer needs a TensorRanks; make one with tensor_ranks(options)");
}

}  // namespace trireme::model
