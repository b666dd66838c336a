// Launchers of several machines meet, start their ranks together, and meet again after a failure: machines come and go,
// as long as there are enough. They talk through a store of their own (door/server.h) at an address that all are given;
// the launcher on the machine with that address serves it, is machine 0, and decides.
//
// Time is divided into rounds. A round opens, machines join it, the decider closes it with a plan (who is which
// machine, where their ranks meet), ranks run, and when they have ended the decider's verdict says whether there is
// another round. A machine whose launcher has not been heard of for a while is out of the round; one that comes while
// ranks run waits for the next. Only the loss of the decider's own machine ends the job.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/door/client.h"
#include "trireme/door/server.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/verdict.h"

namespace trireme::launch {

struct RendezvousOptions {
  std::string host = "127.0.0.1";  ///< of the decider, as all machines reach it
  int port = 0;
  base::FileDescriptor listener = {};  ///< the decider's socket at that place; none: this is another machine
  door::Token token;
  std::filesystem::path place_file = {};  ///< where the token stands anew if this one leads nowhere
  std::string job;
  int least = 1, most = 1;  ///< machines of a round
  int num_ranks = 1;  ///< on each machine
  std::optional<int> node_rank = {};  ///< which machine this is, where machines have numbers; else by arrival
  int max_restarts = 0;
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);  ///< for `least` machines to come
  std::chrono::milliseconds last_call = std::chrono::seconds(10);  ///< for more, once there are `least`
  std::chrono::milliseconds silence = std::chrono::seconds(8);  ///< after which a machine counts as lost
  std::function<bool(int)> can_run_on = {};  ///< a number of machines; empty: any
};

class Rendezvous {
 public:
  /// Errors    Error when the decider cannot be reached within join_timeout, or refuses this machine's token
  explicit Rendezvous(RendezvousOptions options);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Joins a round and returns this machine's place in it once it is closed; nothing when a stop is requested first
  /// (stop_signal.h), here or where it is decided.
  ///
  /// Errors    Error when too few machines have come in time, when machines contradict each other, or when the
  ///           decider has gone
  std::optional<Nodes> meet();

  /// Rounds before this one.
  int round() const { return round_; }

  /// Readable once the round has ended for a reason that is not this machine's: its ranks are to be stopped.
  int end_fd() const { return end_fd_.get(); }

  /// Tells the others what came of this machine's ranks, and returns what is to be done; all are told the same.
  Verdict conclude(const RoundResult& result);

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    int slot = 0;  // by arrival
    int num_ranks = 0;
    std::optional<int> node_rank;
    std::string name;
  };

  std::string key(const std::string& name) const;
  std::string key(const std::string& name, int slot) const;
  std::optional<std::string> await(const std::string& key, const std::string& what_for);
  [[noreturn]] void decider_has_gone(const std::string& why) const;
  bool join();
  std::vector<Member> present();
  std::optional<std::vector<Member>> gather();
  std::string plan_for(std::vector<Member> members);
  std::optional<Nodes> place_in(const std::string& plan);
  Verdict judge();

  void start_beating();
  void stop_beating();
  void beat();
  void look_for_the_lost();
  bool is_gone(int slot);
  bool is_silent(int slot);
  void end_round(const std::string& why);
  void wake();

  RendezvousOptions options_;
  const std::string place_, name_;  // "host:port"; of this machine
  const std::string run_;  // of all rounds, known to the decider
  std::unique_ptr<door::Server> server_;  // the decider's
  std::unique_ptr<door::Client> client_;
  base::FileDescriptor end_fd_;
  base::FileDescriptor ranks_listener_;
  int round_ = 0, slot_ = 0;
  bool joined_ = false;
  std::vector<Member> members_;  // of the round, known to the decider
  History history_;  // the decider's

  struct Pulse {
    std::int64_t count = -1;
    Clock::time_point since;
  };
  std::mutex pulses_mutex_;
  std::vector<Pulse> pulses_;  // by slot
  std::atomic<bool> stop_ = false, running_ = false;
  std::thread heart_;
};

}  // namespace trireme::launch
