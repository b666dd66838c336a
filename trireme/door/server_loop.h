// The inside of server.h: its guests, and what happens when one of them has something to say.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/door/refusals.h"
#include "trireme/door/server.h"
#include "trireme/door/table.h"

namespace trireme::door {

class Server::Loop {
 public:
  Loop(base::FileDescriptor listener, int wake_fd, ServerOptions options);

  /// Until `wake_fd` becomes readable.
  void run();

 private:
  using Clock = std::chrono::steady_clock;
  using Id = std::uint64_t;  // in the order of arrival; a descriptor's number is used again

  struct Guest {
    std::unique_ptr<Channel> channel;
    std::string address;
    Clock::time_point until;            // proven by then, or out
    bool member = false;
    std::string received = {};          // of a member: the start of the next message
    std::optional<Request> waits_for = {};
    Clock::time_point waits_until = {};
  };

  void watch(std::vector<pollfd>& fds, std::vector<Id>& ids) const;
  int poll_timeout_ms() const;
  void let_in();
  void attend(Id id);
  void listen_to_member(Id id, Guest& guest);
  void handle(Id id, Guest& guest, Request request);
  void answer(Guest& guest, const Request& request);
  void tell_waiting(const std::string& key);
  void end_waits();
  void stop_waiting(Id id, Guest& guest);
  void turn_away(Id id, const std::string& why);
  void forget(Id id);

  const base::FileDescriptor listener_;
  const int wake_fd_;
  const ServerOptions options_;
  const std::shared_ptr<const Credentials> credentials_;
  Refusals silent_, nameless_, named_;  // who said the more must not drown in a flood of who said less
  Table table_;
  std::map<Id, Guest> guests_;
  std::set<Id> strangers_;                                     // of them, those not proven yet
  std::set<Id> waiting_;                                       // and those who wait for a key
  std::unordered_map<std::string, std::set<Id>> waiting_for_;  // the same by key
  Id next_ = 0;
  bool no_descriptor_left_ = false;
};

}  // namespace trireme::door
