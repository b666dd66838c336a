#include "trireme/comm/store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/checked_communicator.h"

namespace trireme::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

milliseconds since(Clock::time_point t) { return std::chrono::duration_cast<milliseconds>(Clock::now() - t); }

}  // namespace

StoreHandle open_store(const StoreOptions& options) {
  c10d::TCPStoreOptions o;
  o.port = options.port;
  o.isServer = options.is_server;
  o.waitWorkers = false;  // groups wait for their own ranks, and can name the missing one
  o.timeout = options.timeout;
  o.masterListenFd = options.listen_fd;
  o.useLibUV = true;
  const auto start = Clock::now();
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(options.host, o);
    const uint16_t port = store->getPort();
    return {store, port};
  } catch (const c10::Error& error) {
    throw CommError(fmt::format("[comm] {} the store at {}:{} failed after {} ms: {}; see that rank 0 runs there and "
                                "that no firewall stands between",
                                options.is_server ? "serving" : "reaching", options.host, options.port,
                                since(start).count(), error.what_without_backtrace()),
                    {.operation = "connect", .elapsed = since(start), .timeout = options.timeout});
  }
}

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

std::string wait_for_text(c10d::Store& store, const Group& group, const std::string& key, int from) {
  const auto start = Clock::now();
  try {
    store.wait({key}, group.timeout);
    const auto bytes = store.get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const c10::Error& error) {
    throw_comm_error(group, "connect", from, since(start),
                     fmt::format("{} has not joined within the timeout of {} ms; see whether it has failed, or raise "
                                 "comm.timeout ({})",
                                 name_rank(group, from), group.timeout.count(), error.what_without_backtrace()));
  }
}

}  // namespace trireme::comm
