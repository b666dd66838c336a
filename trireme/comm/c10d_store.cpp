#include "trireme/comm/c10d_store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/checked_communicator.h"
#include "trireme/store/client.h"
#include "trireme/store/server.h"
#include "trireme/store/token.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAsk{500};
constexpr std::chrono::seconds kSilence{2};

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Callers of a c10d::Store expect c10d's exceptions.
template <typename F>
auto as_c10d(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    C10_THROW_ERROR(DistNetworkError, error.what());
  }
}

// For c10d, a timeout of zero means no limit.
milliseconds limit_of(milliseconds timeout) {
  return timeout == c10d::Store::kNoTimeout ? std::chrono::hours(24 * 365) : timeout;
}

[[noreturn]] void throw_timeout(const std::string& key, milliseconds timeout) {
  C10_THROW_ERROR(DistStoreError, fmt::format("nobody wrote '{}' within {} ms", key, timeout.count()));
}

class DoorStore final : public c10d::Store {
  // Repeats `ask` until it finds something or `timeout` is over. Between two asks while_waiting_ may end the wait.
  template <typename F>
  auto in_parts(milliseconds timeout, F&& ask) {
    const auto until = Clock::now() + limit_of(timeout);
    for (;;) {
      const auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - Clock::now()));
      const auto part = while_waiting_ ? std::min(left, kAsk) : left;
      auto found = as_c10d([&] { return ask(part); });
      if (found || part == left) return found;
      while_waiting_();
    }
  }

 public:
  DoorStore(std::shared_ptr<store::Server> server, std::shared_ptr<store::Client> client, milliseconds timeout,
            std::function<void()> while_waiting)
      : Store(timeout),
        server_(std::move(server)),
        client_(std::move(client)),
        while_waiting_(std::move(while_waiting)) {}

  c10::intrusive_ptr<Store> clone() override {
    return c10::make_intrusive<DoorStore>(server_, client_, timeout_, while_waiting_);
  }

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    as_c10d([&] { client_->set(key, text_of(value)); });
  }

  std::vector<uint8_t> get(const std::string& key) override {
    const auto value = in_parts(timeout_, [&](milliseconds part) { return client_->get(key, part); });
    if (!value) throw_timeout(key, timeout_);
    return bytes_of(*value);
  }

  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& current,
                                  const std::vector<uint8_t>& desired) override {
    return bytes_of(as_c10d([&] { return client_->compare_set(key, text_of(current), text_of(desired)); }));
  }

  int64_t add(const std::string& key, int64_t value) override {
    return as_c10d([&] { return client_->add(key, value); });
  }
  bool deleteKey(const std::string& key) override {
    return as_c10d([&] { return client_->remove(key); });
  }
  bool check(const std::vector<std::string>& keys) override {
    return as_c10d([&] { return client_->check(keys); });
  }
  int64_t getNumKeys() override {
    return as_c10d([&] { return client_->count(); });
  }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    if (keys.empty()) return;
    if (!in_parts(timeout, [&](milliseconds part) { return client_->wait(keys, part); }))
      throw_timeout(keys.front(), timeout);
  }

 private:
  // Declared last, the client is destroyed first: its connection ends before the server does.
  std::shared_ptr<store::Server> server_;
  std::shared_ptr<store::Client> client_;
  const std::function<void()> while_waiting_;
};

std::shared_ptr<store::Server> serve(const StoreOptions& options, const std::string& token) {
  base::FileDescriptor listener =
      options.listen_fd ? base::FileDescriptor(*options.listen_fd) : store::listen_at("127.0.0.1", options.port);
  return std::make_shared<store::Server>(std::move(listener), store::ServerOptions{.token = token, .job = options.job});
}
}  // namespace

StoreHandle open_store(const StoreOptions& options) {
  const std::string token = options.token.empty() && options.is_server ? store::draw_token() : options.token;
  if (!store::is_token(token))
    throw UsageError(
        fmt::format("[comm] open_store: the token has {} bytes, and a job's secret has {} to {}; pass the server's "
                    "StoreHandle::token in StoreOptions::token",
                    token.size(), store::kLeastTokenBytes, store::kMostTokenBytes));
  const auto start = Clock::now();
  try {
    const auto server = options.server ? options.server : options.is_server ? serve(options, token) : nullptr;
    const int port = server ? server->port() : options.port;
    const auto ends_the_wait = [options, start, said = false]() mutable {
      if (options.while_waiting) options.while_waiting();
      if (!said && elapsed_since(start) > kSilence) {
        said = true;
        base::info("waiting for rank 0 at {}:{}", options.host, options.port);
      }
      return false;
    };
    // In the server's own process the address is known, so no name is looked up.
    auto client = std::make_shared<store::Client>(
        store::ClientOptions{.place = {server ? server->reachable_at() : options.host, port, token},
                             .place_file = options.place_file,
                             .listens_already = options.listens_already,
                             .self = {options.job, options.name},
                             .timeout = options.reach_timeout.value_or(options.timeout),
                             .gives_up = ends_the_wait,
                             .answer_timeout = options.timeout});
    auto store = c10::make_intrusive<DoorStore>(server, client, options.timeout, options.while_waiting);
    return {std::move(store), static_cast<uint16_t>(port), token, client};
  } catch (const Error& error) {
    if (options.while_waiting) options.while_waiting();  // if it has ended the wait, it throws its own error here
    throw CommError(fmt::format("[comm] {} the store at {}:{} failed after {} ms: {}; {}",
                                options.is_server ? "serving" : "reaching", options.host, options.port,
                                elapsed_since(start).count(), error.what(), store::kWhereToLook),
                    {.operation = "connect",
                     .elapsed = elapsed_since(start),
                     .timeout = options.reach_timeout.value_or(options.timeout)});
  }
}

void set_text(c10d::Store& store, const std::string& key, const std::string& text) { store.set(key, bytes_of(text)); }

std::string get_text(c10d::Store& store, const std::string& key) { return text_of(store.get(key)); }

std::string wait_for_text(c10d::Store& store, const Group& group, const std::string& key, int from) {
  const auto start = Clock::now();
  try {
    store.wait({key}, group.timeout);
    return get_text(store, key);
  } catch (const c10::Error& error) {
    throw_comm_error(
        group, "connect", from, elapsed_since(start),
        fmt::format(
            "{} has not joined within the timeout of {} ms; see whether it has failed, or raise comm.timeout ({})",
            name_rank(group, from), group.timeout.count(), error.what_without_backtrace()));
  }
}

}  // namespace trireme::comm
