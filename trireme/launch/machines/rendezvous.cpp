#include "trireme/launch/machines/rendezvous.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/process.h"
#include "trireme/base/text.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/machines/same_settings.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {
using namespace std::chrono_literals;

constexpr auto kLook = 50ms;            // the decider looks this often whether another machine has come
constexpr auto kSlice = 500ms;          // a wait for the decider's value, before asking whether a stop was requested
constexpr auto kLastWords = 2s;         // the decider waits this long for machines that have not read its verdict
constexpr auto kAnswer = 10s;           // a live decider answers within this time
constexpr char kStopped[] = "stopped";  // instead of a plan, if the decider was stopped
constexpr auto kJoinPatience = 2s;      // before the user is told what the launcher waits for

std::string machines(int count) { return base::plural(count, "machine"); }
}  // namespace

Rendezvous::Rendezvous(RendezvousOptions options)
    : options_(std::move(options)),
      place_(fmt::format("{}:{}", options_.host, options_.port)),
      name_(options_.name.empty() ? fmt::format("{}/{}", host_name(), getpid()) : options_.name),
      run_(new_job_id()),
      end_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (end_fd_.get() < 0) throw Error("launcher: no descriptor left: " + base::why_no_descriptor(errno));
  const bool decides = options_.listener.get() >= 0;
  std::string host = options_.host;
  if (decides) {
    server_ = std::make_unique<store::Server>(std::move(options_.listener),
                                              store::ServerOptions{.token = options_.token, .job = options_.job});
    host = server_->reachable_at();
  } else if (const std::string doubt = doubt_about(host, options_.node_rank == 0); !doubt.empty()) {
    base::warn("{}; this machine waits for it all the same, at most {}", doubt,
               base::human_duration(options_.join_timeout));
  }
  try {
    client_ = std::make_unique<store::Client>(store::ClientOptions{.place = {host, options_.port, options_.token},
                                                                   .place_file = options_.place_file,
                                                                   .self = {options_.job, "launcher of " + name_},
                                                                   .timeout = options_.join_timeout,
                                                                   .gives_up = stop_requested,
                                                                   .answer_timeout = kAnswer});
  } catch (const Error&) {  // nobody answers, or an older job's launcher
    if (!stop_requested()) throw;
    throw Stopped(
        fmt::format("stopped by {} while looking for the launcher at {}", name_of_stop(stop_signal()), place_));
  }
  if (!decides) return;
  client_->set("settings", options_.settings);
  client_->set("round", "0");
}

Rendezvous::~Rendezvous() {
  stop_beating();
  try {
    // The decider ends last, because the others have yet to read its verdict.
    if (joined_) client_->set(key("bye", slot_), "");
    if (server_) {
      std::vector<std::string> all;
      for (const Member& member : members_) all.push_back(key("bye", member.slot));
      client_->wait(all, kLastWords);
    }
  } catch (const std::exception&) {
    // The decider is gone.
  }
}

std::string Rendezvous::key(const std::string& name) const { return fmt::format("{}/{}", round_, name); }
std::string Rendezvous::key(const std::string& name, int slot) const {
  return fmt::format("{}/{}/{}", round_, name, slot);
}

void Rendezvous::decider_has_gone(const std::string& why) const {
  throw Error(
      fmt::format("the machine at {}, where the launchers meet, is gone: {}; start the job again", place_, why));
}

// Waits without limit while the decider lives; empty if a stop is requested. Throws if this machine is refused.
std::optional<std::string> Rendezvous::await(const std::string& key, const std::string& what_for) {
  const auto start = Clock::now();
  bool said = what_for.empty();
  try {
    while (!stop_requested()) {
      if (auto value = client_->get(key, kSlice)) return value;
      if (const auto why = joined_ ? client_->get(this->key("refused", slot_), 0ms) : std::nullopt)
        throw UsageError(*why);
      if (!said && Clock::now() - start > kJoinPatience) {
        base::info("{}", what_for);
        said = true;
      }
    }
  } catch (const store::Unreachable& error) {
    if (!stop_requested()) decider_has_gone(error.what());
  }
  return std::nullopt;
}

// Ranks with other settings would end those of all machines. Until the first round begins, all hear of it.
void Rendezvous::require_same_settings() {
  if (server_ || options_.settings.empty()) return;
  const std::string unlike = difference(options_.settings, client_->get("settings", kSlice).value_or("{}"));
  if (unlike.empty()) return;
  const std::string why = refusal_of(fmt::format("machine {}", name_), unlike);
  if (round_ == 0 && !client_->check({key("plan")})) client_->set(key("refused"), why);
  throw UsageError(why);
}

void Rendezvous::refuse_all(const std::string& why) {
  client_->set(key("plan"), "refused " + why);
  throw UsageError(why);
}

bool Rendezvous::join() {
  const auto round = await("round", "");
  if (!round) return false;
  round_ = std::stoi(*round);
  require_same_settings();
  slot_ = static_cast<int>(client_->add(key("joined"), 1)) - 1;
  client_->set(key("member", slot_),
               fmt::format("{} {} {}", options_.num_ranks, options_.node_rank.value_or(-1), name_));
  joined_ = true;
  start_beating();
  return true;
}

std::optional<Nodes> Rendezvous::meet() {
  while (join()) {
    if (server_) {
      auto members = gather();
      if (!members) break;
      members_ = std::move(*members);
      client_->set(key("plan"), plan_for(members_));
    }
    const auto plan =
        await(key("plan"), fmt::format("waiting at {} for {} to {}", place_, options_.least, machines(options_.most)));
    if (!plan) break;
    if (*plan == kStopped) {
      base::info("the launcher at {} was stopped, and the job with it", place_);
      break;
    }
    if (auto nodes = place_in(*plan)) {
      running_ = true;
      return nodes;
    }
    const auto verdict = await(key("verdict"), "the job runs on other machines; this one joins at its next start");
    if (!verdict) break;
    stop_beating();
    const Verdict said = verdict_of(*verdict);
    if (said.refused) throw UsageError(said.why);
    if (!said.again) throw Error("the job has ended on the other machines; this one was not needed");
  }
  return std::nullopt;
}

// The live machines of the round: this one first, so that it is never left out, then the others by arrival.
std::vector<Rendezvous::Member> Rendezvous::present() {
  std::vector<Member> members;
  const int joined = static_cast<int>(client_->add(key("joined"), 0));
  for (int slot = 0; slot < joined; ++slot) {
    const auto text = client_->get(key("member", slot), 0ms);
    if (!text || (slot != slot_ && is_gone(slot))) continue;
    Member member{.slot = slot};
    int node_rank = -1;
    std::istringstream(*text) >> member.num_ranks >> node_rank >> member.name;
    if (node_rank >= 0) member.node_rank = node_rank;
    members.insert(slot == slot_ ? members.begin() : members.end(), member);
  }
  if (round_ > 0) refuse_doubles(members);
  return members;
}

// Of two machines with one number, the newcomer is refused, and the job goes on. In the first round nobody knows who is
// right.
void Rendezvous::refuse_doubles(std::vector<Member>& members) {
  const auto took_part = [this](const Member& member) {
    return std::ranges::find(members_, member.name, &Member::name) != members_.end();
  };
  std::ranges::stable_partition(members, took_part);
  std::set<int> numbers;
  std::erase_if(members, [&](const Member& member) {
    if (!member.node_rank || numbers.insert(*member.node_rank).second) return false;
    client_->set(key("refused", member.slot),
                 fmt::format("another machine of this job is number {} already; give machine {} a number of its own",
                             *member.node_rank, member.name));
    return true;
  });
}

std::optional<std::vector<Rendezvous::Member>> Rendezvous::gather() {
  const auto start = Clock::now();
  std::optional<Clock::time_point> enough_since;
  bool said = false;
  while (!stop_requested()) {
    std::vector<Member> members = present();
    if (const auto why = round_ == 0 ? client_->get(key("refused"), 0ms) : std::nullopt) {
      members_ = members;  // the destructor waits until they have read it
      refuse_all(*why);
    }
    const int came = std::min(static_cast<int>(members.size()), options_.most);
    int fit = came;
    while (fit >= options_.least && options_.can_run_on && !options_.can_run_on(fit)) --fit;
    const auto now = Clock::now();
    if (fit >= options_.least) {
      if (!enough_since) enough_since = now;
      if (came == options_.most || now - *enough_since >= options_.last_call) {
        if (fit < came) base::info("{} of {} take part: the settings do not fit {}", fit, machines(came), came);
        members.resize(static_cast<std::size_t>(fit));
        return members;
      }
    } else {
      enough_since.reset();
      if (now - start > options_.join_timeout) {
        const std::string why =
            fmt::format("{} came to {} within {} s, and the job needs {}", machines(came), place_,
                        std::chrono::ceil<std::chrono::seconds>(options_.join_timeout).count(), options_.least);
        members_ = members;  // the destructor waits until they have read the refusal
        client_->set(key("plan"), "failed " + why);
        throw Error(why);
      }
    }
    if (!said && now - start > kJoinPatience) {
      base::info("waiting at {} for {} to {}: {} came", place_, options_.least, machines(options_.most), came);
      said = true;
    }
    std::this_thread::sleep_for(kLook);
  }
  members_ = present();  // the destructor waits until they have read it
  client_->set(key("plan"), kStopped);
  return std::nullopt;
}

// "start ADDRESS PORT TOKEN RUN SLOT SLOT ...", the slots by machine. Others write "refused WHY", "failed WHY" and
// "stopped".
std::string Rendezvous::plan_for(std::vector<Member> members) {
  std::set<int> numbers;
  for (const Member& member : members) {
    std::string wrong;
    if (member.num_ranks != options_.num_ranks)
      wrong = fmt::format("machine {} starts {} ranks, machine {} {}; say the same --devices on all", member.name,
                          member.num_ranks, name_, options_.num_ranks);
    if (member.node_rank && !numbers.insert(*member.node_rank).second)
      wrong = fmt::format("two machines say that they are number {}", *member.node_rank);
    if (!wrong.empty()) refuse_all(wrong);
  }
  std::stable_sort(members.begin(), members.end(), [&](const Member& a, const Member& b) {
    // Rank 0 is on this machine, because its socket is here.
    if ((a.slot == slot_) != (b.slot == slot_)) return a.slot == slot_;
    return a.node_rank.value_or(0) < b.node_rank.value_or(0);
  });
  MeetingPoint point(MeetingPoint::Reach::all_hosts);
  std::string plan = fmt::format("start {} {} {} {}", options_.host, point.port, store::draw_token(), run_);
  ranks_listener_ = std::move(point.fd);
  for (const Member& member : members) plan += fmt::format(" {}", member.slot);
  return plan;
}

std::optional<Nodes> Rendezvous::place_in(const std::string& plan) {
  std::istringstream in(plan);
  std::string what, why;
  in >> what;
  if (what != "start") {
    std::getline(in >> std::ws, why);
    if (what == "refused") throw UsageError(why);
    throw Error(why);
  }
  Nodes nodes{.count = 0, .rank = -1};
  in >> nodes.master_address >> nodes.master_port >> nodes.token >> nodes.run;
  for (int slot; in >> slot; ++nodes.count)
    if (slot == slot_) nodes.rank = nodes.count;
  if (nodes.rank < 0) return std::nullopt;
  nodes.job_id = fmt::format("{}-{}", options_.job, round_);
  if (nodes.count == 1) nodes.master_address = "127.0.0.1";  // a single machine listens there, at a new port
  if (nodes.count > 1) nodes.store_fd = ranks_listener_.release();
  ranks_listener_ = {};
  base::info("machine {} of {}: ranks {} to {} of {}{}", nodes.rank, nodes.count, nodes.rank * options_.num_ranks,
             (nodes.rank + 1) * options_.num_ranks - 1, nodes.count * options_.num_ranks,
             round_ > 0 ? fmt::format(", start number {}", round_ + 1) : "");
  return nodes;
}

Verdict Rendezvous::conclude(const RoundResult& result) {
  running_ = false;
  RoundResult own = result;
  own.machine = name_;
  try {
    if (own.kind != RoundResult::Kind::done && !own.agreed)
      end_round(own.words.empty() ? "it was stopped" : sentence_of(own));
    client_->set(key("result", slot_), text_of(own));
    if (server_) {
      const Verdict verdict = judge();
      if (verdict.again) client_->set("round", std::to_string(round_ + 1));
      client_->set(key("verdict"), text_of(verdict));
    }
  } catch (const store::Unreachable& error) {
    decider_has_gone(error.what());
  }
  const auto verdict = await(key("verdict"), "waiting for the other machines' ranks to end");
  stop_beating();
  return verdict ? verdict_of(*verdict) : Verdict{};
}

// Waits for all results; a machine that is gone may have none.
Verdict Rendezvous::judge() {
  std::vector<RoundResult> results;
  for (const Member& member : members_) {
    std::optional<std::string> text;
    for (bool gone = false; !text && !gone;) {
      gone = member.slot != slot_ && is_gone(member.slot);  // asked first: a machine sends its result before it goes
      text = client_->get(key("result", member.slot), kLook);
    }
    results.push_back(text ? result_of(*text) : RoundResult{.kind = RoundResult::Kind::lost, .machine = member.name});
  }
  return launch::judge(results, options_.max_restarts, history_);
}

}  // namespace trireme::launch
