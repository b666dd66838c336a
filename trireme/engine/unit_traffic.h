// A unit's own communicator, watched: only the calls that the unit declared pass, in their order. What the
// validator proved about a step is thus what happens.
#pragma once

#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/model/unit.h"

namespace trireme::engine {

class WatchedCommunicator final : public comm::Communicator {
 public:
  WatchedCommunicator(comm::CommunicatorPtr inner, model::TrafficRow::Axis axis);

  /// The rows of the half that comes next: every one of them has to be called.
  void expect(const std::vector<model::TrafficRow>& rows, const std::string& action);
  /// Errors    InternalError naming the row that was not called
  void finish();

  std::string backend() const override { return inner_->backend(); }
  comm::SharedBuffer allocate_shared(int64_t bytes, bool host_shared) override;
  comm::WorkPtr all_gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts) override;
  comm::WorkPtr reduce_scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                               comm::ReduceOptions options) override;
  comm::WorkPtr all_reduce(at::Tensor output, at::Tensor input, comm::ReduceOptions options) override;
  comm::WorkPtr broadcast(at::Tensor tensor, int root) override;
  comm::WorkPtr reduce(at::Tensor output, at::Tensor input, int root, comm::ReduceOptions options) override;
  comm::WorkPtr gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) override;
  comm::WorkPtr scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) override;
  comm::WorkPtr all_to_all(at::Tensor output, at::Tensor input, std::span<const int64_t> output_counts,
                           std::span<const int64_t> input_counts) override;
  comm::WorkPtr send(at::Tensor tensor, int peer) override;
  comm::WorkPtr receive(at::Tensor tensor, int peer) override;
  comm::WorkPtr barrier() override;
  comm::TrafficCount traffic(comm::Operation operation) const override { return inner_->traffic(operation); }
  double background_seconds() const override { return inner_->background_seconds(); }
  void progress() override { inner_->progress(); }

 private:
  void check(comm::Operation operation, const at::Tensor& tensor);

  comm::CommunicatorPtr inner_;
  model::TrafficRow::Axis axis_;
  const std::vector<model::TrafficRow>* rows_ = nullptr;
  size_t next_ = 0;
  std::string action_;
};

/// Makes the calls of `rows` on memory that means nothing, in place of the unit that declared them: its peers go on.
void replay(const std::vector<model::TrafficRow>& rows, comm::Communicator& tp, comm::Communicator& cp,
            at::Device device = at::kCPU);

}  // namespace trireme::engine
