#include "mutation.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace trireme::schedule {
namespace {

bool is_message(const Action& a) { return a.kind == ActionKind::send || a.kind == ActionKind::receive; }

void insert(Schedule& s, int index, Action action) {
  for (Action& a : s.actions)
    if (a.completes_at >= index) ++a.completes_at;
  s.actions.insert(s.actions.begin() + index, std::move(action));
}

void erase(Schedule& s, int index) {
  s.actions.erase(s.actions.begin() + index);
  for (Action& a : s.actions)
    if (a.completes_at > index) --a.completes_at;
}

// Completions follow the actions that they wait for.
void move(Schedule& s, int from, int to) {
  std::vector<int> position(s.actions.size() + 1);
  for (int i = 0; i <= static_cast<int>(s.actions.size()); ++i) position[i] = i;
  if (from < to) std::rotate(s.actions.begin() + from, s.actions.begin() + from + 1, s.actions.begin() + to + 1);
  if (from > to) std::rotate(s.actions.begin() + to, s.actions.begin() + from, s.actions.begin() + from + 1);
  for (int i = std::min(from, to); i <= std::max(from, to); ++i) position[i] = i + (from < to ? -1 : 1);
  position[from] = to;
  for (Action& a : s.actions)
    if (a.completes_at >= 0) a.completes_at = position[a.completes_at];
}

void count_lives(Schedule& s) {
  for (Value& v : s.values)
    if (!v.persistent) v.first = v.last = -1;
  const int count = static_cast<int>(s.actions.size());
  for (int i = 0; i < count; ++i)
    for (const Use& u : s.actions[i].uses) {
      Value& v = s.values[u.value];
      if (v.persistent) continue;
      if (v.first < 0) v.first = i;
      v.last = std::max({v.last, i, std::min(s.actions[i].completes_at, count) - 1});
    }
  for (Value& v : s.values)
    if (v.persistent) v.last = count - 1;
}

class Mutator {
 public:
  Mutator(Schedule& list, int num_peers, std::mt19937& random)
      : list_(list), before_(list), num_peers_(num_peers), random_(random) {}

  std::optional<Mutation> run(Damage damage) {
    out_.damage = damage;
    if (!apply(damage)) return std::nullopt;
    count_lives(list_);
    return std::move(out_);
  }

 private:
  int below(int n) { return n <= 0 ? 0 : static_cast<int>(random_() % static_cast<unsigned>(n)); }
  int count() const { return static_cast<int>(list_.actions.size()); }
  Action& action(int i) { return list_.actions[i]; }

  // The action's own name, its peer's, and those of who reads or writes its values beside it.
  void concern(const Action& a) {
    out_.names.insert(describe(before_, a));
    if (is_message(a)) {
      Action peer = a;
      peer.kind = a.kind == ActionKind::send ? ActionKind::receive : ActionKind::send;
      out_.names.insert(describe(before_, peer));
    }
    for (const Use& u : a.uses)
      if (const Value& v = before_.values[u.value];
          !v.persistent || v.kind == ValueKind::weights || v.kind == ValueKind::norm_all)
        concern_users(u.value);
  }
  void concern_users(int value) {
    for (const Action& a : before_.actions)
      for (const Use& u : a.uses)
        if (u.value == value) out_.names.insert(describe(before_, a));
  }
  void say(const Action& a, const std::string& what) {
    concern(a);
    out_.what += (out_.what.empty() ? "" : "; ") + describe(before_, a) + " " + what;
  }

  int pick(bool (*wanted)(const Action&)) {
    std::vector<int> all;
    for (int i = 0; i < count(); ++i)
      if (wanted(action(i))) all.push_back(i);
    return all.empty() ? -1 : all[below(static_cast<int>(all.size()))];
  }

  bool apply(Damage damage) {
    switch (damage) {
      case Damage::drop: {
        const int i = below(count());
        say(action(i), "dropped");
        erase(list_, i);
        return true;
      }
      case Damage::swap: {
        const int i = below(count() - 1);
        say(action(i), "swapped");
        say(action(i + 1), "with it");
        move(list_, i, i + 1);
        return true;
      }
      case Damage::move: {
        const int i = below(count());
        const int to = below(2) == 0 ? below(count()) : std::clamp(i + below(13) - 6, 0, count() - 1);
        if (i == to) return false;
        say(action(i), fmt::format("moved from #{} to #{}", i, to));
        move(list_, i, to);
        return true;
      }
      case Damage::duplicate: {
        const int i = below(count()), to = below(2) == 0 ? i + 1 : below(count() + 1);
        say(action(i), fmt::format("again at #{}", to));
        Action again = action(i);
        if (again.completes_at >= 0) again.completes_at = std::max(again.completes_at, to + 1);
        insert(list_, to, std::move(again));
        return true;
      }
      case Damage::accumulate: {
        const int i = pick([](const Action& a) {
          return a.kind == ActionKind::reduce_gradient || a.kind == ActionKind::all_reduce_gradient ||
                 writes_gradient(a.kind);
        });
        if (i < 0) return false;
        if (writes_gradient(action(i).kind)) return begin_or_add(i);
        say(action(i), "accumulates or not");
        action(i).accumulate = !action(i).accumulate;
        return true;
      }
      case Damage::complete_early:
      case Damage::complete_late:
        return recomplete(damage == Damage::complete_late);
      case Damage::overlap:
        return overlap();
      case Damage::swap_groups:
        return swap_groups();
      default:
        return retarget(damage);
    }
  }

  // A gradient that backward adds to is begun, or the other way round; or it is left out.
  bool begin_or_add(int i) {
    std::vector<Use>& uses = action(i).uses;
    const auto use = std::find_if(uses.begin(), uses.end(), [&](const Use& u) {
      const ValueKind kind = list_.values[u.value].kind;
      return kind == ValueKind::gradient_slot || kind == ValueKind::local_gradient || kind == ValueKind::gradient;
    });
    if (use == uses.end()) return false;
    say(action(i), "begins a gradient or adds to it");
    if (below(3) == 0)
      uses.erase(use);
    else
      use->access = use->access == Access::write ? Access::accumulate : Access::write;
    return true;
  }

  bool recomplete(bool late) {
    const int i = pick([](const Action& a) { return a.queue.kind != QueueKind::compute; });
    if (i < 0) return false;
    const int at = action(i).completes_at;
    int other = late ? std::max(at, i + 1) + 1 + below(below(2) == 0 ? 3 : count()) : i + below(at - i + 1);
    if (!late && below(4) == 0) other = -1;
    other = std::min(other, count());
    if (other == at || (!late && at < 0)) return false;
    say(action(i), fmt::format("at #{} completes at #{} instead of #{}", i, other, at));
    action(i).completes_at = other;
    return true;
  }

  bool overlap() {
    const int v = below(static_cast<int>(list_.values.size())), w = below(static_cast<int>(list_.values.size()));
    Value &moved = list_.values[v], &still = list_.values[w];
    if (v == w || moved.memory != still.memory || moved.first < 0 || still.first < 0) return false;
    if (moved.bytes == 0 || still.bytes == 0) return false;
    const int64_t offset = below(2) == 0 ? still.offset : still.offset + still.bytes / 128 * 64;
    if (offset == moved.offset) return false;
    out_.what = fmt::format("{} from {} onto {} at {}", moved.label, moved.offset, still.label, offset);
    moved.offset = offset;
    out_.names = {moved.label};
    return true;
  }

  bool swap_groups() {
    const int i = below(count());
    std::vector<int> others;
    for (int k = 0; k < count(); ++k)
      if (action(k).kind == action(i).kind && action(k).owner != action(i).owner) others.push_back(k);
    if (action(i).owner < 0 || others.empty()) return false;
    const int k = others[below(static_cast<int>(others.size()))];
    say(action(i), fmt::format("at #{} changes places", i));
    say(action(k), fmt::format("at #{}", k));
    std::swap(list_.actions[i], list_.actions[k]);
    std::swap(list_.actions[i].completes_at, list_.actions[k].completes_at);
    return true;
  }

  bool retarget(Damage damage) {
    const bool to_peer = damage == Damage::other_peer;
    const int i = to_peer ? pick(is_message) : below(count());
    if (i < 0) return false;
    const Action old = action(i);
    Action& a = action(i);
    if (damage == Damage::other_owner) {
      const auto names = std::max(list_.unit_names.size(), list_.group_names.size());
      a.owner = below(static_cast<int>(names));
    } else if (damage == Damage::other_batch) {
      a.micro_batch = below(4);
    } else if (to_peer) {
      if (below(3) == 0)
        a.queue.lane = 1 - a.queue.lane;
      else
        a.queue.peer = below(num_peers_ + 1);
    } else {
      const Action& other = action(below(count()));
      if (other.kind != a.kind) return false;
      a.owner = other.owner, a.micro_batch = other.micro_batch, a.uses = other.uses, a.bytes = other.bytes;
    }
    if (a.owner == old.owner && a.micro_batch == old.micro_batch && a.queue == old.queue) return false;
    say(old, fmt::format("at #{} becomes unit or group {}, micro-batch {}, {}", i, a.owner, a.micro_batch,
                         name_of(a.queue)));
    out_.names.insert(fmt::format("#{} {}", i, name_of(a.kind)));
    return true;
  }

  Schedule& list_;
  const Schedule before_;
  int num_peers_;
  std::mt19937& random_;
  Mutation out_;
};

}  // namespace

const char* name_of(Damage damage) {
  static constexpr const char* kNames[] = {
      "drop",         "swap",           "move",          "duplicate", "other owner", "other batch", "other peer",
      "other action", "complete early", "complete late", "overlap",   "swap groups", "accumulate"};
  return kNames[static_cast<int>(damage)];
}

std::optional<Mutation> mutate(Schedule& list, Damage damage, int num_peers, std::mt19937& random) {
  return Mutator(list, num_peers, random).run(damage);
}

}  // namespace trireme::schedule
