#include "trireme/store/message.h"

#include <fmt/format.h>

#include <cstring>

namespace trireme::store {
namespace {

constexpr std::size_t kMostKeys = 1 << 16;

// Numbers are little-endian, as the machines are that LibTorch's wheels run on.
class Writer {
 public:
  template <typename T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
  }
  std::string frame() {
    const std::size_t size = bytes_.size() - sizeof(std::uint32_t);
    if (size > kMostFrameBytes)
      throw UsageError(
          fmt::format("{} bytes are too many for the store where ranks meet: it takes {}", size, kMostFrameBytes));
    const auto length = static_cast<std::uint32_t>(size);
    std::memcpy(bytes_.data(), &length, sizeof length);
    return std::move(bytes_);
  }

 private:
  std::string bytes_ = std::string(sizeof(std::uint32_t), '\0');
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  template <typename Enum>
  Enum one_of(Enum last) {
    const auto value = number<unsigned char>();
    if (value > static_cast<unsigned char>(last)) throw Malformed(fmt::format("there is no kind {}", value));
    return static_cast<Enum>(value);
  }
  void end() const {
    if (!left_.empty()) throw Malformed(fmt::format("{} bytes too many", left_.size()));
  }

 private:
  std::string_view take(std::size_t count) {
    if (count > left_.size()) throw Malformed("it ends early");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  std::string_view left_;
};

}  // namespace

std::string frame_of(const Request& request) {
  Writer out;
  out.number(request.operation);
  out.number(static_cast<std::uint32_t>(request.keys.size()));
  for (const auto& key : request.keys) out.text(key);
  out.text(request.value);
  out.text(request.expected);
  out.number(request.number);
  out.number(static_cast<std::int64_t>(request.timeout.count()));
  return out.frame();
}

std::string frame_of(const Reply& reply) {
  Writer out;
  out.number(reply.status);
  out.text(reply.value);
  out.number(reply.number);
  return out.frame();
}

std::optional<std::string> take_frame(std::string& bytes) {
  std::uint32_t length = 0;
  if (bytes.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMostFrameBytes)
    throw Malformed(fmt::format("a message of {} bytes, where {} are the most", length, kMostFrameBytes));
  if (bytes.size() < sizeof length + length) return std::nullopt;
  std::string frame = bytes.substr(sizeof length, length);
  bytes.erase(0, sizeof length + length);
  return frame;
}

Request request_of(std::string_view frame) {
  Reader in(frame);
  Request request{.operation = in.one_of(Operation::count)};
  const auto keys = in.number<std::uint32_t>();
  if (keys > kMostKeys) throw Malformed(fmt::format("{} keys, where {} are the most", keys, kMostKeys));
  for (std::uint32_t k = 0; k < keys; ++k) request.keys.push_back(in.text());
  request.value = in.text();
  request.expected = in.text();
  request.number = in.number<std::int64_t>();
  request.timeout = std::chrono::milliseconds(in.number<std::int64_t>());
  in.end();
  const bool any_number = request.operation == Operation::wait || request.operation == Operation::check;
  if (!any_number && request.operation != Operation::count && request.keys.size() != 1)
    throw Malformed(fmt::format("{} keys where there must be one", request.keys.size()));
  return request;
}

Reply reply_of(std::string_view frame) {
  Reader in(frame);
  Reply reply{.status = in.one_of(Reply::Status::refused)};
  reply.value = in.text();
  reply.number = in.number<std::int64_t>();
  in.end();
  return reply;
}

}  // namespace trireme::store
