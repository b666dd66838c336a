// A member's access to the store (server.h). Threads may call at the same time: each call has a connection of its own,
// so a call that waits for a key does not delay the others.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/store/channel.h"
#include "trireme/store/message.h"
#include "trireme/store/place.h"

namespace trireme::store {

struct ClientOptions {
  Place place = {.host = "127.0.0.1"};
  std::filesystem::path place_file = {};  ///< read again while nobody answers at `place`; empty: `place` is final
  bool listens_already = false;  ///< the server is known to listen, so a refused connection means that it has ended
  Identity self = {};  ///< the job must be the server's
  std::chrono::milliseconds timeout{300'000};  ///< to reach the store for the first time
  std::function<bool()> gives_up = {};  ///< called about twice a second until connected; true ends the wait; may throw
  std::optional<std::chrono::milliseconds> answer_timeout = {};  ///< is added to a request's own; empty: `timeout`
};

/// What to look at if a rank does not reach its job's store.
inline constexpr const char* kWhereToLook =
    "see that rank 0 runs there, that all ranks belong to one job, and that no firewall is between them";

/// The store cannot be reached, or its server has gone.
struct Unreachable : Error {
  using Error::Error;
};

class Client {
 public:
  /// Connects, and tries again until a server listens at the place.
  ///
  /// Errors    Refused when the server has another token (with a place_file: if it still has after the timeout);
  ///           Unreachable when nobody answers within the timeout, or before gives_up() returns true
  explicit Client(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void set(const std::string& key, const std::string& value);
  std::int64_t add(const std::string& key, std::int64_t number);
  bool check(const std::vector<std::string>& keys);
  bool remove(const std::string& key);
  std::int64_t count();
  /// Writes `value` if the key's value is `expected` ("": if it has none); returns what is there now.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& value);

  /// Wait until the keys are set. get returns nothing, and wait returns false, if that takes longer than `timeout`.
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout);
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  Reply call(const Request& request);
  std::unique_ptr<Channel> idle_or_new();
  std::unique_ptr<Channel> connect(Clock::time_point until);
  std::unique_ptr<Channel> try_to_connect(Clock::time_point until);
  bool wait_for_server(int fd, short events, Clock::time_point until) const;

  bool has_given_up() const;
  void look_again();
  std::string place_name();

  const ClientOptions options_;
  const std::chrono::milliseconds answer_timeout_;
  bool reached_ = false;  // connected once; after that a refused connection means that the server has ended
  std::mutex mutex_;  // guards the members below
  Place place_;
  std::shared_ptr<const Credentials> credentials_;
  std::vector<std::unique_ptr<Channel>> idle_;
};

}  // namespace trireme::store
