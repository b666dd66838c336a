// The launchers of several machines meet, start their ranks together, and meet again after a failure. Machines may come
// and go, as long as there are enough. The launchers communicate through their own store (store/server.h) at an address
// that all of them know. The launcher on the machine with that address serves the store, is machine 0, and is the
// decider.
//
// A job has rounds. A round opens, machines join it, and the decider closes it with a plan: the machines' numbers, and
// where their ranks meet. Then the ranks run. When they have ended, the decider's verdict says whether there is another
// round. A machine whose launcher is silent for a while is dropped from the round. A machine that comes while ranks run
// waits for the next round. The loss of the decider's own machine ends the job.
//
// A machine with other settings than the decider's is refused when it knocks. If no round has begun yet, all machines
// are told and end; afterwards the job goes on without it.
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
#include "trireme/launch/machines/verdict.h"
#include "trireme/launch/supervise/launch.h"
#include "trireme/store/client.h"
#include "trireme/store/server.h"

namespace trireme::launch {

struct RendezvousOptions {
  std::string host = "127.0.0.1";  ///< of the decider, as all machines reach it
  int port = 0;
  base::FileDescriptor listener = {};  ///< the decider's listening socket; empty on the other machines
  store::Token token;
  std::filesystem::path place_file = {};  ///< may hold a newer token if this one is refused
  std::string job;  ///< the job's id
  std::string name = {};  ///< of this machine, unlike all others; empty: its host and this process
  int least = 1, most = 1;  ///< machines of a round
  std::string settings = {};  ///< what all machines must have alike (common_settings_of_machines); empty: anything
  int num_ranks = 1;  ///< on each machine
  std::optional<int> node_rank = {};  ///< this machine's number if the user gave one; empty: by arrival
  int max_restarts = 0;
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);  ///< the longest wait for `least` machines
  std::chrono::milliseconds last_call = std::chrono::seconds(10);  ///< the further wait for more machines
  std::chrono::milliseconds silence = std::chrono::seconds(8);  ///< after this silence a machine counts as lost
  std::function<bool(int)> can_run_on = {};  ///< whether the job can use this number of machines; empty: any
};

class Rendezvous {
 public:
  /// Errors    Error if the decider cannot be reached within join_timeout, or refuses this machine's token
  explicit Rendezvous(RendezvousOptions options);
  ~Rendezvous();

  /// Joins a round and returns this machine's place in it once the round is closed; empty if a stop is requested
  /// first (stop_signal.h), here or at the decider.
  /// Errors    UsageError if machines contradict each other, on all of them, or if this one is refused; Error if too
  ///           few machines join in time, or if the decider is gone
  std::optional<Nodes> meet();

  /// Machines of a round at most.
  int most() const { return options_.most; }

  /// Rounds before this one.
  int round() const { return round_; }

  /// Readable once another machine has ended the round: then this machine's ranks must be stopped.
  int end_fd() const { return end_fd_.get(); }

  /// Reports how this machine's ranks ended, and returns the verdict, which is the same on all machines.
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
  void require_same_settings();
  void refuse_doubles(std::vector<Member>& members);
  [[noreturn]] void refuse_all(const std::string& why);
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
  const std::string place_, name_;  // the decider's "host:port"; this machine's name
  const std::string run_;  // the run's name in all rounds; only the decider's is used
  std::unique_ptr<store::Server> server_;  // null except on the decider
  std::unique_ptr<store::Client> client_;
  base::FileDescriptor end_fd_;
  base::FileDescriptor ranks_listener_;
  int round_ = 0, slot_ = 0;
  bool joined_ = false;
  std::vector<Member> members_;  // of the round; decider only
  History history_;  // decider only

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
