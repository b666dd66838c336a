#include "trireme/engine/unit_traffic.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::engine {

using comm::Operation;

WatchedCommunicator::WatchedCommunicator(comm::CommunicatorPtr inner, comm::UnitAxis axis)
    : Communicator(inner->rank(), inner->size(), inner->name()), inner_(std::move(inner)), axis_(axis) {}

void WatchedCommunicator::expect(const std::vector<model::TrafficRow>& rows, const std::string& action,
                                 bool of_module) {
  of_module_ = of_module;
  rows_ = &rows;
  next_ = 0;
  action_ = action;
}

void WatchedCommunicator::refuse(const std::string& what) const {
  if (!of_module_) throw InternalError(what);
  throw UsageError(fmt::format(
      "[wrap] {}; a module makes the calls of the example's pass in every pass, in evaluation mode too", what));
}

void WatchedCommunicator::check(Operation operation, const at::Tensor& tensor) {
  for (; rows_ && next_ < rows_->size(); ++next_) {
    const model::TrafficRow& row = (*rows_)[next_];
    if (row.axis != axis_) continue;
    const bool same = row.operation == operation && row.dtype == tensor.scalar_type() && row.elements == tensor.numel();
    if (same) {
      ++next_;
      return;
    }
    refuse(fmt::format("{} calls {} of {} {} on group '{}', but declared {} of {} {} next", action_,
                       to_string(operation), tensor.numel(), comm::dtype_name(tensor.scalar_type()), name(),
                       to_string(row.operation), row.elements, comm::dtype_name(row.dtype)));
  }
  refuse(fmt::format("{} calls {} of {} {} on group '{}', which it did not declare", action_, to_string(operation),
                     tensor.numel(), comm::dtype_name(tensor.scalar_type()), name()));
}

void WatchedCommunicator::finish() {
  for (; rows_ && next_ < rows_->size(); ++next_) {
    const model::TrafficRow& row = (*rows_)[next_];
    if (row.axis == axis_)
      refuse(fmt::format("{} declared {} of {} elements on group '{}' and did not call it", action_,
                         to_string(row.operation), row.elements, name()));
  }
  rows_ = nullptr;
}

comm::WorkPtr WatchedCommunicator::barrier() {
  throw InternalError(fmt::format("{} calls a barrier inside a unit, which no unit may", action_));
}

namespace {

// One declared call, on `memory`. Units divide evenly what they exchange, and pass messages around a ring.
comm::WorkPtr replay(const model::TrafficRow& row, comm::Communicator& ranks, const at::Tensor& memory) {
  const int64_t n = row.elements, part = n / ranks.size();
  const at::Tensor whole = memory.narrow(0, 0, n), own = memory.narrow(0, n, part);
  const std::vector<int64_t> parts(static_cast<size_t>(ranks.size()), part);
  switch (row.operation) {
    case Operation::all_gather:
      return ranks.all_gather(whole, own, parts);
    case Operation::reduce_scatter:
      return ranks.reduce_scatter(own, whole, parts, {.op = row.op});
    case Operation::all_reduce:
      return ranks.all_reduce(whole, whole, {.op = row.op});
    case Operation::all_to_all:
      return ranks.all_to_all(memory.narrow(0, n, n), whole, parts, parts);
    case Operation::send:
      return ranks.send(whole, (ranks.rank() + 1) % ranks.size());
    case Operation::receive:
      return ranks.receive(whole, (ranks.rank() + ranks.size() - 1) % ranks.size());
    default:
      throw InternalError(fmt::format("no unit calls {}", to_string(row.operation)));
  }
}

}  // namespace

void replay(const std::vector<model::TrafficRow>& rows, const comm::PerUnitAxis<comm::CommunicatorPtr>& ranks,
            at::Device device) {
  std::vector<std::pair<comm::WorkPtr, at::Tensor>> sent;  // a send may wait for the receive that follows it
  for (const model::TrafficRow& row : rows) {
    at::Tensor memory = at::zeros({2 * row.elements}, at::TensorOptions().dtype(row.dtype).device(device));
    comm::WorkPtr work = replay(row, *ranks[row.axis], memory);
    if (row.operation == Operation::send)
      sent.emplace_back(std::move(work), std::move(memory));
    else
      work->wait();
  }
  for (const auto& [work, memory] : sent) work->wait();
}

}  // namespace trireme::engine
