#include "trireme/model/tensor_parallel.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme::model {
namespace {

std::vector<int64_t> equal_counts(const at::Tensor& whole, int size) {
  return std::vector<int64_t>(static_cast<size_t>(size), whole.numel() / size);
}

}  // namespace

TensorParallel::TensorParallel(const Parallel& parallel, const comm::UnitCommunicators& ranks)
    : parallel_(parallel), ranks_(parallel.tp_size > 1 ? ranks[comm::UnitAxis::tp] : nullptr) {
  check_invariant(parallel.tp_size == 1 || (ranks_ != nullptr && ranks_->size() == parallel.tp_size),
                  "a tensor-parallel unit is given the communicator of its ranks");
}

at::Tensor TensorParallel::own_rows(const at::Tensor& whole) const {
  if (!sequence()) return whole;
  const int64_t rows = whole.size(0) / parallel_.tp_size;
  return whole.narrow(0, parallel_.tp_rank * rows, rows);
}

void TensorParallel::gather_in_place(const at::Tensor& whole) const {
  if (sequence()) gather(whole, own_rows(whole));
}

at::Tensor TensorParallel::gather(const at::Tensor& whole, const at::Tensor& rows) const {
  if (!sequence()) return rows;
  ranks_->all_gather(whole, rows, equal_counts(whole, parallel_.tp_size))->wait();
  return whole;
}

at::Tensor TensorParallel::reduce(const at::Tensor& partial, const at::Tensor& rows) const {
  if (!sequence()) {
    sum(partial);
    return partial;
  }
  ranks_->reduce_scatter(rows, partial, equal_counts(partial, parallel_.tp_size), {})->wait();
  return rows;
}

void TensorParallel::sum(const at::Tensor& x) const {
  if (!alone()) ranks_->all_reduce(x, x, {})->wait();
}

void TensorParallel::max(const at::Tensor& x) const {
  if (!alone()) ranks_->all_reduce(x, x, {.op = comm::ReduceOp::max})->wait();
}

void TensorTraffic::gather(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const {
  if (parallel_.tp_size > 1 && parallel_.sequence_parallel)
    rows.push_back({comm::UnitAxis::tp, comm::Operation::all_gather, dtype, elements});
}

void TensorTraffic::reduce(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const {
  if (parallel_.tp_size == 1) return;
  const auto operation = parallel_.sequence_parallel ? comm::Operation::reduce_scatter : comm::Operation::all_reduce;
  rows.push_back({comm::UnitAxis::tp, operation, dtype, elements});
}

void TensorTraffic::sum(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const {
  if (parallel_.tp_size > 1) rows.push_back({comm::UnitAxis::tp, comm::Operation::all_reduce, dtype, elements});
}

void TensorTraffic::max(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const {
  if (parallel_.tp_size > 1)
    rows.push_back({comm::UnitAxis::tp, comm::Operation::all_reduce, dtype, elements, comm::ReduceOp::max});
}

}  // namespace trireme::model
