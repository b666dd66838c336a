// What members say to the store and what it answers: frames of a length and that many bytes, the bytes made of
// numbers, texts and lists. Reading is checked: a frame that is cut or too long is an error, never a guess.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::door {

constexpr std::size_t kMostFrameBytes = 16 << 20;

enum class Operation : unsigned char { set, get, wait, check, add, compare_set, remove, count };

struct Request {
  Operation operation = Operation::count;
  std::vector<std::string> keys = {};      ///< one, or several for wait and check
  std::string value = {};                  ///< set, compare_set: the new one
  std::string expected = {};               ///< compare_set
  std::int64_t number = 0;                 ///< add
  std::chrono::milliseconds timeout{0};    ///< get, wait
};

struct Reply {
  enum class Status : unsigned char { done, timed_out, refused };
  Status status = Status::done;
  std::string value = {};   ///< get, compare_set; why, where refused
  std::int64_t number = 0;  ///< add, count; 1 or 0: check, remove
};

/// A frame that breaks the rules; what() says how.
struct Malformed : Error {
  using Error::Error;
};

/// Errors    UsageError where the frame would be too long
std::string frame_of(const Request& request);
std::string frame_of(const Reply& reply);

/// Takes the first whole frame from the front of `bytes`; nothing where there is none yet.
/// Errors    Malformed
std::optional<std::string> take_frame(std::string& bytes);

/// Errors    Malformed
Request request_of(std::string_view frame);
Reply reply_of(std::string_view frame);

}  // namespace trireme::door
