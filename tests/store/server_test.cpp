// What members can do, several at once.
#include "trireme/store/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/store/guest.h"

namespace trireme::store::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Server, MembersShareKeysWithC10dsRules) {
  const Store store;
  const auto one = store.client(), two = store.client();
  one->set("key", "value");
  EXPECT_EQ(two->get("key", 1s), "value");
  EXPECT_EQ(two->add("count", 5), 5);
  EXPECT_EQ(one->add("count", -7), -2);
  EXPECT_EQ(one->get("count", 1s), "-2");
  EXPECT_EQ(one->compare_set("new", "", "first"), "first");
  EXPECT_EQ(two->compare_set("new", "", "second"), "first");
  EXPECT_EQ(two->compare_set("new", "first", "second"), "second");
  EXPECT_EQ(two->compare_set("absent", "something", "else"), "something");
  EXPECT_TRUE(one->check({"key", "count"}));
  EXPECT_FALSE(one->check({"key", "absent"}));
  EXPECT_EQ(one->count(), 3);
  EXPECT_TRUE(two->remove("key"));
  EXPECT_FALSE(two->remove("key"));
  EXPECT_TRUE(store.refused().empty());
}

TEST(Server, ValuesMayHoldAnyBytesAndBeLarge) {
  const Store store;
  const auto one = store.client(), two = store.client();
  std::string value(8 << 20, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 2654435761U >> 24);
  one->set(std::string("a\0b", 3), value);
  EXPECT_TRUE(two->get(std::string("a\0b", 3), 1s) == value);
  EXPECT_FALSE(two->check({"a"}));
  EXPECT_THROW(one->set("too large", std::string(17 << 20, 'x')), UsageError);
  EXPECT_EQ(one->count(), 1);
}

TEST(Server, WhoWaitsIsToldWhenTheKeyComes) {
  const Store store;
  const auto one = store.client(), two = store.client();
  std::atomic<bool> done = false;
  std::jthread waits([&] {
    EXPECT_TRUE(one->wait({"first", "second", "first"}, 20s));
    done = true;
  });
  two->set("first", "");
  std::this_thread::sleep_for(30ms);
  EXPECT_FALSE(done);
  two->add("second", 1);
  waits.join();
  EXPECT_FALSE(one->wait({"third"}, 20ms));
  EXPECT_EQ(one->get("third", 20ms), std::nullopt);
  EXPECT_EQ(two->get("second", 0ms), "1");
}

TEST(Server, AThreadThatWaitsKeepsNoOtherOfTheSameClientFromWorking) {
  const Store store;
  const auto client = store.client();
  std::jthread waits([&] { EXPECT_EQ(client->get("late", 20s), "here"); });
  std::this_thread::sleep_for(20ms);
  client->set("late", "here");
  waits.join();
}

TEST(Server, ManyMembersAddAtOnce) {
  const Store store;
  constexpr int kThreads = 8, kTimes = 50;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      const auto client = store.client();
      for (int i = 0; i < kTimes; ++i) client->add("sum", 1);
    });
  threads.clear();
  EXPECT_EQ(store.client()->add("sum", 0), kThreads * kTimes);
}

TEST(Server, WhatIsNoNumberIsNotAddedTo) {
  const Store store;
  const auto client = store.client();
  client->set("word", "seven");
  try {
    client->add("word", 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the value of key 'word' is no number"));
  }
  EXPECT_EQ(client->get("word", 1s), "seven");
}

TEST(Server, AClientWhoseServerEndsIsToldSo) {
  Store store;
  const auto client = store.client(kToken, "job", 300ms);
  std::jthread waits([&] {
    try {
      client->wait({"never"}, 20s);
      FAIL() << "nobody wrote it";
    } catch (const Unreachable& error) {
      EXPECT_THAT(error.what(), HasSubstr("has gone"));
    }
  });
  std::this_thread::sleep_for(30ms);
  store.stop();
}

TEST(Server, NobodyThereIsAnErrorWithTheAddress) {
  const int port = Store().port();
  try {
    const Client client({.place = {"127.0.0.1", port, kToken}, .timeout = 100ms});
    FAIL();
  } catch (const Unreachable& error) {
    EXPECT_THAT(error.what(), HasSubstr("nobody serves the store at 127.0.0.1:" + std::to_string(port)));
  }
}

TEST(Server, WhereALauncherListensForItNobodyWaitsForOneThatHasEnded) {
  const int port = Store().port();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(Client({.place = {"127.0.0.1", port, kToken}, .listens_already = true, .timeout = 60s}), Unreachable);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

}  // namespace
}  // namespace trireme::store::testing
