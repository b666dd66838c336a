#include "trireme/comm/cuda/device_communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/flight_recorder.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;

constexpr int64_t kPage = 4096;  // bytes

// CUDA reports an error on the GPU at a later, unrelated call.
template <typename F>
auto ask_cuda(const DeviceCall& call, F&& f) {
  try {
    return f();
  } catch (const c10::Error& error) {
    throw_comm_error(*call.group, call.call, -1, call.elapsed(), error.what_without_backtrace());
  }
}
}  // namespace

DeviceCall::DeviceCall(std::shared_ptr<const Group> of, Call made)
    : group(std::move(of)), call(std::move(made)), start(Clock::now()), caller(c10::cuda::getCurrentCUDAStream()) {
  ready.record(caller);
}

void DeviceCall::record_end(bool has_failed) const {
  using State = FlightRecorder::State;
  if (group->recorder) group->recorder->finish(call.record_id, has_failed ? State::failed : State::finished);
}

void DeviceCall::release() {
  call.collective.output.reset();
  call.collective.input.reset();
}

CallsInFlight::~CallsInFlight() {
  try {
    for (const Kept& kept : calls_) kept.end->synchronize();
  } catch (const std::exception& error) {
    base::warn("[comm] the GPU has not finished its last communication: {}", error.what());
  }
}

void CallsInFlight::keep(DeviceCallPtr call, std::shared_ptr<at::cuda::CUDAEvent> end) {
  (void)are_through();
  calls_.push_back({std::move(call), std::move(end)});
}

void CallsInFlight::keep_failed(DeviceCallPtr call, const c10::cuda::CUDAStream& stream) noexcept {
  try {
    auto end = std::make_shared<at::cuda::CUDAEvent>();
    end->record(stream);
    keep(std::move(call), std::move(end));
  } catch (const std::exception&) {
    // If no event can be recorded, the context is lost: the GPU no longer accesses the tensors.
  }
}

bool CallsInFlight::are_through() {
  while (!calls_.empty() && calls_.front().end->query()) calls_.pop_front();
  return calls_.empty();
}

bool DeviceWork::poll() {
  if (!is_issued()) return false;
  return ask_cuda(*call_, [&] { return call_->done->query(); });
}

void DeviceWork::wait() {
  wait_until_issued();
  ask_cuda(*call_, [&] {
    const auto current = c10::cuda::getCurrentCUDAStream();
    call_->done->block(current);
    if (current == call_->caller) call_->release();
  });
}

DeviceCommunicator::DeviceCommunicator(Group group)
    : CheckedCommunicator(std::move(group)), shared_group_(std::make_shared<const Group>(this->group())) {}

SharedBuffer DeviceCommunicator::allocate_shared(int64_t bytes, bool) {
  const int64_t rounded = whole_pages(bytes);
  try {
    memory_.push_back(at::zeros({rounded + kPage}, at::device(at::kCUDA).dtype(at::kByte)));
  } catch (const c10::Error& error) {
    throw_comm_error(group(), "allocate_shared", -1, {},
                     fmt::format("no {} bytes on the device: {}", rounded, error.what_without_backtrace()));
  }
  // The allocator's own alignment is smaller.
  const auto begin = reinterpret_cast<uintptr_t>(memory_.back().mutable_data_ptr());
  void* mine = reinterpret_cast<void*>((begin + kPage - 1) / kPage * kPage);
  return {.mine = mine, .parts = {mine}, .host_shared = false};
}

WorkPtr DeviceCommunicator::start(Call call) {
  const auto begin = Clock::now();
  try {
    return issue(call);
  } catch (const Error&) {
    failed(call);
    throw;
  } catch (const std::exception& error) {
    failed(call);
    throw_comm_error(group(), call, -1, elapsed_since(begin), error.what());
  }
}

}  // namespace trireme::comm
