#include "trireme/schedule/lifetimes.h"

#include <numeric>

namespace trireme::schedule {

Lifetimes::Lifetimes(const Schedule& s)
    : beginning_(by_action(s, &Value::first)), ending_(by_action(s, &Value::last)), continues_(s.values.size()) {
  for (const Value& v : s.values)
    if (v.takes_over >= 0) continues_[static_cast<size_t>(v.takes_over)] = true;
}

// Counts how many values each action has, and then puts them side by side.
Lifetimes::ByAction Lifetimes::by_action(const Schedule& s, int Value::* when) {
  const auto counts = [&](const Value& v) {
    return !v.persistent && !v.held && v.*when >= 0 && v.*when < static_cast<int>(s.actions.size());
  };
  ByAction lives{.values = {}, .begins = std::vector<size_t>(s.actions.size() + 1)};
  for (const Value& v : s.values)
    if (counts(v)) ++lives.begins[static_cast<size_t>(v.*when) + 1];
  std::partial_sum(lives.begins.begin(), lives.begins.end(), lives.begins.begin());
  lives.values.resize(lives.begins.back());
  std::vector<size_t> next(lives.begins.begin(), lives.begins.end() - 1);
  for (size_t i = 0; i < s.values.size(); ++i)
    if (counts(s.values[i])) lives.values[next[static_cast<size_t>(s.values[i].*when)]++] = static_cast<int>(i);
  return lives;
}

}  // namespace trireme::schedule
