#include "trireme/comm/gloo.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/exchange.h"
#include "trireme/comm/fold.h"
#include "trireme/comm/lane.h"
#include "trireme/comm/mapping.h"

namespace trireme::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using TransportWork = c10::intrusive_ptr<c10d::Work>;

// Messages of one pair and tag arrive in the order sent; collectives and messages each keep their own order.
constexpr int kCollectiveTag = 0, kMessageTag = 1;

milliseconds since(Clock::time_point t) { return std::chrono::duration_cast<milliseconds>(Clock::now() - t); }

std::string transport_text(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error ? c10_error->what_without_backtrace() : error.what();
}

// Gloo sends bytes; a flat view spares it the questions about shapes.
at::Tensor slice_of(const at::Tensor& t, int64_t begin, int64_t count) { return t.view({-1}).narrow(0, begin, count); }

class GlooCommunicator final : public CheckedCommunicator {
 public:
  GlooCommunicator(Group group, c10::intrusive_ptr<c10d::ProcessGroupGloo> transport)
      : CheckedCommunicator(std::move(group)), transport_(std::move(transport)) {
    collectives_ = std::make_unique<Lane>();
  }

  ~GlooCommunicator() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      for (const TransportWork& work : waiting_) work->abort();
    }
    collectives_.reset();
    messages_.clear();
  }

  std::string backend() const override { return "gloo"; }

  SharedBuffer allocate_shared(int64_t bytes, bool) override {
    const int64_t rounded = whole_pages(bytes);
    mappings_.push_back(Mapping::create_private(
        rounded, rounded, fmt::format("allocate_shared of group '{}' on {}", name(), name_rank(group(), rank()))));
    void* mine = mappings_.back()->data();
    return {.mine = mine, .parts = {mine}, .host_shared = false};
  }

 protected:
  WorkPtr start(Call call) override {
    const Operation operation = call.collective.operation;
    const bool message = operation == Operation::send || operation == Operation::receive;
    Lane& lane = message ? message_lane(operation, call.collective.root) : *collectives_;
    return lane.run([this, call = std::move(call), message]() mutable {
      try {
        message ? run_message(call) : run_collective(call);
        finished(call);
      } catch (...) {
        failed(call);
        throw;
      }
    });
  }

 private:
  struct Transfer {
    TransportWork work;
    int peer;
  };

  Lane& message_lane(Operation operation, int peer) {
    auto& lane = messages_[{operation, peer}];
    if (!lane) lane = std::make_unique<Lane>();
    return *lane;
  }

  // Everything the transport throws leaves through here, as one CommError that keeps its text.
  template <typename F>
  auto translated(const Call& call, int peer, Clock::time_point start, F&& f) {
    try {
      return f();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      break_group(call, peer, since(start),
                  fmt::format("{}: {}", peer < 0 ? "the transport" : name_rank(group(), peer), transport_text(error)));
    }
  }

  [[noreturn]] void break_group(const Call& call, int peer, milliseconds elapsed, const std::string& reason) {
    {
      std::lock_guard lock(mutex_);
      if (broken_.empty())
        broken_ = fmt::format("the group is unusable since {} #{}: {}", to_string(call.collective.operation),
                              call.sequence, reason);
    }
    throw_comm_error(group(), call.collective.operation, call.sequence, peer, elapsed, reason);
  }

  void check_usable(const Call& call) {
    std::string broken;
    {
      std::lock_guard lock(mutex_);
      broken = stopping_ ? "its communicator is being destroyed" : broken_;
    }
    if (!broken.empty()) throw_comm_error(group(), call.collective.operation, call.sequence, -1, {}, broken);
  }

  Transfer send(const Call& call, at::Tensor tensor, int peer, int tag) {
    return translated(call, peer, Clock::now(), [&] {
      std::vector<at::Tensor> tensors{std::move(tensor)};
      return Transfer{transport_->send(tensors, peer, tag), peer};
    });
  }

  Transfer receive(const Call& call, at::Tensor tensor, int peer, int tag) {
    return translated(call, peer, Clock::now(), [&] {
      std::vector<at::Tensor> tensors{std::move(tensor)};
      return Transfer{transport_->recv(tensors, peer, tag), peer};
    });
  }

  void wait(const Call& call, const std::vector<Transfer>& transfers) {
    const auto start = Clock::now();
    for (const Transfer& t : transfers) {
      {
        std::lock_guard lock(mutex_);
        if (!stopping_) waiting_.insert(t.work);
      }
      translated(call, t.peer, start, [&] {
        // A destructor may come between the test and the wait: then abort() has been or will be called on it.
        check_usable_quietly();
        t.work->wait(group().timeout);
      });
      std::lock_guard lock(mutex_);
      waiting_.erase(t.work);
    }
    check_usable(call);
  }

  void check_usable_quietly() {
    std::lock_guard lock(mutex_);
    if (stopping_) throw CommError("[comm] the communicator is being destroyed", {});
  }

  // Descriptors first, so that calls that differ end in an error with both names instead of wrong bytes.
  void compare_calls(const Call& call) {
    const int64_t bytes = descriptor_bytes(size());
    const at::Tensor all = at::zeros({size(), bytes}, at::kByte);
    auto* base = static_cast<std::byte*>(all.mutable_data_ptr());
    write_descriptor(base + rank() * bytes, call.collective, call.sequence, {}, {}, size());
    std::vector<Transfer> transfers;
    for (int k = 0; k < size(); ++k)
      if (k != rank()) transfers.push_back(receive(call, all[k], k, kCollectiveTag));
    for (int k = 0; k < size(); ++k)
      if (k != rank()) transfers.push_back(send(call, all[rank()], k, kCollectiveTag));
    wait(call, transfers);
    const CallView mine = read_descriptor(base + rank() * bytes, size());
    for (int k = 0; k < size(); ++k) {
      const CallView theirs = read_descriptor(base + k * bytes, size());
      const std::string what = difference(mine, rank(), theirs, k);
      if (!what.empty())
        break_group(
            call, k, {},
            fmt::format("{}: {} calls {} but {} calls {}; all ranks must make the same calls in the same order", what,
                        name_rank(group(), rank()), describe(mine), name_rank(group(), k), describe(theirs)));
    }
  }

  void run_collective(const Call& call) {
    check_usable(call);
    compare_calls(call);
    constexpr int64_t kWholeReduceBytes = 64 << 10;
    for (const Exchange& phase : plan_exchanges(call.collective, rank(), size(), {}, kWholeReduceBytes))
      run_phase(call, phase);
  }

  void run_phase(const Call& call, const Exchange& phase) {
    std::vector<Transfer> transfers;
    std::vector<at::Tensor> received(size());
    for (int i = 1; i < size(); ++i) {
      const int k = (rank() + size() - i) % size();
      const Exchange::Take& take = phase.take[k];
      if (take.count == 0) continue;
      received[k] =
          phase.fold ? at::empty({take.count}, phase.input.options()) : slice_of(phase.output, take.begin, take.count);
      transfers.push_back(receive(call, received[k], k, kCollectiveTag));
    }
    for (int i = 1; i < size(); ++i) {
      const int k = (rank() + i) % size();
      const Exchange::Give& give = phase.give[k];
      if (give.count > 0)
        transfers.push_back(send(call, slice_of(phase.input, give.begin, give.count), k, kCollectiveTag));
    }
    if (!phase.fold) exchange_with_self(phase, rank());
    // Also for what is sent: the fold may overwrite it.
    wait(call, transfers);
    if (!phase.fold || phase.take[rank()].count == 0) return;
    std::vector<const void*> sources(size());
    for (int k = 0; k < size(); ++k) {
      sources[k] = k == rank() ? static_cast<const std::byte*>(phase.input.const_data_ptr()) +
                                     phase.give[k].begin * phase.input.element_size()
                               : received[k].const_data_ptr();
    }
    fold(phase.output.mutable_data_ptr(), phase.output.scalar_type(), sources, phase.input.scalar_type(),
         phase.take[rank()].count, phase.options);
  }

  // A header with size and dtype, then the payload.
  void run_message(const Call& call) {
    check_usable(call);
    const int peer = call.collective.root;
    const bool sends = call.collective.operation == Operation::send;
    const at::Tensor& tensor = sends ? call.collective.input : call.collective.output;
    const at::Tensor header = at::empty({2}, at::kLong);
    auto* words = header.mutable_data_ptr<int64_t>();
    const int64_t dtype = static_cast<int64_t>(tensor.scalar_type());
    if (sends) {
      words[0] = tensor.numel();
      words[1] = dtype;
      wait(call, {send(call, header, peer, kMessageTag)});
    } else {
      wait(call, {receive(call, header, peer, kMessageTag)});
      if (words[0] != tensor.numel() || words[1] != dtype)
        break_group(call, peer, {},
                    fmt::format("{} sends {}[{}] but {} receives {}[{}]; both must name the same size and dtype",
                                name_rank(group(), peer), dtype_name(static_cast<at::ScalarType>(words[1])), words[0],
                                name_rank(group(), rank()), dtype_name(tensor.scalar_type()), tensor.numel()));
    }
    if (tensor.numel() == 0) return;
    const at::Tensor flat = tensor.view({-1});
    wait(call, {sends ? send(call, flat, peer, kMessageTag) : receive(call, flat, peer, kMessageTag)});
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> transport_;
  std::mutex mutex_;  // guards what lanes and the destructor share
  bool stopping_ = false;
  std::string broken_;
  std::set<TransportWork> waiting_;
  std::vector<std::shared_ptr<Mapping>> mappings_;
  // Last, so that they end first.
  std::unique_ptr<Lane> collectives_;
  std::map<std::pair<Operation, int>, std::unique_ptr<Lane>> messages_;
};

}  // namespace

CommunicatorPtr make_gloo(Group group, c10::intrusive_ptr<c10d::Store> store, const std::string& interface) {
  const auto start = Clock::now();
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
    options->devices.push_back(interface.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                                 : c10d::ProcessGroupGloo::createDeviceForInterface(interface));
    options->threads = 1;
    store = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
    store->setTimeout(group.timeout);
    auto transport =
        c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), group.rank, group.size, std::move(options));
    return std::make_shared<GlooCommunicator>(std::move(group), std::move(transport));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_comm_error(group, "connect", -1, since(start),
                     fmt::format("gloo on interface '{}' did not connect all {} ranks within the timeout of {} ms; see "
                                 "whether one has failed or the interface is wrong ({})",
                                 interface, group.size, group.timeout.count(), transport_text(error)));
  }
}

}  // namespace trireme::comm
