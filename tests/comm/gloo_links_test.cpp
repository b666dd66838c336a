// Who may take a rank's place before Gloo hears a word: only who knows the group's key.
#include "trireme/comm/gloo/links.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <thread>

#include "trireme/store/seal.h"

namespace trireme::comm::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Ranks {
 public:
  explicit Ranks(int size) {
    for (int k = 0; k < size; ++k) {
      listeners_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t bytes = sizeof address;
      auto* any = reinterpret_cast<sockaddr*>(&address);
      if (bind(listeners_[k].get(), any, bytes) != 0 || listen(listeners_[k].get(), 64) != 0 ||
          getsockname(listeners_[k].get(), any, &bytes) != 0)
        throw std::runtime_error("no socket");
      addresses.emplace_back(reinterpret_cast<char*>(&address), bytes);
    }
  }

  // By rank: what went wrong, or nothing.
  std::vector<std::string> link(const std::vector<std::string>& keys, std::chrono::milliseconds timeout = 20s) {
    const int size = static_cast<int>(keys.size());
    links.resize(size);
    std::vector<std::string> errors(size);
    std::vector<std::jthread> threads;
    for (int k = 0; k < size; ++k)
      threads.emplace_back([&, k] {
        try {
          links[k] = link_ranks({.rank = k, .size = size, .timeout = timeout}, keys[k], listeners_[k].get(), addresses);
        } catch (const std::exception& error) {
          errors[k] = error.what();
        }
      });
    threads.clear();
    return errors;
  }

  // One rank alone, among `size`: what went wrong, or nothing.
  std::string link_one(int rank, int size, const std::string& key, std::chrono::milliseconds timeout) {
    try {
      link_ranks({.rank = rank, .size = size, .timeout = timeout}, key, listeners_[rank].get(), addresses);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  // The next who has called the first rank; after 20 ms nobody.
  base::FileDescriptor accept() const {
    pollfd calls{.fd = listeners_[0].get(), .events = POLLIN, .revents = 0};
    (void)poll(&calls, 1, 20);
    return base::FileDescriptor(accept4(listeners_[0].get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  base::FileDescriptor call(int rank) const {
    base::FileDescriptor s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Where a rank's queue is full, the kernel would call for two minutes.
    const timeval patience{.tv_sec = 0, .tv_usec = 100'000};
    setsockopt(s.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    (void)!connect(s.get(), reinterpret_cast<const sockaddr*>(addresses[rank].data()), sizeof(sockaddr_in));
    return s;
  }

  std::vector<std::string> addresses;
  std::vector<Links> links;

 private:
  std::vector<base::FileDescriptor> listeners_;
};

// Every pair talks to whom it thinks it does.
void expect_connected(std::vector<Links>& links) {
  const int size = static_cast<int>(links.size());
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to) {
      if (from == to) continue;
      const int sent = from * size + to;
      int got = -1;
      ASSERT_EQ(send(links[from].sockets[to].get(), &sent, sizeof sent, MSG_NOSIGNAL), 4);
      pollfd answer{.fd = links[to].sockets[from].get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&answer, 1, 10'000), 1);
      ASSERT_EQ(recv(links[to].sockets[from].get(), &got, sizeof got, 0), 4);
      EXPECT_EQ(got, sent);
    }
}

TEST(GlooLinks, StrangersAreHungUpOnAndDisturbNobody) {
  const std::string key = store::Seal::draw_key();
  Ranks ranks(4);
  std::atomic<bool> ends{false};
  const std::string hello = "trireme1" + std::string("\3\0\0\0\0\0\0\0", 8) + std::string(32, 'n');
  std::vector<base::FileDescriptor> before;  // in the queue before a rank looks; half of them guess a proof
  for (int rank = 0; rank < 4; ++rank)
    for (int i = 0; i < 40; ++i) {
      before.push_back(ranks.call(rank));
      if (i % 2 == 0)
        (void)!send(before.back().get(), (hello + std::string(32, 'p')).data(), hello.size() + 32, MSG_NOSIGNAL);
    }
  std::jthread stranger([&] {
    std::vector<base::FileDescriptor> kept;
    for (int64_t i = 0; !ends; ++i) {
      kept.push_back(ranks.call(static_cast<int>(i % 4)));
      const int64_t number = i % 64;
      const int fd = kept.back().get();
      if (i % 3 == 0) (void)!send(fd, &number, sizeof number, MSG_NOSIGNAL);
      // Knows how ranks begin, says it is rank 3, and guesses its proof.
      if (i % 3 == 1) (void)!send(fd, (hello + std::string(32, 'p')).data(), hello.size() + 32, MSG_NOSIGNAL);
      if (kept.size() > 300) kept.erase(kept.begin());
    }
  });
  const auto errors = ranks.link({key, key, key, key});
  ends = true;
  EXPECT_EQ(errors, std::vector<std::string>(4));
  expect_connected(ranks.links);
  EXPECT_GT(ranks.links[0].strangers + ranks.links[1].strangers + ranks.links[2].strangers, 0);
}

TEST(GlooLinks, WhoHasAnotherKeyIsNotLetIn) {
  const std::string key = store::Seal::draw_key(), other = store::Seal::draw_key();
  Ranks ranks(3);
  const auto errors = ranks.link({key, other, key}, 500ms);
  EXPECT_EQ(errors[0], "no connection with rank 1");
  EXPECT_EQ(errors[1], "no connection with rank 0, 2");
  EXPECT_EQ(errors[2], "no connection with rank 1");
}

// Somebody who listens at a rank's address, and says nothing.
TEST(GlooLinks, AnAddressThatSomebodyElseHoldsIsNotBelieved) {
  const std::string key = store::Seal::draw_key();
  Ranks ranks(2), impostor(2);
  ranks.addresses[0] = impostor.addresses[0];
  const auto errors = ranks.link({key, key}, 300ms);
  EXPECT_THAT(errors[1], HasSubstr("no connection with rank 0"));
}

// Somebody who listens at rank 0's address and speaks as ranks do, without the key: he guesses the proofs, or says back
// what the caller says.
TEST(GlooLinks, WhoAnswersWithoutTheKeyIsNotBelieved) {
  for (const bool echoes : {false, true}) {
    Ranks ranks(2), impostor(1);
    ranks.addresses[0] = impostor.addresses[0];
    std::atomic<int> answered{0};
    const std::jthread answers([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const base::FileDescriptor guest = impostor.accept();
        std::string hello(48, ' ');  // gloo/greeting.h says what each message holds
        if (guest.get() < 0 || recv(guest.get(), hello.data(), hello.size(), MSG_WAITALL) != 48) continue;
        const std::string challenge = hello.substr(16) + std::string(32, 'p'), guess(32, 'w');
        if (send(guest.get(), challenge.data(), challenge.size(), MSG_NOSIGNAL) == 64) ++answered;
        if (!echoes) (void)!send(guest.get(), guess.data(), guess.size(), MSG_NOSIGNAL);
        std::string heard(32, ' ');
        if (recv(guest.get(), heard.data(), heard.size(), MSG_WAITALL) == 32 && echoes)
          (void)!send(guest.get(), heard.data(), heard.size(), MSG_NOSIGNAL);
      }
    });
    EXPECT_EQ(ranks.link_one(1, 2, store::Seal::draw_key(), 300ms), "no connection with rank 0") << echoes;
    EXPECT_GT(answered, 0);
  }
}

}  // namespace
}  // namespace trireme::comm::testing
