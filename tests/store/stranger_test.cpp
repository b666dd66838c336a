// Whoever has not the job's token is refused with a line that says who and why, and disturbs nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <random>
#include <thread>

#include "tests/store/guest.h"
#include "trireme/store/message.h"
#include "trireme/store/refusals.h"

namespace trireme::store::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

bool slow() { return std::getenv("TRIREME_SLOW") != nullptr; }

// What the tests ask of the store after each disturbance.
void expect_unharmed(const Store& store) {
  const auto member = store.client();
  EXPECT_EQ(member->get("kept", 5s), "as it was");
  EXPECT_EQ(member->count(), 1);
}

class Strangers : public ::testing::Test {
 protected:
  Strangers() { member_->set("kept", "as it was"); }
  ~Strangers() override { expect_unharmed(store_); }

  std::string refusal_of(const Token& token, const std::string& job) const {
    try {
      store_.client(token, job, 5s)->set("kept", "changed");
      return "was let in";
    } catch (const Refused& error) {
      return error.what();
    }
  }

  Store store_;
  std::unique_ptr<Client> member_ = store_.client();
};

TEST_F(Strangers, WithAnotherTokenAreRefusedOnBothSides) {
  EXPECT_THAT(refusal_of(kOtherToken, "job"), HasSubstr("does not accept this process' token"));
  EXPECT_THAT(store_.await_refusals(1), ContainsRegex("refused where ranks meet: 127\\.0\\.0\\.1:[0-9]+ calls itself "
                                                      "rank 7 of this job and has another token"));
}

TEST_F(Strangers, OfAnotherJobAreRefusedEvenWithTheToken) {
  EXPECT_THAT(refusal_of(kToken, "another"), HasSubstr("does not accept this process' token"));
  EXPECT_THAT(refusal_of(kOtherToken, "another"), HasSubstr("does not accept this process' token"));
  EXPECT_THAT(store_.await_refusals(2), HasSubstr("calls itself rank 7 of another job, 'another'"));
}

TEST_F(Strangers, WhoSpeakTcpStoresLanguageAreNamed) {
  const Stranger stranger(store_.port());
  stranger.say(std::string("\0\xCE\xF7\x85\x3C", 5) + std::string("\1\4\0\0\0\0\0\0\0kept", 13));
  EXPECT_EQ(stranger.listen(), "");
  EXPECT_THAT(store_.await_refusals(1), HasSubstr("speaks the language of c10d's TCPStore"));
}

TEST_F(Strangers, WhoSpeakHttpAreQuoted) {
  const Stranger stranger(store_.port());
  stranger.say("GET /kept\r\n\x1b[31m HTTP/1.1\r\n\r\n");
  EXPECT_EQ(stranger.listen(), "");
  EXPECT_THAT(store_.await_refusals(1), HasSubstr("sent something else than a handshake: 'GET /kept???[31m'"));
}

TEST_F(Strangers, WhoSendGarbageChangeNothing) {
  std::mt19937 random(11);
  for (int round = 0, rounds = slow() ? 2000 : 100; round < rounds; ++round) {
    std::string bytes(random() % 600 + 1, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 2 == 0) bytes[0] = 0x16;  // as a handshake begins
    if (round % 4 == 0) bytes.replace(0, std::min<std::size_t>(6, bytes.size()), "\x16\x03\x01\x02\x00\x01", 6);
    const Stranger stranger(store_.port());
    stranger.say(bytes);
    if (round % 10 == 0) {
      EXPECT_EQ(member_->get("kept", 5s), "as it was");
    }
  }
  store_.await_refusals(8);
  EXPECT_EQ(store_.refused().size(), 8U) << "the others are counted, not told";
}

TEST_F(Strangers, WhoCutAHandshakeShortAreRefused) {
  // A true handshake of a stranger's, every prefix of it.
  std::string hello;
  {
    const base::FileDescriptor listener = listen_at("127.0.0.1", 0);
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    const Stranger to(ntohs(address.sin_port));
    pollfd ready{listener.get(), POLLIN, 0};
    poll(&ready, 1, 5000);
    base::FileDescriptor from(accept(listener.get(), nullptr, nullptr));
    Channel channel(std::make_shared<Credentials>(kToken, Identity{"job", "rank 7"}), std::move(from),
                    Channel::Side::client);
    EXPECT_FALSE(channel.handshake());
    char buffer[4096];
    ready = {to.fd(), POLLIN, 0};
    poll(&ready, 1, 5000);
    hello.assign(buffer, static_cast<std::size_t>(std::max<ssize_t>(0, recv(to.fd(), buffer, sizeof buffer, 0))));
  }
  ASSERT_GT(hello.size(), 100U);
  for (std::size_t length = 1; length < hello.size(); length += slow() ? 1 : 17) {
    const Stranger stranger(store_.port());
    stranger.say(hello.substr(0, length));
  }
  EXPECT_THAT(store_.await_refusals(1), HasSubstr("left before it had proven itself"));
  // All of it, heard on the way and said again: without the token the next step fails.
  const Stranger stranger(store_.port());
  stranger.say(hello);
  std::string answer(4096, '\0');
  EXPECT_GT(recv(stranger.fd(), answer.data(), answer.size(), 0), 0);
  stranger.say(std::string("\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x35", 11) + std::string(53, 'x'));
  EXPECT_TRUE(stranger.is_out() || !stranger.listen().empty());
}

TEST(SlowStrangers, KeepNoMemberWaiting) {
  const Store store({.patience = 500ms, .most_strangers = 16});
  const auto member = store.client();
  member->set("kept", "as it was");
  std::list<Stranger> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(store.port());
  for (int i = 0; i < 8; ++i) {
    silent.emplace_back(store.port());
    silent.back().say("\x16");
  }
  expect_unharmed(store);
  EXPECT_TRUE(silent.front().is_out());
  EXPECT_TRUE(silent.back().is_out()) << "patience ends";
  EXPECT_THAT(store.await_refusals(1), HasSubstr("was the oldest of 16 strangers at once"));
}

TEST(SlowStrangers, WhoNeverProvesItselfIsSentAway) {
  const Store store({.patience = 100ms});
  const Stranger silent(store.port());
  EXPECT_TRUE(silent.is_out());
  EXPECT_THAT(store.await_refusals(1), HasSubstr("has not proven itself in time"));
}

TEST(SlowStrangers, WhoSaysTheWrongThingIsToldBesideAFloodOfThoseWhoSayNothing) {
  const Store store({.patience = 100ms});
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(Stranger(store.port()).is_out());
  const Stranger stranger(store.port());
  stranger.say("GET / HTTP/1.1");
  EXPECT_TRUE(stranger.is_out());
  EXPECT_THAT(store.await_refusals(9), HasSubstr("something else than a handshake: 'GET / HTTP/1.1'"));
}

TEST(SlowStrangers, ARankThatIsRefusedIsToldBesideAFloodOfOthers) {
  const Store store;
  for (int i = 0; i < 50; ++i) {
    const Stranger stranger(store.port());
    stranger.say("nonsense");
    EXPECT_TRUE(stranger.is_out());
  }
  EXPECT_THROW(store.client(kOtherToken), Refused);
  EXPECT_THAT(store.await_refusals(9), HasSubstr("calls itself rank 7 of this job and has another token"));
}

TEST(SlowStrangers, WhoLooksAndGoesIsNotWorthALine) {
  const Store store;
  for (int i = 0; i < 20; ++i) const Stranger passes(store.port());
  store.client()->set("kept", "as it was");
  EXPECT_TRUE(store.refused().empty());
}

TEST(Members, WhoSendRubbishAreRefusedByName) {
  const Store store;
  store.client()->set("kept", "as it was");
  std::mt19937 random(12);
  for (int round = 0, rounds = slow() ? 500 : 30; round < rounds; ++round) {
    const Stranger line(store.port());
    Channel channel(std::make_shared<Credentials>(kToken, Identity{"job", "rank 5"}), line.share(),
                    Channel::Side::client);
    pollfd ready{channel.fd(), POLLIN, 0};
    while (!channel.handshake()) {
      ASSERT_FALSE(channel.ended());
      ASSERT_EQ(poll(&ready, 1, 20000), 1);
    }
    std::string frame(4 + random() % 60, '\0');
    for (char& c : frame) c = static_cast<char>(random());
    const auto length = static_cast<std::uint32_t>(round % 5 == 0 ? 1U << 31 : frame.size() - 4);
    frame.replace(0, 4, reinterpret_cast<const char*>(&length), 4);
    frame[4] = static_cast<char>(round % 5 == 0 ? 0 : 9 + round);  // no operation
    channel.send(frame);
    EXPECT_TRUE(line.is_out());
  }
  EXPECT_THAT(store.await_refusals(1),
              AllOf(HasSubstr("(rank 5) sent a malformed message"), HasSubstr("where 16777216 are the most")));
  expect_unharmed(store);
}

// Someone between client and store who sees all that passes, and changes the byte at `flip`.
class Between {
 public:
  Between(int store_port, long flip) : listener_(listen_at("127.0.0.1", 0)), flip_(flip) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this, store_port] { relay(store_port); });
  }
  ~Between() { done_ = true; }
  int port() const { return port_; }
  std::string seen() const { return seen_; }
  void finish() {
    done_ = true;
    thread_.join();
  }

 private:
  void relay(int store_port) {
    pollfd ready{listener_.get(), POLLIN, 0};
    while (poll(&ready, 1, 20) == 0)
      if (done_) return;
    const base::FileDescriptor guest(accept(listener_.get(), nullptr, nullptr));
    const Stranger store(store_port);
    char buffer[4096];
    while (!done_) {
      pollfd both[2] = {{guest.get(), POLLIN, 0}, {store.fd(), POLLIN, 0}};
      poll(both, 2, 20);
      for (const int side : {0, 1}) {
        if (both[side].revents == 0) continue;
        const auto got = recv(both[side].fd, buffer, sizeof buffer, 0);
        if (got <= 0) return;
        if (side == 0) {
          for (long i = 0; i < got; ++i, ++passed_)
            if (passed_ == flip_) buffer[i] = static_cast<char>(buffer[i] ^ 1);
        }
        seen_.append(buffer, static_cast<std::size_t>(got));
        (void)!send(both[1 - side].fd, buffer, static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
    }
  }

  const base::FileDescriptor listener_;
  const long flip_;
  long passed_ = 0;
  int port_ = 0;
  std::atomic<bool> done_ = false;
  std::string seen_;
  std::jthread thread_;
};

std::string set_through(Between& between) {
  try {
    Client client({.place = {"127.0.0.1", between.port(), kToken}, .self = {"job", "rank 7"}, .timeout = 2s});
    client.set("secret key", "secret value");
    return "done";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Between, WhatPassesCannotBeReadOrChanged) {
  const Store store;
  Between reads(store.port(), -1);
  EXPECT_EQ(set_through(reads), "done");
  reads.finish();
  EXPECT_GT(reads.seen().size(), 200U);
  for (const std::string& hidden : {std::string("secret"), kToken})
    EXPECT_EQ(reads.seen().find(hidden), std::string::npos);
  EXPECT_TRUE(store.client()->remove("secret key"));
  // Every byte that the client sends, in the end; here some of each part.
  const long all = 700;
  for (long flip = 1, step = slow() ? 1 : 53; flip < all; flip += step) {
    Between changes(store.port(), flip);
    const std::string result = set_through(changes);
    changes.finish();
    if (result == "done") {  // beyond the last byte, or one that TLS has no use for (a record's version)
      EXPECT_EQ(store.client()->get("secret key", 5s), "secret value") << "byte " << flip;
      EXPECT_TRUE(store.client()->remove("secret key"));
      continue;
    }
    EXPECT_FALSE(store.client()->check({"secret key"})) << "byte " << flip << ": " << result;
  }
}

TEST(Impostors, AServerWithoutTheTokenGetsNothing) {
  const Store other({.token = kOtherToken});
  EXPECT_THROW(other.client(kToken), Refused);
  const base::FileDescriptor listener = listen_at("127.0.0.1", 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  std::jthread answers([&] {
    pollfd ready{listener.get(), POLLIN, 0};
    poll(&ready, 1, 5000);
    const base::FileDescriptor guest(accept(listener.get(), nullptr, nullptr));
    (void)!send(guest.get(), "welcome, tell me everything", 27, MSG_NOSIGNAL);
    std::this_thread::sleep_for(200ms);
  });
  try {
    Client client({.place = {"127.0.0.1", port, kToken}, .self = {"job", "rank 7"}, .timeout = 5s});
    FAIL();
  } catch (const Refused& error) {
    EXPECT_THAT(error.what(), HasSubstr("what listens there is not the job's store"));
  }
}

TEST(Refusals, AFloodIsEightLinesAMinute) {
  std::vector<std::string> lines;
  Refusals refusals([&](const std::string& line) { lines.push_back(line); });
  const auto now = Refusals::Clock::now();
  for (int i = 0; i < 1000; ++i) refusals.tell("somebody", now + i * 1ms);
  EXPECT_EQ(lines.size(), 8U);
  refusals.tell("one more", now + 62s);
  EXPECT_EQ(lines.back(), "one more (992 others were refused before)");
}

}  // namespace
}  // namespace trireme::store::testing
