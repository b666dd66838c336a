#include "trireme/schedule/render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

// The values of one access, several tensors of one unit and micro-batch as one word.
std::string values_of(const Schedule& s, const Action& a, bool writes) {
  std::vector<std::string> words;
  for (const Use& u : a.uses) {
    const bool is_write = u.access == Access::write || u.access == Access::accumulate;
    if (is_write != writes || s.values[u.value].kind == ValueKind::work) continue;
    const std::string& label = s.values[u.value].label;
    const std::string word =
        label.substr(0, label.rfind(")") + 1).empty() ? label : label.substr(0, label.rfind(")") + 1);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::string render_text(const Schedule& s) {
  const auto live = live_bytes(s);
  std::string out =
      fmt::format("{:>5}  {:<10} {:<36} {:>9}  {}\n", "#", "queue", "action", "live MiB", "reads -> writes");
  for (size_t i = 0; i < s.actions.size(); ++i) {
    const Action& a = s.actions[i];
    std::string name = describe(s, a);
    if (a.completes_at >= 0) name += fmt::format(" until #{}", a.completes_at);
    out += fmt::format("{:>5}  {:<10} {:<36} {:>9.1f}  {} -> {}\n", i, name_of(a.queue), name,
                       double(live[i][0] + live[i][1] + live[i][2]) / (1 << 20), values_of(s, a, false),
                       values_of(s, a, true));
  }
  return out;
}

}  // namespace trireme::schedule
