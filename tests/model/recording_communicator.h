// RecordingCommunicator: passes every call on and notes it as the row that traffic() declares for it.
#pragma once

#include "trireme/comm/communicator.h"
#include "trireme/model/unit.h"

namespace trireme::model {

class RecordingCommunicator final : public comm::Communicator {
 public:
  using Axis = comm::UnitAxis;
  using Operation = comm::Operation;
  using Counts = std::span<const int64_t>;
  using WorkPtr = comm::WorkPtr;

  RecordingCommunicator(comm::CommunicatorPtr to, Axis axis, std::vector<TrafficRow>& rows)
      : Communicator(to->rank(), to->size(), to->name()), to_(std::move(to)), axis_(axis), rows_(rows) {}

  std::string backend() const override { return to_->backend(); }
  comm::SharedBuffer allocate_shared(int64_t bytes, bool host) override { return to_->allocate_shared(bytes, host); }
  WorkPtr all_gather(at::Tensor output, at::Tensor input, Counts counts) override {
    note(Operation::all_gather, output);
    return to_->all_gather(output, input, counts);
  }
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input, Counts counts, comm::ReduceOptions options) override {
    note(Operation::reduce_scatter, input);
    return to_->reduce_scatter(output, input, counts, options);
  }
  WorkPtr all_reduce(at::Tensor output, at::Tensor input, comm::ReduceOptions options) override {
    note(Operation::all_reduce, input);
    return to_->all_reduce(output, input, options);
  }
  WorkPtr broadcast(at::Tensor tensor, int root) override {
    note(Operation::broadcast, tensor);
    return to_->broadcast(tensor, root);
  }
  WorkPtr reduce(at::Tensor output, at::Tensor input, int root, comm::ReduceOptions options) override {
    note(Operation::reduce, input);
    return to_->reduce(output, input, root, options);
  }
  WorkPtr gather(at::Tensor output, at::Tensor input, Counts counts, int root) override {
    note(Operation::gather, input);
    return to_->gather(output, input, counts, root);
  }
  WorkPtr scatter(at::Tensor output, at::Tensor input, Counts counts, int root) override {
    note(Operation::scatter, output);
    return to_->scatter(output, input, counts, root);
  }
  WorkPtr all_to_all(at::Tensor output, at::Tensor input, Counts output_counts, Counts input_counts) override {
    note(Operation::all_to_all, input);
    return to_->all_to_all(output, input, output_counts, input_counts);
  }
  WorkPtr send(at::Tensor tensor, int peer) override {
    note(Operation::send, tensor);
    return to_->send(tensor, peer);
  }
  WorkPtr receive(at::Tensor tensor, int peer) override {
    note(Operation::receive, tensor);
    return to_->receive(tensor, peer);
  }
  WorkPtr barrier() override { return to_->barrier(); }
  comm::TrafficCount traffic(Operation operation) const override { return to_->traffic(operation); }
  void progress() override { to_->progress(); }

 private:
  void note(Operation operation, const at::Tensor& tensor) {
    rows_.push_back({axis_, operation, tensor.scalar_type(), tensor.numel()});
  }

  comm::CommunicatorPtr to_;
  Axis axis_;
  std::vector<TrafficRow>& rows_;
};

}  // namespace trireme::model
