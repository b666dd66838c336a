// A group of one rank whose tensors are on its GPU. All work goes to the caller's own stream.
#include <ATen/ATen.h>

#include <limits>
#include <optional>

#include "trireme/comm/cuda/device_communicator.h"
#include "trireme/comm/cuda/device_loader.h"
#include "trireme/comm/tensor_exchange.h"

namespace trireme::comm {
namespace {
// Completes in the order of its stream. An event is made only for a wait on another stream, or for a poll before the
// stream is idle.
class LocalWork final : public Work {
 public:
  LocalWork() : stream_(c10::cuda::getCurrentCUDAStream()) {}

  bool poll() override { return (!event_ && stream_.query()) || event().query(); }

  void wait() override {
    const auto current = c10::cuda::getCurrentCUDAStream();
    if (!(current == stream_)) event().block(current);
  }

 private:
  at::cuda::CUDAEvent& event() {
    if (!event_) event_.emplace().record(stream_);
    return *event_;
  }

  c10::cuda::CUDAStream stream_;
  std::optional<at::cuda::CUDAEvent> event_;
};

class LocalOnDevice final : public DeviceCommunicator {
 public:
  explicit LocalOnDevice(const Group& group) : DeviceCommunicator(group) {}

  std::string backend() const override { return "local"; }

 protected:
  WorkPtr issue(Call call) override {
    constexpr int64_t kAlwaysWhole = std::numeric_limits<int64_t>::max();
    for (const Exchange& phase : plan_exchanges(call.collective, rank(), size(), {}, kAlwaysWhole)) {
      const at::Tensor own = slice_of(phase.input, phase.give[0].begin, phase.give[0].count);
      take_slices(phase, {&own, 1});
    }
    finished(call);
    return std::make_shared<LocalWork>();
  }
};
}  // namespace
}  // namespace trireme::comm

extern "C" __attribute__((visibility("default"))) trireme::comm::CommunicatorPtr trireme_make_device_local(
    const trireme::comm::Group& group, const c10::intrusive_ptr<c10d::Store>&) {
  return std::make_shared<trireme::comm::LocalOnDevice>(group);
}
