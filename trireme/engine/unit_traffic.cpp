#include "trireme/engine/unit_traffic.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::engine {

using comm::Operation;

WatchedCommunicator::WatchedCommunicator(comm::CommunicatorPtr inner, model::TrafficRow::Axis axis)
    : Communicator(inner->rank(), inner->size(), inner->name()), inner_(std::move(inner)), axis_(axis) {}

void WatchedCommunicator::expect(const std::vector<model::TrafficRow>& rows, const std::string& action) {
  rows_ = &rows;
  next_ = 0;
  action_ = action;
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
    throw InternalError(fmt::format("{} calls {} of {} {} on group '{}', but declared {} of {} {} next", action_,
                                    to_string(operation), tensor.numel(), comm::dtype_name(tensor.scalar_type()),
                                    name(), to_string(row.operation), row.elements, comm::dtype_name(row.dtype)));
  }
  throw InternalError(fmt::format("{} calls {} of {} {} on group '{}', which it did not declare", action_,
                                  to_string(operation), tensor.numel(), comm::dtype_name(tensor.scalar_type()),
                                  name()));
}

void WatchedCommunicator::finish() {
  for (; rows_ && next_ < rows_->size(); ++next_) {
    const model::TrafficRow& row = (*rows_)[next_];
    if (row.axis == axis_)
      throw InternalError(fmt::format("{} declared {} of {} elements on group '{}' and did not call it", action_,
                                      to_string(row.operation), row.elements, name()));
  }
  rows_ = nullptr;
}

comm::SharedBuffer WatchedCommunicator::allocate_shared(int64_t bytes, bool host_shared) {
  return inner_->allocate_shared(bytes, host_shared);
}
comm::WorkPtr WatchedCommunicator::all_gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts) {
  check(Operation::all_gather, output);
  return inner_->all_gather(std::move(output), std::move(input), counts);
}
comm::WorkPtr WatchedCommunicator::reduce_scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                                                  comm::ReduceOptions options) {
  check(Operation::reduce_scatter, input);
  return inner_->reduce_scatter(std::move(output), std::move(input), counts, options);
}
comm::WorkPtr WatchedCommunicator::all_reduce(at::Tensor output, at::Tensor input, comm::ReduceOptions options) {
  check(Operation::all_reduce, input);
  return inner_->all_reduce(std::move(output), std::move(input), options);
}
comm::WorkPtr WatchedCommunicator::broadcast(at::Tensor tensor, int root) {
  check(Operation::broadcast, tensor);
  return inner_->broadcast(std::move(tensor), root);
}
comm::WorkPtr WatchedCommunicator::reduce(at::Tensor output, at::Tensor input, int root, comm::ReduceOptions options) {
  check(Operation::reduce, input);
  return inner_->reduce(std::move(output), std::move(input), root, options);
}
comm::WorkPtr WatchedCommunicator::gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                                          int root) {
  check(Operation::gather, input);
  return inner_->gather(std::move(output), std::move(input), counts, root);
}
comm::WorkPtr WatchedCommunicator::scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                                           int root) {
  check(Operation::scatter, output);
  return inner_->scatter(std::move(output), std::move(input), counts, root);
}
comm::WorkPtr WatchedCommunicator::all_to_all(at::Tensor output, at::Tensor input,
                                              std::span<const int64_t> output_counts,
                                              std::span<const int64_t> input_counts) {
  check(Operation::all_to_all, input);
  return inner_->all_to_all(std::move(output), std::move(input), output_counts, input_counts);
}
comm::WorkPtr WatchedCommunicator::send(at::Tensor tensor, int peer) {
  check(Operation::send, tensor);
  return inner_->send(std::move(tensor), peer);
}
comm::WorkPtr WatchedCommunicator::receive(at::Tensor tensor, int peer) {
  check(Operation::receive, tensor);
  return inner_->receive(std::move(tensor), peer);
}
comm::WorkPtr WatchedCommunicator::barrier() {
  throw InternalError(fmt::format("{} calls a barrier inside a unit, which no unit may", action_));
}

namespace {

// One declared call, on `memory`; units divide all they exchange evenly, and pass messages around a ring.
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

void replay(const std::vector<model::TrafficRow>& rows, comm::Communicator& tp, comm::Communicator& cp,
            at::Device device) {
  std::vector<std::pair<comm::WorkPtr, at::Tensor>> sent;  // a send may wait for the receive that follows it
  for (const model::TrafficRow& row : rows) {
    at::Tensor memory = at::zeros({2 * row.elements}, at::TensorOptions().dtype(row.dtype).device(device));
    comm::WorkPtr work = replay(row, row.axis == model::TrafficRow::Axis::tp ? tp : cp, memory);
    if (row.operation == Operation::send)
      sent.emplace_back(std::move(work), std::move(memory));
    else
      work->wait();
  }
  for (const auto& [work, memory] : sent) work->wait();
}

}  // namespace trireme::engine
