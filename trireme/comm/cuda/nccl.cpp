// Ranks with a GPU each: c10d's ProcessGroupNCCL behind our interface, in its own library (device_loader.h).
//
// Each communicator has its own CUDA stream. A call makes that stream wait for the caller's current stream, issues the
// communication and the fold there, and records an event. For a sum, NCCL exchanges slices, and the device folds them
// in rank order in the output's dtype. So the bits are those of the other backends. The ranks compare their calls on
// the host, through the store, before NCCL is called.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/call_descriptor.h"
#include "trireme/comm/cuda/device_communicator.h"
#include "trireme/comm/cuda/device_loader.h"
#include "trireme/comm/tensor_exchange.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetweenQueries{5};
using Transport = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

class NcclWork final : public DeviceWork {
 public:
  NcclWork(DeviceCallPtr call, c10::intrusive_ptr<c10d::Work> last)
      : DeviceWork(call), call_(std::move(call)), last_(std::move(last)) {}

 protected:
  // NCCL's watchdog detects lost peers and timeouts.
  bool is_issued() override {
    if (!last_) return true;
    if (const auto error = last_->exception()) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& e) {
        throw_comm_error(*call_->group, call_->call, -1, call_->elapsed(), e.what());
      }
    }
    return true;
  }
  void wait_until_issued() override { is_issued(); }

 private:
  DeviceCallPtr call_;
  c10::intrusive_ptr<c10d::Work> last_;
};

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(const Group& group, c10::intrusive_ptr<c10d::Store> store, Transport transport)
      : DeviceCommunicator(group),
        store_(std::move(store)),
        transport_(std::move(transport)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true)) {}

  // If a peer is gone, a call never ends on the GPU, and a wait for it would never return. So abort() ends the kernels
  // first: at once if a call has failed, else after the calls in progress have had the group's timeout to end. Then the
  // destructor of in_flight_ waits for the streams, so that no tensor is freed while the GPU still writes to it.
  ~NcclCommunicator() override {
    try {
      const auto until = Clock::now() + group().timeout;
      while (!has_failed() && !in_flight_.are_through() && Clock::now() < until)
        std::this_thread::sleep_for(kBetweenQueries);
      if (has_failed() || !in_flight_.are_through()) transport_->abort();
    } catch (const std::exception& error) {
      base::warn("[comm] group '{}' did not end well: {}", group().name, error.what());
    }
  }

  std::string backend() const override { return "nccl"; }

 protected:
  WorkPtr issue(Call made) override {
    const auto call = std::make_shared<DeviceCall>(shared_group(), std::move(made));
    call->ready.block(stream_);
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    compare_calls(*call);
    last_ = nullptr;
    try {
      exchange(call->call.collective);
    } catch (...) {
      // Earlier phases of the call may be on the stream, and access its tensors.
      failed_ = true;
      in_flight_.keep_failed(call, stream_);
      throw;
    }
    call->done = std::make_shared<at::cuda::CUDAEvent>();
    call->done->record(stream_);
    call->record_end(false);
    in_flight_.add(call);
    return std::make_shared<NcclWork>(call, last_);
  }

 private:
  // After the loss of a peer, NCCL fails all calls of the communicator. So it is enough to ask the last one.
  bool has_failed() const { return failed_ || (last_ && last_->exception()); }

  // Calls of a kind that the ranks have compared once are not compared again: the store is slow, and training repeats
  // its calls.
  void compare_calls(const DeviceCall& call) {
    const Operation operation = call.call.collective.operation;
    if (size() == 1 || is_message(operation)) return;
    std::vector<uint8_t> mine(descriptor_bytes(size()));
    write_descriptor(mine.data(), call.call, 0, {}, {}, size());
    std::string kind = kind_of(mine, operation);
    if (agreed_.contains(kind)) return;
    const auto key = [&](int k) { return fmt::format("call/{}/{}", num_compared_, k); };
    store_->set(key(rank()), mine);
    std::vector<std::vector<uint8_t>> all(size());
    std::vector<CallView> calls;
    for (int k = 0; k < size(); ++k) {
      all[k] = wait_for_call(call, key(k), k);
      calls.push_back(read_descriptor(all[k].data(), size()));
    }
    if (const auto mismatch = find_mismatch(group(), calls))
      throw_comm_error(group(), call.call, mismatch->rank, call.elapsed(), mismatch->text);
    ++num_compared_;
    agreed_.insert(std::move(kind));
  }

  // All ranks must decide alike whether a call is new. So the kind of an all_to_all leaves out the slices, which may
  // change on some ranks only.
  static std::string kind_of(const std::vector<uint8_t>& descriptor, Operation operation) {
    std::string kind(descriptor.begin(), descriptor.end());
    if (operation != Operation::all_to_all) return kind;
    auto* fixed = reinterpret_cast<CallDescriptor*>(kind.data());
    fixed->fingerprint = 0;
    fixed->input_elements = fixed->output_elements = 0;
    kind.resize(sizeof(CallDescriptor));
    return kind;
  }

  std::vector<uint8_t> wait_for_call(const DeviceCall& call, const std::string& key, int from) {
    try {
      store_->wait({key}, group().timeout);
      return store_->get(key);
    } catch (const c10::Error& error) {
      throw_comm_error(group(), call.call, from, call.elapsed(),
                       fmt::format("{} did not make this call within the timeout of {} ms ({})",
                                   name_rank(group(), from), group().timeout.count(), error.what_without_backtrace()));
    }
  }

  void run(c10::intrusive_ptr<c10d::Work> work) {
    work->wait();  // makes our stream wait, not the host
    last_ = std::move(work);
  }

  void exchange(const Collective& call) {
    if (call.operation == Operation::barrier) {
      at::Tensor one = at::zeros({1}, at::device(at::kCUDA).dtype(at::kInt));
      std::vector<at::Tensor> tensors{one};
      return run(transport_->allreduce(tensors));
    }
    if (is_message(call.operation)) {
      std::vector<at::Tensor> tensors{call.operation == Operation::send ? call.input : call.output};
      return run(call.operation == Operation::send ? transport_->send(tensors, call.root, 0)
                                                   : transport_->recv(tensors, call.root, 0));
    }
    constexpr int64_t kWholeReduceBytes = 256 << 10;
    for (const Exchange& phase : plan_exchanges(call, rank(), size(), {}, kWholeReduceBytes)) run_phase(phase);
  }

  bool even_gather(const Exchange& phase) const {
    if (!phase.gathers_all || phase.only_giver >= 0) return false;
    return std::ranges::all_of(phase.take, [&](const Exchange::Take& t) { return t.count == phase.max_count; });
  }

  void run_phase(const Exchange& phase) {
    if (phase.max_count == 0) return;
    if (even_gather(phase)) {
      at::Tensor output = phase.output.view({-1}), input = phase.input.view({-1});
      return run(transport_->_allgather_base(output, input));
    }
    const at::Tensor& any = phase.input.defined() ? phase.input : phase.output;
    std::vector<at::Tensor> outgoing(size()), incoming(size());
    for (int k = 0; k < size(); ++k) {
      const Exchange::Give& give = phase.give[k];
      const Exchange::Take& take = phase.take[k];
      const bool mine = k == rank();
      outgoing[k] =
          mine || give.count == 0 ? at::empty({0}, any.options()) : slice_of(phase.input, give.begin, give.count);
      incoming[k] = mine || take.count == 0 ? at::empty({0}, any.options())
                    : phase.fold            ? at::empty({take.count}, any.options())
                                            : slice_of(phase.output, take.begin, take.count);
    }
    if (size() > 1) run(transport_->alltoall(incoming, outgoing));
    const Exchange::Take& own = phase.take[rank()];
    if (own.count > 0) incoming[rank()] = slice_of(phase.input, phase.give[rank()].begin, own.count);
    take_slices(phase, incoming);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  Transport transport_;
  c10::cuda::CUDAStream stream_;
  c10::intrusive_ptr<c10d::Work> last_;
  std::set<std::string> agreed_;
  int64_t num_compared_ = 0;
  bool failed_ = false;
  CallsInFlight in_flight_;
};

// Chooses what NCCL's watchdog does after the loss of a peer or a timeout. By default (3, SkipCleanUp) it throws in its
// own thread. That ends the process by std::terminate, with a backtrace instead of the sentence that names the call and
// the group. With 2 (CleanUpOnly) it aborts NCCL's communicators and stores the exception in the call's Work, where
// NcclWork::is_issued finds it. A value that the user has set stays. Call this before the first ProcessGroupNCCL, which
// reads the variable and starts threads.
void let_lost_peers_raise() {
  for (const char* name : {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"})
    if (std::getenv(name) != nullptr) return;
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", 0);
}
}  // namespace
}  // namespace trireme::comm

extern "C" __attribute__((visibility("default"))) trireme::comm::CommunicatorPtr trireme_make_nccl(
    const trireme::comm::Group& group, const c10::intrusive_ptr<c10d::Store>& store) {
  using namespace trireme::comm;
  const auto start = Clock::now();
  let_lost_peers_raise();
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = group.timeout;
    options->group_name = group.name;
    auto transport = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("nccl", store),
                                                                 group.rank, group.size, std::move(options));
    return std::make_shared<NcclCommunicator>(group, store, std::move(transport));
  } catch (const trireme::Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_comm_error(group, "connect", -1, elapsed_since(start), error.what());
  }
}
