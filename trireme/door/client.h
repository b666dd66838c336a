// A member's way to the store (server.h). Threads may call at once: each call has a connection for itself, so one that
// waits for a key keeps no other from working.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/door/channel.h"
#include "trireme/door/message.h"
#include "trireme/door/place.h"

namespace trireme::door {

struct ClientOptions {
  Place place = {.host = "127.0.0.1"};
  std::filesystem::path place_file = {};  ///< says it anew, as long as `place` leads nowhere; empty: it is final
  bool listens_already = false;  ///< so that a refused connection means that the server has ended
  Identity self = {};  ///< the job must be the server's
  std::chrono::milliseconds timeout{300'000};  ///< to reach the store for the first time
  std::function<bool()> gives_up = {};          ///< asked every half second or so until it is reached; may throw
  std::optional<std::chrono::milliseconds> answer_timeout = {};  ///< for an answer that needs no waiting; timeout
};

/// The store cannot be reached, or its server has gone.
struct Unreachable : Error {
  using Error::Error;
};

class Client {
 public:
  /// Connects, again and again until somebody listens there.
  ///
  /// Errors    Refused when the server knows another token (with a place_file: still does after the timeout);
  ///           Unreachable when nobody answers within the timeout, or before gives_up()
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

  /// Nothing where the key has not come within `timeout`.
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

  const ClientOptions options_;
  const std::chrono::milliseconds answer_timeout_;
  bool reached_ = false;  // once: from then on a connection that is refused means that the server has ended
  std::mutex mutex_;  // of what follows
  Place place_;
  std::shared_ptr<const Credentials> credentials_;
  std::vector<std::unique_ptr<Channel>> idle_;
};

}  // namespace trireme::door
