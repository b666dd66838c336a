#include "trireme/comm/gloo/gloo.h"

#include <fmt/format.h>
#include <sched.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/process.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/comm/gloo/device.h"
#include "trireme/comm/gloo/exchange.h"
#include "trireme/comm/gloo/links.h"
#include "trireme/comm/lane_communicator.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;

// Gloo writes to sockets without MSG_NOSIGNAL. If a peer has died, SIGPIPE would end this process before it sees the
// error. A handler that the program has installed stays.
void ignore_broken_pipes() {
  struct sigaction now{};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

class GlooCommunicator final : public LaneCommunicator {
 public:
  GlooCommunicator(Group group, c10::intrusive_ptr<c10d::ProcessGroupGloo> transport, bool bf16,
                   const std::optional<std::string>& key)
      : LaneCommunicator(group),
        channel_(std::move(group), std::move(transport), key),
        bf16_(bf16),
        exchange_(channel_, bf16) {}

  ~GlooCommunicator() override {
    channel_.stop();
    end_lanes();
  }

  std::string backend() const override { return "gloo"; }

 protected:
  void run_collective(const Call& call) override { exchange_.run(call); }
  void run_message(const Call& call) override { comm::run_message(channel_, call.collective); }

  int64_t term_bytes(const Collective& call) const override {
    const bool rounded = bf16_ && call.input.defined() && fits_bf16(call.input.scalar_type(), call.options.op);
    return rounded ? 2 : CheckedCommunicator::term_bytes(call);
  }

 private:
  GlooChannel channel_;
  bool bf16_;
  GlooExchange exchange_;  // used by the lane of collectives
};

// Threads that are started while this object exists do not preempt other threads. While a lane holds a connection's
// lock to post a message, Gloo's thread spins on that lock. If it preempted the lane, it would spin for its whole time
// slice of some 3 ms.
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
    // If this is not allowed, the threads only run slower.
    (void)sched_setscheduler(0, policy, &none);
  }

  int before_;
};

// Publishes this rank's address and waits for all addresses, which it returns by group rank.
std::vector<std::string> exchange_addresses(const Group& group, c10d::Store& store, const std::string& own) {
  const auto key = [](int rank) { return fmt::format("here/{}", rank); };
  set_text(store, key(group.rank), own);
  std::vector<std::string> keys, addresses;
  for (int rank = 0; rank < group.size; ++rank) keys.push_back(key(rank));
  store.wait(keys, group.timeout);
  for (const std::string& k : keys) addresses.push_back(get_text(store, k));
  return addresses;
}

// Each group has a new key. So messages recorded from another group are useless here, and no two messages of a job have
// the same key and stamp.
std::string agree_on_key(const Group& group, c10d::Store& store) {
  if (group.rank == 0) set_text(store, "key", store::Seal::draw_key());
  return get_text(store, "key");
}

GlooDevice patient_device(const std::string& interface) {
  const PatientThreads patient;
  return GlooDevice(interface);
}

std::vector<base::FileDescriptor> linked(const Group& group, const std::string& key, const GlooDevice& device,
                                         const std::vector<std::string>& addresses) {
  Links links = link_ranks(group, key, device.listener(), addresses);
  if (links.strangers > 0)
    base::warn("{} connections to rank {} did not prove that they are of this job, and were closed", links.strangers,
               group.global_rank(group.rank));
  return std::move(links.sockets);
}
}  // namespace

std::string why_not_connected(const std::string& interface, const Group& group, std::chrono::milliseconds elapsed,
                              const std::string& reason) {
  const std::string within =
      elapsed >= group.timeout ? fmt::format(" within the timeout of {} ms", group.timeout.count()) : "";
  const bool lacks_files = reason.find(std::strerror(EMFILE)) != std::string::npos;
  return fmt::format(
      "gloo on interface '{}' did not connect all {} ranks{}; {} ({})", interface, group.size, within,
      lacks_files ? base::why_no_descriptor(EMFILE) : "see whether one has failed or the interface is wrong", reason);
}

CommunicatorPtr make_gloo(Group group, c10::intrusive_ptr<c10d::Store> store, const GlooOptions& o) {
  const auto start = Clock::now();
  ignore_broken_pipes();
  try {
    const GlooDevice device = patient_device(o.interface);
    store = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
    store->setTimeout(group.timeout);
    const auto addresses = exchange_addresses(group, *store, device.address());
    const std::string key = agree_on_key(group, *store);
    device.hand_over(linked(group, key, device, addresses));
    auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
    options->devices.push_back(device.device());
    options->threads = 1;
    auto transport = c10::make_intrusive<c10d::ProcessGroupGloo>(device.directory(group.rank, group.size), group.rank,
                                                                 group.size, std::move(options));
    return std::make_shared<GlooCommunicator>(std::move(group), std::move(transport), o.bf16_sums,
                                              o.sealed ? std::optional(key) : std::nullopt);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    const std::chrono::milliseconds elapsed = elapsed_since(start);
    throw_comm_error(
        group, "connect", -1, elapsed,
        why_not_connected(o.interface, group, elapsed, c10_error ? c10_error->what_without_backtrace() : error.what()));
  }
}

}  // namespace trireme::comm
