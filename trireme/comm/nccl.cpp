// Ranks with a GPU each: c10d's ProcessGroupNCCL behind our interface, in a library of its own (nccl_loader.h).
//
// All of a communicator's work runs on a CUDA stream of its own: a call makes that stream wait for the caller's
// current stream, issues the communication and the fold there, and records an event. wait() makes the caller's
// current stream wait for the event, it does not block the host; poll() asks the event. Sums are NCCL's exchange
// of slices followed by a fold on the device in rank order, in the output's dtype, so that their bits are those
// of the other backends. Calls that do not match are found on the host, through the store, before NCCL is asked.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/nccl_loader.h"

namespace trireme::comm {

namespace {

using Clock = std::chrono::steady_clock;
using Transport = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

std::chrono::milliseconds since(Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - t);
}

at::Tensor slice_of(const at::Tensor& t, int64_t begin, int64_t count) { return t.view({-1}).narrow(0, begin, count); }

class EventWork final : public Work {
 public:
  EventWork(Group group, Call call, c10::intrusive_ptr<c10d::Work> last)
      : group_(std::move(group)), call_(std::move(call)), last_(std::move(last)), start_(Clock::now()) {}

  at::cuda::CUDAEvent& event() { return event_; }

  bool poll() override {
    check();
    return event_.query();
  }

  void wait() override {
    check();
    event_.block(c10::cuda::getCurrentCUDAStream());
  }

 private:
  // NCCL's watchdog notices lost peers and timeouts.
  void check() {
    if (!last_) return;
    if (const auto error = last_->exception()) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& e) {
        throw_comm_error(group_, call_, -1, since(start_), e.what());
      }
    }
  }

  Group group_;
  Call call_;  // keeps the tensors until the event has passed
  c10::intrusive_ptr<c10d::Work> last_;
  Clock::time_point start_;
  at::cuda::CUDAEvent event_;
};

class NcclCommunicator final : public CheckedCommunicator {
 public:
  NcclCommunicator(Group group, c10::intrusive_ptr<c10d::Store> store, Transport transport)
      : CheckedCommunicator(std::move(group)),
        store_(std::move(store)),
        transport_(std::move(transport)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true)) {}

  std::string backend() const override { return "nccl"; }

  SharedBuffer allocate_shared(int64_t bytes, bool) override {
    const int64_t rounded = whole_pages(bytes);
    try {
      memory_.push_back(at::zeros({rounded}, at::device(at::kCUDA).dtype(at::kByte)));
    } catch (const c10::Error& error) {
      throw_comm_error(this->group(), "allocate_shared", -1, {},
                       fmt::format("no {} bytes on the device: {}", rounded, error.what_without_backtrace()));
    }
    void* mine = memory_.back().mutable_data_ptr();
    return {.mine = mine, .parts = {mine}, .host_shared = false};
  }

 protected:
  at::DeviceType device() const override { return at::kCUDA; }

  WorkPtr start(Call call) override {
    const auto begin = Clock::now();
    try {
      const auto caller = c10::cuda::getCurrentCUDAStream();
      at::cuda::CUDAEvent ready;
      ready.record(caller);
      ready.block(stream_);
      c10::cuda::CUDAStreamGuard on_stream(stream_);
      compare_calls(call);
      last_ = nullptr;
      issue(call.collective);
      auto work = std::make_shared<EventWork>(group(), call, last_);
      work->event().record(stream_);
      finished(call);
      return work;
    } catch (const Error&) {
      failed(call);
      throw;
    } catch (const std::exception& error) {
      failed(call);
      throw_comm_error(group(), call, -1, since(begin), error.what());
    }
  }

 private:
  // A shape that a group has agreed on once is not asked about again: the store is slow, training repeats itself.
  void compare_calls(const Call& call) {
    const Operation operation = call.collective.operation;
    if (size() == 1 || operation == Operation::send || operation == Operation::receive) return;
    std::vector<uint8_t> mine(descriptor_bytes(size()));
    write_descriptor(mine.data(), call, 0, {}, {}, size());
    if (std::ranges::find(agreed_, mine) != agreed_.end()) return;
    const auto key = [&](int k) { return fmt::format("call/{}/{}", num_compared_, k); };
    store_->set(key(rank()), mine);
    std::vector<std::vector<uint8_t>> all(size());
    std::vector<CallView> calls;
    for (int k = 0; k < size(); ++k) {
      store_->wait({key(k)}, group().timeout);
      all[k] = store_->get(key(k));
      calls.push_back(read_descriptor(all[k].data(), size()));
    }
    if (const auto mismatch = find_mismatch(group(), calls))
      throw_comm_error(group(), call, mismatch->rank, {}, mismatch->text);
    ++num_compared_;
    agreed_.push_back(std::move(mine));
  }

  void run(c10::intrusive_ptr<c10d::Work> work) {
    work->wait();  // makes our stream wait, not the host
    last_ = std::move(work);
  }

  void issue(const Collective& call) {
    if (call.operation == Operation::barrier) {
      at::Tensor one = at::zeros({1}, at::device(at::kCUDA).dtype(at::kInt));
      std::vector<at::Tensor> tensors{one};
      return run(transport_->allreduce(tensors));
    }
    if (call.operation == Operation::send || call.operation == Operation::receive) {
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
    const Exchange::Take& take = phase.take[rank()];
    if (take.count == 0) return;
    const at::Tensor own = slice_of(phase.input, phase.give[rank()].begin, take.count);
    at::Tensor output = slice_of(phase.output, take.begin, take.count);
    if (!phase.fold) {
      if (output.const_data_ptr() != own.const_data_ptr()) output.copy_(own);
      return;
    }
    incoming[rank()] = own;
    fold_on_device(output, incoming, phase.options);
  }

  // The sum runs in a tensor of its own: the output may be this rank's own term.
  static void fold_on_device(at::Tensor& output, const std::vector<at::Tensor>& terms, ReduceOptions options) {
    at::Tensor sum = options.accumulate ? output.clone() : terms[0].to(output.scalar_type(), false, /*copy=*/true);
    for (size_t k = options.accumulate ? 0 : 1; k < terms.size(); ++k) {
      if (options.op == ReduceOp::sum)
        sum.add_(terms[k]);
      else
        at::maximum_out(sum, sum, terms[k].to(sum.scalar_type()));
    }
    output.copy_(sum);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  Transport transport_;
  c10::cuda::CUDAStream stream_;
  c10::intrusive_ptr<c10d::Work> last_;
  std::vector<at::Tensor> memory_;
  std::vector<std::vector<uint8_t>> agreed_;
  int64_t num_compared_ = 0;
};

}  // namespace

}  // namespace trireme::comm

extern "C" __attribute__((visibility("default"))) trireme::comm::CommunicatorPtr trireme_make_nccl(
    const trireme::comm::Group& group, const c10::intrusive_ptr<c10d::Store>& store) {
  using namespace trireme::comm;
  const auto start = Clock::now();
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
    throw_comm_error(group, "connect", -1, since(start), error.what());
  }
}
