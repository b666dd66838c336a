// The requests of members to the store, and the store's answers. A frame is a length and that many bytes, which hold
// numbers, texts and lists. Reading is checked: a frame that is cut off or too long is an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::store {

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
  std::string value = {};   ///< get, compare_set; if refused, the reason
  std::int64_t number = 0;  ///< add, count; check and remove: 1 or 0
};

/// A malformed frame; what() says how.
struct Malformed : Error {
  using Error::Error;
};

/// Errors    UsageError if the frame would be too long
std::string frame_of(const Request& request);
std::string frame_of(const Reply& reply);

/// Removes the first frame from `bytes` and returns it; returns nothing if no frame is complete yet.
/// Errors    Malformed
std::optional<std::string> take_frame(std::string& bytes);

/// Errors    Malformed
Request request_of(std::string_view frame);
Reply reply_of(std::string_view frame);

}  // namespace trireme::store
