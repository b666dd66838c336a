#include "trireme/comm/gloo.h"

#include <fmt/format.h>
#include <sched.h>

#include <map>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/gloo_exchange.h"
#include "trireme/comm/gloo_message.h"
#include "trireme/comm/lane.h"
#include "trireme/comm/mapping.h"

namespace trireme::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

milliseconds since(Clock::time_point t) { return std::chrono::duration_cast<milliseconds>(Clock::now() - t); }

class GlooCommunicator final : public CheckedCommunicator {
 public:
  GlooCommunicator(Group group, c10::intrusive_ptr<c10d::ProcessGroupGloo> transport, bool bf16)
      : CheckedCommunicator(group),
        channel_(std::move(group), std::move(transport)),
        bf16_(bf16),
        exchange_(channel_, bf16) {
    collectives_ = std::make_unique<Lane>();
  }

  ~GlooCommunicator() override {
    channel_.stop();
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

  double background_seconds() const override {
    double sum = collectives_->busy_seconds();
    for (const auto& [key, lane] : messages_) sum += lane->busy_seconds();
    return sum;
  }

 protected:
  WorkPtr start(Call call) override {
    const Operation operation = call.collective.operation;
    const bool message = operation == Operation::send || operation == Operation::receive;
    Lane& lane = message ? message_lane(operation, call.collective.root) : *collectives_;
    return lane.run([this, call = std::move(call), message]() mutable {
      const auto begin = Clock::now();
      try {
        check_usable(call);
        message ? run_message(channel_, call.collective) : exchange_.run(call.collective, call.sequence);
        finished(call);
      } catch (const GlooFailure& failure) {
        failed(call);
        break_group(call, failure, since(begin));
      } catch (...) {
        failed(call);
        throw;
      }
    });
  }

  int64_t term_bytes(const Collective& call) const override {
    const bool rounded = bf16_ && call.input.defined() && fits_bf16(call.input.scalar_type(), call.options.op);
    return rounded ? 2 : CheckedCommunicator::term_bytes(call);
  }

 private:
  Lane& message_lane(Operation operation, int peer) {
    auto& lane = messages_[{operation, peer}];
    if (!lane) lane = std::make_unique<Lane>();
    return *lane;
  }

  [[noreturn]] void break_group(const Call& call, const GlooFailure& failure, milliseconds elapsed) {
    {
      std::lock_guard lock(mutex_);
      if (broken_.empty())
        broken_ = fmt::format("the group is unusable since {} #{}: {}", to_string(call.collective.operation),
                              call.sequence, failure.what());
    }
    throw_comm_error(group(), call.collective.operation, call.sequence, failure.peer, elapsed, failure.what());
  }

  void check_usable(const Call& call) {
    std::string broken;
    {
      std::lock_guard lock(mutex_);
      broken = broken_;
    }
    if (!broken.empty()) throw_comm_error(group(), call.collective.operation, call.sequence, -1, {}, broken);
  }

  std::mutex mutex_;  // guards broken_
  std::string broken_;
  std::vector<std::shared_ptr<Mapping>> mappings_;
  GlooChannel channel_;
  bool bf16_;
  GlooExchange exchange_;  // used by the lane of collectives
  // Last, so that they end first.
  std::unique_ptr<Lane> collectives_;
  std::map<std::pair<Operation, int>, std::unique_ptr<Lane>> messages_;
};

// Threads that are started while this exists never interrupt another thread of the core, they wait for their turn.
// Gloo's thread asks for a connection's lock again and again while a lane holds it to post a message; were it to
// interrupt the lane there, it would spin away its whole slice of some 3 ms.
class PatientThreads {
 public:
  PatientThreads() {
    before_ = sched_getscheduler(0);
    if (before_ == SCHED_OTHER) set(SCHED_BATCH);
  }
  ~PatientThreads() {
    if (before_ == SCHED_OTHER) set(SCHED_OTHER);
  }

 private:
  static void set(int policy) {
    const sched_param none{};
    // Not allowed: the threads are as others are, only slower.
    (void)sched_setscheduler(0, policy, &none);
  }

  int before_;
};

}  // namespace

CommunicatorPtr make_gloo(Group group, c10::intrusive_ptr<c10d::Store> store, const GlooOptions& o) {
  const auto start = Clock::now();
  try {
    auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
    {
      const PatientThreads patient;
      options->devices.push_back(o.interface.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                                     : c10d::ProcessGroupGloo::createDeviceForInterface(o.interface));
    }
    options->threads = 1;
    store = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
    store->setTimeout(group.timeout);
    auto transport =
        c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), group.rank, group.size, std::move(options));
    return std::make_shared<GlooCommunicator>(std::move(group), std::move(transport), o.bf16_sums);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    throw_comm_error(group, "connect", -1, since(start),
                     fmt::format("gloo on interface '{}' did not connect all {} ranks within the timeout of {} ms; see "
                                 "whether one has failed or the interface is wrong ({})",
                                 o.interface, group.size, group.timeout.count(),
                                 c10_error ? c10_error->what_without_backtrace() : error.what()));
  }
}

}  // namespace trireme::comm
