// Values alive at the same time share no bytes. Lifetimes are computed from the uses, not taken from the placement.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

class Bytes {
 public:
  Bytes(const Schedule& s, const Arena& arena, Findings& f)
      : s_(s), arena_(arena), f_(f), first_(s.values.size(), -1), last_(s.values.size(), -1) {
    const int count = static_cast<int>(s.actions.size());
    for (int i = 0; i < count; ++i)
      for (const Use& u : s.actions[i].uses) {
        if (first_[u.value] < 0) first_[u.value] = i;
        last_[u.value] = std::max(last_[u.value], end_of(s, i));
      }
    for (size_t v = 0; v < s.values.size(); ++v)
      if (s.values[v].persistent || s.values[v].held) first_[v] = 0, last_[v] = count - 1;
  }

  void check() {
    const size_t count = s_.actions.size();
    std::vector<std::vector<int>> starts(count), ends(count + 1);
    for (size_t v = 0; v < s_.values.size(); ++v) {
      if (first_[v] < 0) continue;
      check_region(s_.values[v]);
      if (s_.values[v].bytes == 0) continue;
      starts[first_[v]].push_back(static_cast<int>(v));
      ends[std::min<size_t>(last_[v] + 1, count)].push_back(static_cast<int>(v));
    }
    for (size_t i = 0; i < count; ++i) {
      for (int v : ends[i]) leave(v);
      for (int v : starts[i]) enter(v, static_cast<int>(i));
    }
  }

 private:
  void check_region(const Value& v) {
    const int64_t size = arena_.bytes[static_cast<int>(v.memory)];
    if (v.offset < 0 || v.offset + v.bytes > size)
      f_.say(fmt::format("{} lies at {}..{}, outside its region of {} bytes", v.label, v.offset, v.offset + v.bytes,
                         size));
    else if (v.offset % v.alignment != 0)
      f_.say(fmt::format("{} lies at {}, which is no multiple of {}", v.label, v.offset, v.alignment));
  }

  void leave(int value) {
    auto& region = alive_[static_cast<int>(s_.values[value].memory)];
    for (auto [it, end] = region.equal_range(s_.values[value].offset); it != end; ++it)
      if (it->second == value) {
        region.erase(it);
        return;
      }
  }

  void enter(int value, int at) {
    const Value& v = s_.values[value];
    auto& region = alive_[static_cast<int>(v.memory)];
    int64_t& longest = longest_[static_cast<int>(v.memory)];
    for (auto it = region.upper_bound(v.offset - longest); it != region.end() && it->first < v.offset + v.bytes; ++it) {
      const Value& other = s_.values[it->second];
      if (other.offset + other.bytes <= v.offset || v.takes_over == it->second) continue;
      f_.say(fmt::format("{} ({}) and {} ({}) share bytes and are both alive at {}", v.label, life(value), other.label,
                         life(it->second), f_.name(at)));
    }
    region.emplace(v.offset, value);
    longest = std::max(longest, v.bytes);
  }

  std::string life(int value) const {
    if (s_.values[value].persistent || s_.values[value].held) return "of the step";
    int last_user = first_[value];  // an asynchronous user may end after the last one in the list
    for (int i = first_[value]; i <= last_[value]; ++i)
      for (const Use& u : s_.actions[i].uses)
        if (u.value == value && end_of(s_, i) >= end_of(s_, last_user)) last_user = i;
    return fmt::format("{} to {}", f_.name(first_[value]), f_.name(last_user));
  }

  const Schedule& s_;
  const Arena& arena_;
  Findings& f_;
  std::vector<int> first_, last_;
  std::multimap<int64_t, int> alive_[kNumMemories];  // offset -> value
  int64_t longest_[kNumMemories] = {};               // of the values seen so far
};

}  // namespace

void check_bytes(const Schedule& s, const Arena& arena, Findings& f) { Bytes(s, arena, f).check(); }

}  // namespace trireme::schedule::rules
