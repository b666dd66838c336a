// What is alive at each action, counted from the uses of values. No placement can be smaller.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "trireme/schedule/placement.h"

namespace trireme::schedule {

std::vector<std::array<int64_t, kNumMemories>> live_bytes(const Schedule& s) {
  const int n = static_cast<int>(s.actions.size());
  std::vector<std::array<int64_t, kNumMemories>> change(n + 1), live(n);
  std::vector<int> first(s.values.size(), -1), last(s.values.size(), -1);
  for (int i = 0; i < n; ++i)
    for (const Use& u : s.actions[i].uses) {
      if (first[u.value] < 0) first[u.value] = i;
      last[u.value] = std::max({last[u.value], i, s.actions[i].completes_at - 1});
    }
  for (size_t v = 0; v < s.values.size(); ++v) {
    const Value& value = s.values[v];
    const bool always = value.persistent || value.held;
    int from = always ? 0 : first[v], to = always ? n - 1 : last[v];
    if (from < 0) continue;
    // A value that takes over another's bytes counts from the end of the other: until then the other counts.
    if (value.takes_over >= 0) from = last[value.takes_over] + 1;
    if (from > to) continue;
    change[from][static_cast<int>(value.memory)] += aligned(value.bytes);
    change[to + 1][static_cast<int>(value.memory)] -= aligned(value.bytes);
  }
  std::array<int64_t, kNumMemories> now{};
  for (int i = 0; i < n; ++i) {
    for (int m = 0; m < kNumMemories; ++m) now[m] += change[i][m];
    live[i] = now;
  }
  return live;
}

int64_t own_bytes(const std::array<int64_t, kNumMemories>& live) {
  int64_t sum = 0;
  for (int m = 0; m < kNumMemories; ++m)
    if (!is_tier(static_cast<Memory>(m))) sum += live[m];
  return sum;
}

int peak_action(const Schedule& s) {
  const auto live = live_bytes(s);
  int peak = 0;
  int64_t most = -1;
  for (size_t i = 0; i < live.size(); ++i) {
    const int64_t total = own_bytes(live[i]);
    if (total > most) most = total, peak = static_cast<int>(i);
  }
  return peak;
}

}  // namespace trireme::schedule
