#include "trireme/store/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace trireme::store {
namespace {

using namespace std::chrono_literals;

Request whole() {
  return {.operation = Operation::compare_set,
          .keys = {"key"},
          .value = std::string("a\0b", 3),
          .expected = "c",
          .number = -5,
          .timeout = 12ms};
}

std::string body_of(std::string frame) { return *take_frame(frame); }

TEST(Message, SaysWhatWasMeant) {
  const Request request = request_of(body_of(frame_of(whole())));
  EXPECT_EQ(request.operation, Operation::compare_set);
  EXPECT_EQ(request.keys, std::vector<std::string>{"key"});
  EXPECT_EQ(request.value, std::string("a\0b", 3));
  EXPECT_EQ(request.expected, "c");
  EXPECT_EQ(request.number, -5);
  EXPECT_EQ(request.timeout, 12ms);
  const Reply reply = reply_of(body_of(frame_of(Reply{Reply::Status::timed_out, "text", 7})));
  EXPECT_EQ(reply.status, Reply::Status::timed_out);
  EXPECT_EQ(reply.value, "text");
  EXPECT_EQ(reply.number, 7);
}

TEST(Message, FramesComeApartWhereTheyWereJoined) {
  std::string bytes = frame_of(whole()) + frame_of(Reply{}), taken;
  const std::string last = bytes.substr(bytes.size() - 3);
  bytes.resize(bytes.size() - 3);
  EXPECT_TRUE(take_frame(bytes));
  EXPECT_FALSE(take_frame(bytes));
  bytes += last;
  EXPECT_EQ(reply_of(*take_frame(bytes)).status, Reply::Status::done);
  EXPECT_EQ(bytes, "");
}

TEST(Message, WhatIsCutOrTooLongIsAnError) {
  const std::string body = body_of(frame_of(whole()));
  for (std::size_t length = 0; length < body.size(); ++length)
    EXPECT_THROW(request_of(body.substr(0, length)), Malformed) << length;
  EXPECT_THROW(request_of(body + "x"), Malformed);
  EXPECT_THROW(request_of("\x63" + body.substr(1)), Malformed);
  std::string huge = "\xff\xff\xff\x7f";
  EXPECT_THROW(take_frame(huge), Malformed);
  Request two_keys = whole();
  two_keys.keys.push_back("another");
  EXPECT_THROW(request_of(body_of(frame_of(two_keys))), Malformed);
}

TEST(Message, RandomBytesAreAnErrorOrAMessage) {
  std::mt19937 random(3);
  int errors = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string body = round % 2 == 0 ? body_of(frame_of(whole())) : std::string(random() % 80, '\0');
    for (int i = 0; i < (round % 2 == 0 ? 2 : 80) && !body.empty(); ++i)
      body[random() % body.size()] = static_cast<char>(random());
    try {
      request_of(body);
    } catch (const Malformed&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 10000);
}

}  // namespace
}  // namespace trireme::store
