#include "trireme/launch/machines/host_list.h"

#include <fmt/format.h>

#include <sstream>

#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::launch {
namespace {
constexpr size_t kMostHosts = 65'536;

// Reads one of Slurm's texts from left to right; every error quotes the whole text.
class Reader {
 public:
  Reader(std::string_view variable, std::string_view text) : variable_(variable), text_(text) {}

  [[noreturn]] void refuse(std::string_view why) const {
    throw UsageError(fmt::format(
        "environment variable {}='{}' is not {}: {}; srun sets it, so unset it or start the ranks with --devices",
        variable_, text_, kind_, why));
  }
  void expect_kind(std::string_view kind) { kind_ = kind; }
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (peek() != c || at_end()) return false;
    ++at_;
    return true;
  }
  std::string_view take_until(std::string_view ends) {
    const size_t begin = at_;
    while (!at_end() && ends.find(text_[at_]) == std::string_view::npos) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view digits() {
    const size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    if (at_ == begin) refuse(fmt::format("a number is missing at character {}", begin + 1));
    return text_.substr(begin, at_ - begin);
  }
  int number(std::string_view digits) const {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc()) refuse(fmt::format("{} is too large", digits));
    return value;
  }

 private:
  std::string_view variable_, text_, kind_;
  size_t at_ = 0;
};

// "01-03,7" of a bracket: 01, 02, 03, 7; leading zeros are part of the name.
std::vector<std::string> read_ranges(Reader& in) {
  std::vector<std::string> values;
  do {
    const std::string_view first = in.digits();
    const std::string_view last = in.take('-') ? in.digits() : first;
    const int begin = in.number(first), end = in.number(last);
    if (begin > end) in.refuse(fmt::format("the range {}-{} runs backwards", first, last));
    if (values.size() + static_cast<size_t>(end - begin) >= kMostHosts) in.refuse("it has more than 65,536 hosts");
    for (int64_t i = begin; i <= end; ++i) values.push_back(fmt::format("{:0{}}", i, first.size()));
  } while (in.take(','));
  if (!in.take(']')) in.refuse("a bracket does not close");
  return values;
}
}  // namespace

std::vector<std::string> expand_host_list(std::string_view variable, std::string_view text) {
  Reader in(variable, text);
  in.expect_kind("a list of hosts");
  std::vector<std::string> hosts;
  do {
    std::vector<std::string> names = {""};
    while (!in.at_end() && in.peek() != ',') {
      const std::string_view fixed = in.take_until("[],");
      for (std::string& name : names) name += fixed;
      if (in.peek() == ']') in.refuse("a bracket closes that was not opened");
      if (!in.take('[')) continue;
      const std::vector<std::string> values = read_ranges(in);
      if (names.size() * values.size() > kMostHosts) in.refuse("it has more than 65,536 hosts");
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& value : values) longer.push_back(name + value);
      names = std::move(longer);
    }
    if (names.front().empty()) in.refuse("a name is empty");
    hosts.insert(hosts.end(), names.begin(), names.end());
    if (hosts.size() > kMostHosts) in.refuse("it has more than 65,536 hosts");
  } while (in.take(','));
  return hosts;
}

std::vector<int> expand_task_counts(std::string_view variable, std::string_view text) {
  Reader in(variable, text);
  in.expect_kind("a list of tasks per node");
  std::vector<int> counts;
  do {
    const int tasks = in.number(in.digits());
    int nodes = 1;
    if (in.take('(')) {
      if (!in.take('x')) in.refuse("a bracket must say (xN), for N nodes");
      nodes = in.number(in.digits());
      if (!in.take(')')) in.refuse("a bracket does not close");
    }
    if (tasks < 1 || nodes < 1) in.refuse("every number must be at least 1");
    if (counts.size() + static_cast<size_t>(nodes) > kMostHosts) in.refuse("it has more than 65,536 nodes");
    counts.insert(counts.end(), static_cast<size_t>(nodes), tasks);
  } while (in.take(','));
  if (!in.at_end()) in.refuse(fmt::format("'{}' is not expected", in.peek()));
  return counts;
}

HostRanks parse_host(std::string_view source, std::string_view text) {
  const size_t colon = text.find(':');
  HostRanks host{std::string(text.substr(0, colon))};
  const bool has_ranks = colon != std::string_view::npos;
  bool is_right = !host.name.empty() && host.name[0] != '-' && host.name.find_first_of(" \t") == std::string::npos;
  if (has_ranks) {
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), host.ranks);
    is_right &= error == std::errc() && end == number.data() + number.size() && host.ranks >= 1 && host.ranks <= 65536;
  }
  if (!is_right)
    throw UsageError(
        fmt::format("{}: '{}' is not a machine; write NAME or NAME:RANKS, for instance node1:4", source, text));
  return host;
}

std::vector<HostRanks> parse_hostfile(std::string_view source, std::string_view text) {
  std::vector<HostRanks> hosts;
  std::istringstream lines{std::string(base::without_byte_order_mark(text))};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) continue;
    const std::string place = fmt::format("{}:{}", source, number);
    if (words >> slots) {
      constexpr std::string_view kSlots = "slots=";
      if (!slots.starts_with(kSlots) || words >> more)
        throw UsageError(
            fmt::format("{}: '{}' is not a machine; write NAME, NAME:RANKS or NAME slots=RANKS", place, line));
      name += ":" + slots.substr(kSlots.size());
    }
    hosts.push_back(parse_host(place, name));
  }
  if (hosts.empty()) throw UsageError(fmt::format("{} names no machine; write one a line", source));
  return hosts;
}

}  // namespace trireme::launch
