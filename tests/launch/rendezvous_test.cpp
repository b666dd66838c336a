// Launchers of several machines, each a thread here, meet and meet again; no rank is started.
#include "trireme/launch/machines/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <map>
#include <thread>

#include "tests/data/refusal.h"
#include "trireme/base/error.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/machines/elastic.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using Kind = RoundResult::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;

const store::Token kToken(64, 'a');
constexpr auto kLongEnough = 20s;  // for what takes a moment, on a machine that does other things too

// What a thread will say. Nobody waits for it without end, not even where a test has failed: a stop that is requested
// ends the waiting of all launchers here.
template <typename T>
class Soon {
 public:
  template <typename Work>
  explicit Soon(Work work) : future_(std::async(std::launch::async, std::move(work))) {}
  Soon(Soon&&) = default;
  Soon& operator=(Soon&&) = default;
  ~Soon() {
    if (future_.valid()) request_stop(SIGTERM);
  }
  bool is_there(std::chrono::milliseconds within) const {
    return future_.wait_for(within) == std::future_status::ready;
  }
  T get() {
    if (!is_there(kLongEnough)) {
      ADD_FAILURE() << "a launcher waits in vain";
      request_stop(SIGTERM);
    }
    return future_.get();
  }

 private:
  std::future<T> future_;
};

class Machines : public ::testing::Test {
 protected:
  Machines() : listener_(store::listen_at("127.0.0.1", 0)) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  void TearDown() override { clear_stop_request(); }

  RendezvousOptions options(int least, int most) const {
    RendezvousOptions o;
    o.port = port_;
    o.token = kToken;
    o.job = "job";
    o.least = least;
    o.most = most;
    o.num_ranks = 2;
    o.max_restarts = 3;
    o.join_timeout = 30s;
    o.last_call = 1h;  // a full round does not wait for it
    o.silence = 30s;
    return o;
  }

  std::unique_ptr<Rendezvous> decider(RendezvousOptions o) {
    o.listener = std::move(listener_);
    return std::make_unique<Rendezvous>(std::move(o));
  }
  static std::unique_ptr<Rendezvous> other(RendezvousOptions o) { return std::make_unique<Rendezvous>(std::move(o)); }

  // Of the store at which the launchers meet: sees what they see, and can be one of them.
  std::unique_ptr<store::Client> client() const {
    return std::make_unique<store::Client>(store::ClientOptions{
        .place = {"127.0.0.1", port_, kToken}, .self = {"job", "the test"}, .timeout = kLongEnough});
  }

  static Soon<Nodes> meets(Rendezvous& r) {
    return Soon<Nodes>([&r] {
      Nodes nodes = r.meet().value();
      if (nodes.store_fd >= 0) close(nodes.store_fd);
      return nodes;
    });
  }
  static Soon<Verdict> concludes(Rendezvous& r, RoundResult result) {
    return Soon<Verdict>([&r, result] { return r.conclude(result); });
  }
  // The one of two that takes part, where the other has to wait.
  static Soon<Nodes>& first_of(Soon<Nodes>& x, Soon<Nodes>& y) {
    for (const auto end = std::chrono::steady_clock::now() + kLongEnough; std::chrono::steady_clock::now() < end;)
      for (Soon<Nodes>* place : {&x, &y})
        if (place->is_there(5ms)) return *place;
    return x;
  }
  static bool has_ended(const Rendezvous& r, int ms = 20000) {
    pollfd ready{r.end_fd(), POLLIN, 0};
    return poll(&ready, 1, ms) == 1;
  }

  base::FileDescriptor listener_;
  int port_ = 0;
};

TEST_F(Machines, AllMachinesOfAFullRoundGetTheirPlacesAtOnce) {
  auto a = decider(options(3, 3)), b = other(options(3, 3)), c = other(options(3, 3));
  auto first = meets(*a), second = meets(*b), third = meets(*c);
  const Nodes x = first.get(), y = second.get(), z = third.get();
  EXPECT_EQ(x.rank, 0);
  EXPECT_EQ(y.rank + z.rank, 3);
  for (const Nodes& nodes : {x, y, z}) {
    EXPECT_EQ(nodes.count, 3);
    EXPECT_EQ(nodes.master_address, "127.0.0.1");
    EXPECT_EQ(nodes.master_port, x.master_port);
    EXPECT_EQ(nodes.token, x.token);
    EXPECT_EQ(nodes.token.size(), 64U);
    EXPECT_NE(nodes.token, kToken);
    EXPECT_EQ(nodes.job_id, "job-0");
    EXPECT_EQ(nodes.run, x.run);
    EXPECT_EQ(nodes.run.size(), 16U);
  }
  auto v = concludes(*a, {}), w = concludes(*b, {}), u = concludes(*c, {});
  EXPECT_FALSE(v.get().again || w.get().again || u.get().again);
}

TEST_F(Machines, NumberedMachinesGetTheirNumbers) {
  std::map<int, std::unique_ptr<Rendezvous>> machines;
  std::map<int, Soon<Nodes>> places;
  for (const int number : {0, 2, 1}) {
    RendezvousOptions o = options(3, 3);
    o.node_rank = number;
    machines[number] = number == 0 ? decider(std::move(o)) : other(std::move(o));
    places.emplace(number, meets(*machines[number]));
  }
  for (auto& [number, place] : places) EXPECT_EQ(place.get().rank, number);
}

TEST_F(Machines, EnoughMachinesStartAfterTheLastCallAndALateOneJoinsTheNextRound) {
  std::atomic<int> fit = 2;
  RendezvousOptions o = options(2, 3);
  o.last_call = 300ms;
  o.can_run_on = [&](int machines) { return machines == fit; };
  auto a = decider(std::move(o)), b = other(options(2, 3));
  auto first = meets(*a), second = meets(*b);
  const std::string run = first.get().run;
  EXPECT_EQ(second.get().count, 2);
  auto c = other(options(2, 3));
  auto third = meets(*c);
  EXPECT_FALSE(third.is_there(200ms));
  fit = 3;
  auto v = concludes(*b, {.kind = Kind::failed, .words = "rank 2 failed at step 4 (x)"});
  EXPECT_TRUE(has_ended(*a)) << "a machine is told of a failure elsewhere";
  auto w = concludes(*a, {.kind = Kind::consequence, .words = "its ranks were stopped"});
  for (const Verdict& verdict : {v.get(), w.get()}) {
    EXPECT_TRUE(verdict.again);
    EXPECT_THAT(verdict.why, HasSubstr("restart 1 of 3 in 1 s: rank 2 failed at step 4 (x) on machine "));
  }
  auto x = meets(*a), y = meets(*b);
  EXPECT_EQ(x.get().count, 3);
  EXPECT_EQ(y.get().count, 3);
  EXPECT_EQ(third.get().run, run) << "the attempts are one run";
  EXPECT_EQ(a->round(), 1);
  EXPECT_EQ(c->round(), 1);
  EXPECT_FALSE(has_ended(*a, 0));
}

TEST_F(Machines, AMachineThatFallsSilentEndsTheRoundAndTheRestGoesOn) {
  RendezvousOptions o = options(1, 2);
  o.silence = 1500ms;
  o.last_call = 300ms;
  auto a = decider(std::move(o));
  const auto silent = client();
  silent->add("0/joined", 1);
  silent->set("0/member/0", "2 -1 ghost");
  auto first = meets(*a);
  EXPECT_EQ(first.get().count, 2);
  EXPECT_TRUE(has_ended(*a));
  const Verdict verdict = a->conclude({.kind = Kind::consequence, .words = "its ranks were stopped"});
  EXPECT_TRUE(verdict.again);
  EXPECT_THAT(verdict.why, HasSubstr("machine ghost is gone"));
  const Nodes alone = meets(*a).get();
  EXPECT_EQ(alone.count, 1);
  EXPECT_EQ(alone.store_fd, -1) << "a machine alone makes a socket of its own, which others cannot reach";
}

// Rank 0 is always a little later: it writes what the run has come to.
TEST_F(Machines, AnAgreedStopLeavesTheOthersTimeToSave) {
  auto a = decider(options(2, 2)), b = other(options(2, 2));
  auto first = meets(*a), second = meets(*b);
  first.get();
  second.get();
  auto v = concludes(*b, {.kind = Kind::over, .agreed = true});
  EXPECT_FALSE(has_ended(*a, 1500));
  auto w = concludes(*a, {.kind = Kind::over, .agreed = true});
  const Verdict of_b = v.get(), of_a = w.get();
  EXPECT_FALSE(of_a.again || of_b.again);
}

TEST_F(Machines, AStopThatSavedNothingEndsTheRound) {
  auto a = decider(options(2, 2)), b = other(options(2, 2));
  auto first = meets(*a), second = meets(*b);
  first.get();
  second.get();
  auto v = concludes(*b, {.kind = Kind::over});
  EXPECT_TRUE(has_ended(*a));
  auto w = concludes(*a, {.kind = Kind::over});
  const Verdict of_b = v.get(), of_a = w.get();
  EXPECT_FALSE(of_a.again || of_b.again);
}

// Ctrl-C on a machine that waits, and the same command again.
TEST_F(Machines, AMachineThatHasLeftIsNotWaitedForInTheRound) {
  RendezvousOptions o = options(1, 2);
  o.last_call = 300ms;
  auto a = decider(std::move(o));
  const auto ghost = client();
  ghost->add("0/joined", 1);
  ghost->set("0/member/0", "2 -1 ghost");
  ghost->add("0/alive/0", 1);
  ghost->set("0/bye/0", "");
  EXPECT_EQ(meets(*a).get().count, 1);
}

TEST_F(Machines, AMachineThatLeavesWhileRanksRunIsLostAtOnce) {
  auto a = decider(options(2, 2)), b = other(options(2, 2));
  auto first = meets(*a), second = meets(*b);
  first.get();
  second.get();
  b.reset();
  EXPECT_TRUE(has_ended(*a));
  auto v = concludes(*a, {.kind = Kind::consequence, .words = "its ranks were stopped"});
  EXPECT_THAT(v.get().why, HasSubstr(" is gone"));
}

TEST_F(Machines, TooFewMachinesAreAnErrorWithTheNumbers) {
  RendezvousOptions o = options(2, 2);
  o.join_timeout = 200ms;
  auto a = decider(std::move(o));
  try {
    a->meet();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("1 machine came to 127.0.0.1:"), HasSubstr("the job needs 2")));
  }
}

TEST_F(Machines, ThoseWhoCameAreToldToo) {
  RendezvousOptions o = options(3, 3);
  o.join_timeout = 500ms;
  auto a = decider(std::move(o));
  const auto guest = client();
  guest->add("0/joined", 1);
  guest->set("0/member/0", "2 -1 guest");
  Soon<std::string> plan([&] { return guest->get("0/plan", kLongEnough).value(); });
  EXPECT_ANY_THROW(meets(*a).get());
  EXPECT_THAT(plan.get(), HasSubstr("failed 2 machines came"));
  const auto start = std::chrono::steady_clock::now();
  a.reset();
  EXPECT_GE(std::chrono::steady_clock::now() - start, 1s) << "it leaves them time to read that";
}

TEST_F(Machines, MachinesThatContradictEachOtherAreRefusedOnAll) {
  RendezvousOptions four = options(2, 2);
  four.num_ranks = 4;
  auto a = decider(options(2, 2)), b = other(std::move(four));
  auto first = meets(*a), second = meets(*b);
  for (auto* place : {&first, &second}) {
    try {
      place->get();
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("starts 4 ranks"), HasSubstr("say the same --devices on all")));
    }
  }
}

TEST_F(Machines, OtherSettingsBeforeTheFirstRoundAreRefusedOnAll) {
  RendezvousOptions o = options(3, 3), same = options(3, 3), unlike = options(3, 3);
  o.settings = same.settings = R"({"optimizer.lr": "1"})";
  unlike.settings = R"({"optimizer.lr": "2"})";
  auto a = decider(std::move(o)), b = other(std::move(same));
  auto first = meets(*a), second = meets(*b);
  ASSERT_TRUE(client()->wait({"0/member/0", "0/member/1"}, kLongEnough));
  auto c = other(std::move(unlike));
  auto third = meets(*c);
  for (auto* place : {&third, &first, &second}) {
    try {
      place->get();
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("has optimizer.lr 2, rank 0 has 1; start every machine with the same"),
                                      ::testing::StartsWith("machine ")));
    }
  }
}

TEST_F(Machines, ANewcomerWithOtherSettingsIsRefusedAndTheJobGoesOn) {
  RendezvousOptions o = options(1, 2), unlike = options(1, 2);
  o.last_call = 100ms;
  o.settings = R"({"optimizer.lr": "1"})";
  unlike.settings = R"({"optimizer.lr": "2"})";
  auto a = decider(std::move(o));
  EXPECT_EQ(meets(*a).get().count, 1);
  auto b = other(std::move(unlike));
  try {
    meets(*b).get();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has optimizer.lr 2, rank 0 has 1"));
  }
  b.reset();
  EXPECT_FALSE(has_ended(*a, 0));
  EXPECT_TRUE(concludes(*a, {.kind = Kind::failed, .words = "failed at step 4 (x)"}).get().again);
  EXPECT_EQ(meets(*a).get().count, 1) << "nobody waits for it";
}

TEST_F(Machines, ANewcomerWithANumberThatIsTakenIsRefusedAndTheJobGoesOn) {
  RendezvousOptions o = options(2, 3), second = options(2, 3), again = options(2, 3);
  o.last_call = 1s;  // in which both come again
  o.node_rank = 0;
  second.node_rank = again.node_rank = 1;
  o.name = "a", second.name = "b", again.name = "newcomer";
  auto a = decider(std::move(o)), b = other(std::move(second));
  auto first = meets(*a), of_b = meets(*b);
  EXPECT_EQ(first.get().count, 2);
  of_b.get();
  auto c = other(std::move(again));
  auto of_c = meets(*c);
  EXPECT_FALSE(of_c.is_there(200ms));
  auto v = concludes(*b, {.kind = Kind::failed, .words = "failed at step 4 (x)"});
  auto w = concludes(*a, {.kind = Kind::consequence, .words = "its ranks were stopped"});
  EXPECT_TRUE(v.get().again && w.get().again);
  auto x = meets(*a), y = meets(*b);
  EXPECT_EQ(x.get().count, 2);
  EXPECT_EQ(y.get().count, 2);
  try {
    of_c.get();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("another machine of this job is number 1 already"));
  }
}

TEST_F(Machines, AMachineTooManyForTheSettingsIsLeftOut) {
  RendezvousOptions o = options(1, 3);
  o.can_run_on = [](int machines) { return machines != 3; };
  auto a = decider(std::move(o));
  auto b = other(options(1, 3)), c = other(options(1, 3));
  auto first = meets(*a), second = meets(*b), third = meets(*c);
  EXPECT_EQ(first.get().count, 2);
  auto* in = &first_of(second, third);
  EXPECT_EQ(in->get().count, 2);
  auto v = concludes(*a, {}), w = concludes(in == &second ? *b : *c, {});
  EXPECT_FALSE(v.get().again || w.get().again);
  EXPECT_ANY_THROW((in == &second ? third : second).get());
}

// Rank 0 is on it, and nobody else could give the verdict that those who are left out wait for.
TEST_F(Machines, TheOneThatDecidesTakesPartHoweverLateItJoins) {
  auto a = decider(options(1, 2)), b = other(options(1, 2)), c = other(options(1, 2));
  auto second = meets(*b), third = meets(*c);
  ASSERT_TRUE(client()->wait({"0/member/0", "0/member/1"}, kLongEnough)) << "both have joined";
  auto first = meets(*a);
  EXPECT_EQ(first.get().rank, 0);
  auto* in = &first_of(second, third);
  EXPECT_EQ(in->get().rank, 1);
  auto v = concludes(*a, {}), w = concludes(in == &second ? *b : *c, {});
  EXPECT_FALSE(v.get().again || w.get().again);
  EXPECT_ANY_THROW((in == &second ? third : second).get());
}

TEST_F(Machines, WithoutTheDeciderTheOthersEnd) {
  auto a = decider(options(2, 2)), b = other(options(2, 2));
  auto first = meets(*a), second = meets(*b);
  first.get();
  second.get();
  a.reset();
  EXPECT_TRUE(has_ended(*b));
  try {
    b->conclude({.kind = Kind::consequence, .words = "its ranks were stopped"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("where the launchers meet, is gone"), HasSubstr("start the job again")));
  }
}

TEST_F(Machines, ALauncherWithoutTheTokenIsRefused) {
  auto a = decider(options(1, 2));
  RendezvousOptions o = options(1, 2);
  o.token = store::Token(64, 'b');
  EXPECT_THROW(other(std::move(o)), store::Refused);
}

TEST_F(Machines, AStopThatIsRequestedEndsTheWaiting) {
  auto a = decider(options(2, 2));
  request_stop(SIGTERM);
  EXPECT_FALSE(a->meet());
}

TEST_F(Machines, AStopOfTheOneThatDecidesIsToldToThoseThatWaitWithIt) {
  auto a = decider(options(3, 3));
  const auto waiting = client();
  waiting->add("0/joined", 1);
  waiting->set("0/member/0", "2 -1 waiting");
  Soon<bool> meets([&] { return a->meet().has_value(); });
  ASSERT_TRUE(waiting->wait({"0/member/1"}, kLongEnough));
  request_stop(SIGTERM);
  EXPECT_FALSE(meets.get());
  EXPECT_EQ(waiting->get("0/plan", kLongEnough), "stopped");
  const auto start = std::chrono::steady_clock::now();
  a.reset();
  EXPECT_GE(std::chrono::steady_clock::now() - start, 1s) << "it leaves them time to read that";
}

TEST_F(Machines, WhoIsToldOfAStopStopsToo) {
  const store::Server decider(std::move(listener_), {.token = kToken, .job = "job"});
  const auto says = client();
  says->set("round", "0");
  says->set("0/plan", "stopped");
  EXPECT_FALSE(other(options(2, 2))->meet());
}

TEST_F(Machines, WhoIsStoppedItselfMissesNobody) {
  auto decider =
      std::make_unique<store::Server>(std::move(listener_), store::ServerOptions{.token = kToken, .job = "job"});
  auto says = client();
  says->set("round", "0");
  auto b = other(options(2, 2));
  Soon<bool> meets([&] { return b->meet().has_value(); });
  ASSERT_TRUE(says->wait({"0/alive/0"}, kLongEnough));
  request_stop(SIGTERM);
  decider.reset();
  EXPECT_FALSE(meets.get());
}

Settings at(const char* endpoint, const char* nnodes) {
  Settings settings;
  settings.launch.rdzv_endpoint = endpoint;
  if (nnodes != nullptr) settings.launch.nnodes = nnodes;
  return settings;
}

TEST(AnyFreePort, IsNoMeetingPlaceOfOneMachine) {
  for (const char* nnodes : {static_cast<const char*>(nullptr), "1", "1:1"}) {
    Settings settings = at("localhost:0", nnodes);
    EXPECT_FALSE(elastic_of(settings));
    EXPECT_FALSE(settings.launch.rdzv_endpoint);
  }
  Settings settings = at("localhost:29400", "1");
  EXPECT_TRUE(elastic_of(settings));
  EXPECT_TRUE(settings.launch.rdzv_endpoint);
}

TEST(AnyFreePort, IsRefusedForSeveralMachines) {
  for (const char* nnodes : {"2", "1:2"}) {
    Settings settings = at("host-a:0", nnodes);
    EXPECT_THAT(data::refusal([&] { elastic_of(settings); }),
                HasSubstr("host-a:0 means any free port, which the other machines cannot know: with 2 machines give"));
  }
  Settings negative = at("host-a:-1", "1");
  EXPECT_THAT(data::refusal([&] { elastic_of(negative); }), HasSubstr("is not HOST:PORT"));
}

TEST_F(Machines, AndTheLookingForTheLauncherThatDecides) {
  std::thread stopper([] {
    std::this_thread::sleep_for(100ms);
    request_stop(SIGTERM);
  });
  RendezvousOptions o = options(2, 2);
  o.port = 1;  // nobody is there
  EXPECT_THROW(other(std::move(o)), Stopped);
  stopper.join();
}

TEST(Network, ADoubtfulPlaceToMeetIsNamed) {
  EXPECT_THAT(doubt_about("nosuchhost.invalid", false),
              HasSubstr("no name service of this machine knows nosuchhost.invalid"));
  EXPECT_THAT(doubt_about("192.0.2.1", true), HasSubstr("192.0.2.1 is no address of this machine, which has "));
  EXPECT_EQ(doubt_about("192.0.2.1", false), "");
  EXPECT_EQ(doubt_about("127.0.0.1", true), "");
  EXPECT_THAT(doubt_about("fd00::1", false), HasSubstr("no name service of this machine knows fd00::1"));
}

}  // namespace
}  // namespace trireme::launch
