// The part of ssh_start.h that both ends share: an order as text. A word is "length\n" and its bytes; a list is
// "count\n" and its words.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/base/units.h"
#include "trireme/launch/machines/ssh_start.h"

namespace trireme::launch {
namespace {
constexpr int64_t kMostWords = 1 << 16, kLongestWord = 1 << 20;

void append(std::string& text, const std::string& word) { text += fmt::format("{}\n{}", word.size(), word); }

std::string read_bytes(int fd, size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = read(fd, bytes.data() + done, count - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error("trireme on_host is started by trireme --hosts, which tells it what to do; its order ended early");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

size_t read_number(int fd, int64_t most) {
  constexpr size_t kDigits = 10;
  std::string digits;
  for (std::string c = read_bytes(fd, 1); c != "\n"; c = read_bytes(fd, 1)) {
    digits += c;
    if (digits.size() > kDigits) break;
  }
  const auto number = base::parse_count(digits);
  if (!number || *number < 0 || *number > most)
    throw Error("trireme on_host is started by trireme --hosts, which tells it what to do; its order is malformed");
  return static_cast<size_t>(*number);
}

std::string read_word(int fd) { return read_bytes(fd, read_number(fd, kLongestWord)); }
}  // namespace

std::string write_order(const HostOrder& order) {
  std::string text;
  append(text, order.token);
  append(text, order.folder);
  text += fmt::format("{}\n", order.arguments.size());
  for (const std::string& word : order.arguments) append(text, word);
  text += fmt::format("{}\n", order.environment.size());
  for (const auto& [name, value] : order.environment) append(text, fmt::format("{}={}", name, value));
  return text;
}

HostOrder read_order(int fd) {
  base::allow_no_core_dumps();
  HostOrder order{.token = read_word(fd), .folder = read_word(fd)};
  for (size_t words = read_number(fd, kMostWords); words > 0; --words) order.arguments.push_back(read_word(fd));
  for (size_t words = read_number(fd, kMostWords); words > 0; --words) {
    const std::string word = read_word(fd);
    const size_t equals = word.find('=');
    order.environment.emplace_back(word.substr(0, equals), equals == std::string::npos ? "" : word.substr(equals + 1));
  }
  return order;
}

}  // namespace trireme::launch
