// WatchedCommunicator: wraps a unit's own communicator and allows only the calls that the unit declared, in their
// order. So the run does what the validator checked.
#pragma once

#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/model/unit.h"

namespace trireme::engine {

class WatchedCommunicator final : public comm::Communicator {
 public:
  WatchedCommunicator(comm::CommunicatorPtr inner, comm::UnitAxis axis);

  /// Sets the calls of the next pass; the unit must make all of them before finish(). `of_module`: a wrapped module
  /// makes them, so another call is its user's mistake (UsageError).
  void expect(const std::vector<model::TrafficRow>& rows, const std::string& action, bool of_module = false);
  /// Ends the pass. Errors    InternalError or UsageError naming a call that the unit did not make
  void finish();

  std::string backend() const override { return inner_->backend(); }
  void be_patient(bool patient) override { inner_->be_patient(patient); }
  comm::SharedBuffer allocate_shared(int64_t bytes, bool host_shared) override {
    return inner_->allocate_shared(bytes, host_shared);
  }
  comm::WorkPtr all_gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts) override {
    check(comm::Operation::all_gather, output);
    return inner_->all_gather(std::move(output), std::move(input), counts);
  }
  comm::WorkPtr reduce_scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                               comm::ReduceOptions options) override {
    check(comm::Operation::reduce_scatter, input);
    return inner_->reduce_scatter(std::move(output), std::move(input), counts, options);
  }
  comm::WorkPtr all_reduce(at::Tensor output, at::Tensor input, comm::ReduceOptions options) override {
    check(comm::Operation::all_reduce, input);
    return inner_->all_reduce(std::move(output), std::move(input), options);
  }
  comm::WorkPtr broadcast(at::Tensor tensor, int root) override {
    check(comm::Operation::broadcast, tensor);
    return inner_->broadcast(std::move(tensor), root);
  }
  comm::WorkPtr reduce(at::Tensor output, at::Tensor input, int root, comm::ReduceOptions options) override {
    check(comm::Operation::reduce, input);
    return inner_->reduce(std::move(output), std::move(input), root, options);
  }
  comm::WorkPtr gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) override {
    check(comm::Operation::gather, input);
    return inner_->gather(std::move(output), std::move(input), counts, root);
  }
  comm::WorkPtr scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) override {
    check(comm::Operation::scatter, output);
    return inner_->scatter(std::move(output), std::move(input), counts, root);
  }
  comm::WorkPtr all_to_all(at::Tensor output, at::Tensor input, std::span<const int64_t> output_counts,
                           std::span<const int64_t> input_counts) override {
    check(comm::Operation::all_to_all, input);
    return inner_->all_to_all(std::move(output), std::move(input), output_counts, input_counts);
  }
  comm::WorkPtr send(at::Tensor tensor, int peer) override {
    check(comm::Operation::send, tensor);
    return inner_->send(std::move(tensor), peer);
  }
  comm::WorkPtr receive(at::Tensor tensor, int peer) override {
    check(comm::Operation::receive, tensor);
    return inner_->receive(std::move(tensor), peer);
  }
  comm::WorkPtr barrier() override;
  comm::TrafficCount traffic(comm::Operation operation) const override { return inner_->traffic(operation); }
  double background_seconds() const override { return inner_->background_seconds(); }
  void progress() override { inner_->progress(); }

 private:
  [[noreturn]] void refuse(const std::string& what) const;
  void check(comm::Operation operation, const at::Tensor& tensor);

  comm::CommunicatorPtr inner_;
  comm::UnitAxis axis_;
  const std::vector<model::TrafficRow>* rows_ = nullptr;
  size_t next_ = 0;
  bool of_module_ = false;
  std::string action_;
};

/// Makes the calls of `rows` with meaningless contents, in place of the unit, so that its peers can continue.
void replay(const std::vector<model::TrafficRow>& rows, const comm::PerUnitAxis<comm::CommunicatorPtr>& ranks,
            at::Device device = at::kCPU);

}  // namespace trireme::engine
