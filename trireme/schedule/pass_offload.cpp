// Values that rest in a tier (host memory, disk). Actions use copies of them in the rank's own memory. A Fetch makes a
// copy some computations before its first user; an Evict writes it back behind its last one, if something has changed.
// Users that are at most so far apart share a copy.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/round_up.h"
#include "trireme/schedule/draft.h"
#include "trireme/schedule/placement.h"

namespace trireme::schedule {
namespace {

// Actions between which distances are counted: what the copies hide behind.
bool passes_time(ActionKind kind) { return is_computation(kind) || kind == ActionKind::step; }

// A use of a value: the action, the place among its uses, and the last action during which it may run.
struct UseAt {
  int action, use, end;
};

// Users that share a copy, in the order of the list.
using Stay = std::vector<UseAt>;

class Mover {
 public:
  Mover(Schedule& s, const OffloadSettings& offload) : s_(s), offload_(offload), uses_(s.values.size()) {
    const int count = std::ssize(s.actions);
    for (int i = 0; i < count; ++i) {
      const Action& a = s.actions[i];
      time_.push_back(passed_);
      if (passes_time(a.kind)) ++passed_;
      const int end = a.completes_at > i ? a.completes_at - 1 : i;
      for (int u = 0; u < std::ssize(a.uses); ++u) uses_[a.uses[u].value].push_back({i, u, end});
    }
    time_.push_back(passed_);
  }

  void run() {
    send_activations_away();
    const int values = std::ssize(s_.values);
    for (int v = 0; v < values; ++v)
      if (is_tier(s_.values[v].memory)) move(v);
    if (!moves_.empty()) rebuild();
  }

 private:
  struct Move {
    ActionKind kind;
    int home, copy;
    int before;  // the action before which it stands
    int completes;  // the action before which it is complete
    int next_fetch = -1;  // of an Evict: the move that reads what it writes, before which it is complete too
    bool again = false;  // of an Evict: it writes what another one has written in this list
  };

  std::vector<Stay> stays_of(int value) const {
    std::vector<Stay> stays;
    for (const UseAt& use : uses_[value]) {
      const bool together = !stays.empty() && access_of(use) != Access::write &&
                            time_[use.action] - time_[last_of(stays.back())] <= offload_.distance() + 1;
      if (!together) stays.emplace_back();
      stays.back().push_back(use);
    }
    return stays;
  }
  Access access_of(const UseAt& use) const { return s_.actions[use.action].uses[use.use].access; }
  static int last_of(const Stay& stay) {
    int last = -1;
    for (const UseAt& use : stay) last = std::max(last, use.end);
    return last;
  }

  // What forward keeps for backward leaves if something else runs between the two.
  void send_activations_away() {
    if (offload_.activations == Tier::none) return;
    double carried = 0;
    for (size_t v = 0; v < s_.values.size(); ++v) {
      Value& value = s_.values[v];
      const bool kept = value.kind == ValueKind::boundary || value.kind == ValueKind::saved;
      if (!kept || value.held || value.bytes == 0 || value.memory != Memory::own) continue;
      if (stays_of(static_cast<int>(v)).size() < 2) continue;
      carried += offload_.ratio * double(value.bytes);
      if (carried < double(value.bytes) / 2) continue;
      carried -= double(value.bytes);
      value.memory = memory_of(offload_.activations);
      if (value.memory != Memory::disk) continue;
      value.bytes = base::round_up(value.bytes, kDiskAlignment);
      value.alignment = kDiskAlignment;
    }
  }

  // The first action from which `distance` of time passes until action `at`, and that stands behind `earliest`.
  int before_by(int at, int64_t distance, int earliest) const {
    int from = at;
    while (from > earliest && time_[at] - time_[from - 1] <= distance) --from;
    return from;
  }

  // The first action at or behind `at` before which as much time has passed since, or the list's end.
  int behind_by(int at, int64_t distance) const {
    int until = at;
    while (until < std::ssize(s_.actions) && time_[until] - time_[at] < distance) ++until;
    return until;
  }

  void move(int home) {
    int earliest = 0, evict = -1;  // a Fetch stands behind the users of the copy before, and their Evict
    bool written = false;
    for (const Stay& stay : stays_of(home)) {
      const int copy = make_copy(home), begin = stay.front().action, behind = last_of(stay) + 1;
      bool changes = false, consumed = false;
      for (const UseAt& use : stay) {
        const Access access = access_of(use);
        changes |= access == Access::write || access == Access::accumulate;
        consumed |= access == Access::consume;
      }
      if (access_of(stay.front()) != Access::write) {
        if (evict >= 0) moves_[evict].next_fetch = static_cast<int>(moves_.size());
        moves_.push_back({ActionKind::fetch, home, copy, before_by(begin, offload_.distance(), earliest), begin});
      }
      evict = -1;
      if (changes && !consumed) {
        evict = static_cast<int>(moves_.size());
        moves_.push_back({ActionKind::evict, home, copy, behind, behind_by(behind, offload_.distance())});
        moves_.back().again = std::exchange(written, true);
        evicted_at_[{copy, behind}] = evict;
      }
      for (const UseAt& use : stay) s_.actions[use.action].uses[use.use].value = copy;
      earliest = behind;
    }
  }

  int make_copy(int home) {
    Value copy = s_.values[home];
    copy.persistent = false;
    copy.memory = Memory::own;
    copy.home = home;
    copy.label = fmt::format("copy {} of {}", ++copies_[home], copy.label);
    s_.values.push_back(std::move(copy));
    return static_cast<int>(s_.values.size()) - 1;
  }

  // Puts the moves at their places: Evicts first, so that a Fetch of the same value finds them complete.
  void rebuild() {
    const int count = std::ssize(s_.actions);
    std::vector<std::vector<int>> before(count + 1);
    for (const ActionKind kind : {ActionKind::evict, ActionKind::fetch})
      for (int m = 0; m < std::ssize(moves_); ++m)
        if (moves_[m].kind == kind) before[moves_[m].before].push_back(m);
    std::vector<int> place(count + 1), place_of_move(moves_.size());
    int next = 0;
    for (int i = 0; i <= count; ++i) {
      for (int m : before[i]) place_of_move[m] = next++;
      place[i] = next++;
    }
    std::vector<Action> actions;
    for (int i = 0; i <= count; ++i) {
      for (int m : before[i]) actions.push_back(action_of(moves_[m], place, place_of_move));
      if (i == count) break;
      Action a = std::move(s_.actions[i]);
      if (a.completes_at >= 0) {
        const int at = a.completes_at;
        a.completes_at = place[at];
        for (const Use& u : a.uses)  // an Evict of what it writes waits for it
          if (const auto evict = evicted_at_.find({u.value, at}); evict != evicted_at_.end())
            a.completes_at = std::min(a.completes_at, place_of_move[evict->second]);
      }
      actions.push_back(std::move(a));
    }
    s_.actions = std::move(actions);
  }

  Action action_of(const Move& move, const std::vector<int>& place, const std::vector<int>& place_of_move) const {
    const Value& home = s_.values[move.home];
    const bool fetch = move.kind == ActionKind::fetch;
    Action a{.kind = move.kind,
             .owner = move.home,
             .queue = {.kind = traits_of(move.kind).queue, .lane = home.memory == Memory::disk ? kDiskLane : kHostLane},
             .bytes = home.bytes};
    a.completes_at = place[move.completes];
    if (move.next_fetch >= 0) a.completes_at = std::min(a.completes_at, place_of_move[move.next_fetch]);
    a.uses = {{fetch ? move.home : move.copy, Access::read},
              {fetch ? move.copy : move.home, move.again && !home.persistent ? Access::accumulate : Access::write}};
    return a;
  }

  Schedule& s_;
  const OffloadSettings& offload_;
  std::vector<std::vector<UseAt>> uses_;  // of each value, in the order of the list
  std::vector<int64_t> time_;  // before each action
  int64_t passed_ = 0;
  std::vector<Move> moves_;
  std::map<std::pair<int, int>, int> evicted_at_;  // copy, the action before which its Evict stands -> move
  std::map<int, int> copies_;
};

}  // namespace

Memory memory_of(Tier tier) {
  return tier == Tier::none ? Memory::own : tier == Tier::cpu ? Memory::host : Memory::disk;
}

void move_values(Schedule& schedule, const OffloadSettings& offload) {
  if (offload.any()) Mover(schedule, offload).run();
}

}  // namespace trireme::schedule
