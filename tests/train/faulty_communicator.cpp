#include "faulty_communicator.h"

#include <ATen/ATen.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <thread>

#include "trireme/comm/checked_communicator.h"

namespace trireme::testing {
namespace {

using comm::ReduceOptions;
using comm::WorkPtr;
using Counts = std::vector<int64_t>;

class FaultyCommunicator final : public comm::Communicator {
 public:
  FaultyCommunicator(comm::CommunicatorPtr inner, Fault fault)
      : Communicator(inner->rank(), inner->size(), inner->name()), inner_(std::move(inner)), fault_(std::move(fault)) {}

  std::string backend() const override { return inner_->backend(); }
  comm::SharedBuffer allocate_shared(int64_t bytes, bool host_shared) override {
    return inner_->allocate_shared(bytes, host_shared);
  }
  WorkPtr all_gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts) override {
    Counts mine(counts.begin(), counts.end());
    if (due() && (input = shorter(input)).defined()) --mine[static_cast<size_t>(rank())];
    return cut_       ? inner_->all_gather(flat(output, -1), input, mine)
           : skipped_ ? skip()
                      : inner_->all_gather(output, input, counts);
  }
  WorkPtr reduce_scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                         ReduceOptions options) override {
    Counts mine(counts.begin(), counts.end());
    if (due() && (output = shorter(output)).defined()) --mine[static_cast<size_t>(rank())];
    return cut_       ? inner_->reduce_scatter(output, flat(input, -1), mine, options)
           : skipped_ ? skip()
                      : inner_->reduce_scatter(output, input, counts, options);
  }
  WorkPtr all_reduce(at::Tensor output, at::Tensor input, ReduceOptions options) override {
    due();
    return cut_       ? inner_->all_reduce(flat(output, -1), flat(input, -1), options)
           : skipped_ ? skip()
                      : inner_->all_reduce(output, input, options);
  }
  WorkPtr broadcast(at::Tensor tensor, int root) override {
    due();
    return skipped_ ? skip() : inner_->broadcast(cut_ ? flat(tensor, -1) : tensor, root);
  }
  WorkPtr reduce(at::Tensor output, at::Tensor input, int root, ReduceOptions options) override {
    due();
    if (skipped_) return skip();
    return inner_->reduce(cut_ ? flat(output, -1) : output, cut_ ? flat(input, -1) : input, root, options);
  }
  WorkPtr gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) override {
    due();
    return skipped_ ? skip() : inner_->gather(output, input, counts, root);
  }
  WorkPtr scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) override {
    due();
    return skipped_ ? skip() : inner_->scatter(output, input, counts, root);
  }
  WorkPtr all_to_all(at::Tensor output, at::Tensor input, std::span<const int64_t> output_counts,
                     std::span<const int64_t> input_counts) override {
    due();
    return skipped_ ? skip() : inner_->all_to_all(output, input, output_counts, input_counts);
  }
  WorkPtr send(at::Tensor tensor, int peer) override {
    due();
    return skipped_ ? skip() : inner_->send(cut_ ? flat(tensor, -1) : tensor, peer);
  }
  WorkPtr receive(at::Tensor tensor, int peer) override {
    due();
    return skipped_ ? skip() : inner_->receive(cut_ ? flat(tensor, -1) : tensor, peer);
  }
  WorkPtr barrier() override {
    due();
    return skipped_ ? skip() : inner_->barrier();
  }
  comm::TrafficCount traffic(comm::Operation operation) const override { return inner_->traffic(operation); }
  void progress() override { inner_->progress(); }
  void be_patient(bool patient) override { inner_->be_patient(patient); }
  // Its own siblings are given to `inner` before it is wrapped.
  void drive_while_waiting(const std::vector<comm::CommunicatorPtr>&) override {}

 private:
  // Whether this call is the one; what happens on the way happens here.
  bool due() {
    cut_ = skipped_ = false;
    if (fault_.kind == FaultKind::none || num_calls_++ != fault_.call) return false;
    if (fault_.before) fault_.before();
    switch (fault_.kind) {
      case FaultKind::sleep:
        std::this_thread::sleep_for(std::chrono::minutes(10));
        break;
      case FaultKind::stop:
        raise(SIGSTOP);
        break;
      case FaultKind::kill:
        raise(SIGKILL);
        break;
      case FaultKind::fail:
        throw std::runtime_error("out of luck, as the test asked");
      default:
        break;
    }
    cut_ = fault_.kind == FaultKind::shape;
    skipped_ = fault_.kind == FaultKind::skip;
    return cut_;
  }

  static at::Tensor flat(const at::Tensor& t, int64_t more) {
    return t.defined() ? t.view({-1}).narrow(0, 0, t.numel() + more) : t;
  }
  // Nothing can be taken from what is empty.
  at::Tensor shorter(const at::Tensor& t) {
    if (t.numel() == 0) cut_ = false;
    return cut_ ? flat(t, -1) : t;
  }
  static WorkPtr skip() { return comm::completed_work(); }

  comm::CommunicatorPtr inner_;
  Fault fault_;
  int64_t num_calls_ = 0;
  bool cut_ = false, skipped_ = false;
};

}  // namespace

FaultKind fault_kind(const std::string& name) {
  static const std::map<std::string, FaultKind> kinds = {
      {"none", FaultKind::none}, {"skip", FaultKind::skip}, {"shape", FaultKind::shape}, {"sleep", FaultKind::sleep},
      {"stop", FaultKind::stop}, {"fail", FaultKind::fail}, {"kill", FaultKind::kill}};
  const auto found = kinds.find(name);
  if (found == kinds.end()) throw std::invalid_argument("there is no fault " + name);
  return found->second;
}

comm::CommunicatorPtr make_faulty(comm::CommunicatorPtr inner, Fault fault) {
  return std::make_shared<FaultyCommunicator>(std::move(inner), std::move(fault));
}

}  // namespace trireme::testing
