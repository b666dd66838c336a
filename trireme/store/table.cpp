#include "trireme/store/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace trireme::store {

bool Table::has_all(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
}

Reply Table::answer(const Request& request) {
  switch (request.operation) {
    case Operation::set:
      values_[request.keys[0]] = request.value;
      return {};
    case Operation::get:
      return {.value = values_.at(request.keys[0])};
    case Operation::wait:
      return {};
    case Operation::check:
      return {.number = has_all(request.keys)};
    case Operation::add:
      return add(request.keys[0], request.number);
    case Operation::compare_set:
      return compare_set(request);
    case Operation::remove:
      return {.number = static_cast<std::int64_t>(values_.erase(request.keys[0]))};
    case Operation::count:
      return {.number = static_cast<std::int64_t>(values_.size())};
  }
  return {.status = Reply::Status::refused, .value = "there is no such operation"};
}

// Counters are decimal texts, so that get() shows them.
Reply Table::add(const std::string& key, std::int64_t number) {
  std::string& text = values_[key];
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::int64_t sum = 0;
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size()))
    return {.status = Reply::Status::refused, .value = fmt::format("the value of key '{}' is no number", key)};
  if (__builtin_add_overflow(value, number, &sum))
    return {.status = Reply::Status::refused, .value = fmt::format("the number at key '{}' grows too large", key)};
  text = std::to_string(sum);
  return {.number = sum};
}

Reply Table::compare_set(const Request& request) {
  const auto found = values_.find(request.keys[0]);
  if (found == values_.end() && !request.expected.empty()) return {.value = request.expected};
  if (found != values_.end() && found->second != request.expected) return {.value = found->second};
  values_[request.keys[0]] = request.value;
  return {.value = request.value};
}

}  // namespace trireme::store
