#include "interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "trireme/schedule/placement.h"

namespace trireme::schedule {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ull ^ (b + 0x632BE59BD9B4E019ull + (a << 6));
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
uint64_t hash_of(std::initializer_list<int64_t> parts) {
  uint64_t h = 1;
  for (int64_t p : parts) h = mix(h, static_cast<uint64_t>(p));
  return h;
}
enum Salt : int64_t { kInitial = 100, kUnwritten, kTorn, kBusy, kGone, kMade, kGathered };

}  // namespace

void SymbolicBytes::write(int64_t offset, int64_t size, uint64_t content) {
  if (size == 0) return;
  const int64_t end = offset + size;
  auto it = pieces_.upper_bound(offset);
  if (it != pieces_.begin()) --it;
  while (it != pieces_.end() && it->first < end) {
    const int64_t begin = it->first;
    const Piece old = it->second;
    if (old.end <= offset) {
      ++it;
      continue;
    }
    it = pieces_.erase(it);
    if (begin < offset) pieces_[begin] = {offset, old.content, old.origin, old.size};
    if (old.end > end) pieces_[end] = {old.end, old.content, old.origin, old.size};
  }
  pieces_[offset] = {end, content, offset, size};
}

uint64_t SymbolicBytes::read(int64_t offset, int64_t size) const {
  if (size == 0) return 0;
  auto it = pieces_.upper_bound(offset);
  if (it != pieces_.begin()) --it;
  uint64_t torn = hash_of({kUnwritten, size});
  for (; it != pieces_.end() && it->first < offset + size; ++it) {
    const Piece& p = it->second;
    if (p.end <= offset) continue;
    if (it->first <= offset && p.end >= offset + size && p.origin == offset && p.size == size) return p.content;
    torn = mix(torn, hash_of({kTorn, std::max(it->first, offset) - offset, std::min(p.end, offset + size) - offset,
                              static_cast<int64_t>(p.content), p.origin - offset}));
  }
  return torn;
}

namespace {

bool writes(Access access) { return access == Access::write || access == Access::accumulate; }

struct Running {
  int index;
  size_t ordinal = 0;               // among the posts of its queue
  int completes_at = 0;
  std::vector<uint64_t> inputs;     // by use; 0 where nothing is read
  uint64_t contribution = 0;        // to a collective or message
};

class Rank {
 public:
  SymbolicBytes memory[kNumMemories];
  int next = 0;
  uint64_t scale = 0;               // Clip's factor
  uint64_t squares = 0;             // of gradients that have left; sums of squares know no order
  std::vector<Running> pending;
  std::map<Queue, std::vector<Running>> posts;
  // A queue keeps its own order: several of its actions may be on their way to one value, and each adds to what the
  // one before it leaves. (queue, value) -> how many are under way, and the content so far.
  struct Line {
    int under_way = 0;
    uint64_t content = 0;
  };
  std::map<std::pair<Queue, int>, Line> lines;
};

class Interpreter {
 public:
  explicit Interpreter(const std::vector<RankProgram>& programs) : programs_(programs), ranks_(programs.size()) {
    for (int r = 0; r < count(); ++r)
      for (const Value& v : list(r).values)
        if (v.persistent) write(r, v, hash_of({kInitial, r, static_cast<int>(v.kind), v.owner}));
  }

  Outcome run() {
    bool moved = true;
    while (moved && out_.trouble.empty()) {
      moved = false;
      for (int r = 0; r < count(); ++r)
        while (out_.trouble.empty() && advance(r)) moved = true;
    }
    for (int r = 0; r < count(); ++r) {
      const bool ended = ranks_[r].next == length(r) && ranks_[r].pending.empty();
      if (!ended) trouble(r, std::min(ranks_[r].next, length(r) - 1), "never starts, or waits for ever");
      auto& results = out_.results.emplace_back();
      for (const Value& v : list(r).values)
        if (v.persistent) results.push_back(read(r, v));
    }
    return std::move(out_);
  }

 private:
  int count() const { return static_cast<int>(ranks_.size()); }
  const Schedule& list(int rank) const { return *programs_[rank].schedule; }
  int length(int rank) const { return static_cast<int>(list(rank).actions.size()); }
  const Action& action(int rank, int index) const { return list(rank).actions[index]; }
  uint64_t read(int rank, const Value& v) const {
    return ranks_[rank].memory[static_cast<int>(v.memory)].read(v.offset, v.bytes);
  }
  void write(int rank, const Value& v, uint64_t content) {
    ranks_[rank].memory[static_cast<int>(v.memory)].write(v.offset, v.bytes, content);
  }
  void trouble(int rank, int index, const char* what) {
    if (out_.trouble.empty())
      out_.trouble = fmt::format("rank {}: #{} {} {}", rank, index, describe(list(rank), action(rank, index)), what);
  }
  // What lies in an output while its action is under way.
  uint64_t busy(int rank, int index, size_t use) const {
    const Action& a = action(rank, index);
    if (a.queue.kind == QueueKind::compute) return hash_of({kBusy, rank, index, static_cast<int64_t>(use)});
    return hash_of({kBusy, rank, static_cast<int>(a.queue.kind), a.queue.peer, a.queue.lane, a.uses[use].value});
  }

  // One action further, or one completion; false when neither can happen now.
  bool advance(int rank) {
    Rank& state = ranks_[rank];
    for (size_t i = 0; i < state.pending.size(); ++i) {
      if (state.pending[i].completes_at > state.next && state.next < length(rank)) continue;
      const Queue& queue = action(rank, state.pending[i].index).queue;  // what is before it there has to end first
      i = static_cast<size_t>(std::find_if(state.pending.begin(), state.pending.end(),
                                           [&](const Running& p) { return action(rank, p.index).queue == queue; }) -
                              state.pending.begin());
      if (!partners_posted(rank, state.pending[i])) return false;
      const Running done = std::move(state.pending[i]);
      state.pending.erase(state.pending.begin() + static_cast<std::ptrdiff_t>(i));
      finish(rank, done);
      return true;
    }
    if (state.next >= length(rank)) return false;
    Running a = begin(rank, state.next);
    const Action& what = action(rank, state.next++);
    if (what.queue.kind == QueueKind::compute) {
      finish(rank, a);
      return true;
    }
    auto& queue = state.posts[what.queue];
    a.ordinal = queue.size();
    a.completes_at = std::max(what.completes_at, a.index + 1);
    queue.push_back(a);
    state.pending.push_back(std::move(a));
    return true;
  }

  Running begin(int rank, int index) {
    const Action& a = action(rank, index);
    const auto& values = list(rank).values;
    Running running{.index = index, .inputs = std::vector<uint64_t>(a.uses.size(), 0)};
    for (size_t u = 0; u < a.uses.size(); ++u)
      if (a.uses[u].access != Access::write) running.inputs[u] = read(rank, values[a.uses[u].value]);
    for (size_t u = 0; u < a.uses.size(); ++u) {
      if (!writes(a.uses[u].access)) continue;
      const Value& v = values[a.uses[u].value];
      if (a.queue.kind != QueueKind::compute)
        if (Rank::Line& line = ranks_[rank].lines[{a.queue, a.uses[u].value}]; line.under_way++ == 0)
          line.content = read(rank, v);
      write(rank, v, busy(rank, index, u));
    }
    for (size_t u = 0; u < a.uses.size(); ++u) {
      const Value& v = values[a.uses[u].value];
      if (v.bytes == 0 || (a.uses[u].access == Access::consume && taken_over(list(rank), a, a.uses[u].value))) continue;
      const uint64_t expected = writes(a.uses[u].access) ? busy(rank, index, u) : running.inputs[u];
      if (read(rank, v) != expected) trouble(rank, index, "writes over its own values");
    }
    running.contribution = contribution(rank, running);
    return running;
  }

  static bool taken_over(const Schedule& s, const Action& a, int value) {
    return std::any_of(a.uses.begin(), a.uses.end(), [&](const Use& u) {
      return u.access == Access::write && s.values[u.value].takes_over == value;
    });
  }

  // What the others get: what is only read, or else what the exchange replaces.
  uint64_t contribution(int rank, const Running& running) const {
    const Action& a = action(rank, running.index);
    if (a.kind == ActionKind::gather_norm) return ranks_[rank].squares + squares(rank, running);
    uint64_t all = 0, one = 0;
    int reads = 0;
    for (size_t u = 0; u < a.uses.size(); ++u)
      if (a.uses[u].access == Access::read) all = mix(all, one = running.inputs[u]), ++reads;
    if (reads > 0) return reads == 1 ? one : all;
    for (size_t u = 0; u < a.uses.size(); ++u)
      if (a.uses[u].access == Access::accumulate) return running.inputs[u];
    return 0;
  }

  uint64_t squares(int rank, const Running& running) const {
    uint64_t sum = 0;
    const Action& a = action(rank, running.index);
    for (size_t u = 0; u < a.uses.size(); ++u)
      if (a.uses[u].access == Access::read) sum += mix(1, running.inputs[u]);
    return sum;
  }

  struct Partner {
    int rank;
    Queue queue;
  };
  std::vector<Partner> partners(int rank, const Queue& queue) const {
    const RankProgram& program = programs_[rank];
    if (queue.kind == QueueKind::send || queue.kind == QueueKind::receive) {
      const auto& stages = program.stages;
      if (queue.peer >= static_cast<int>(stages.size())) return {{-1, queue}};
      const auto own = static_cast<int>(std::find(stages.begin(), stages.end(), rank) - stages.begin());
      const QueueKind other = queue.kind == QueueKind::send ? QueueKind::receive : QueueKind::send;
      return {{stages[queue.peer], Queue{other, own, queue.lane}}};
    }
    std::vector<Partner> all;
    if (const auto members = program.members.find(queue.kind); members != program.members.end())
      for (int m : members->second) all.push_back({m, queue});
    if (all.size() < 2) return {{rank, queue}};
    return all;
  }
  const Running* post(const Partner& p, size_t ordinal) const {
    if (p.rank < 0) return nullptr;
    const auto queue = ranks_[p.rank].posts.find(p.queue);
    return queue == ranks_[p.rank].posts.end() || queue->second.size() <= ordinal ? nullptr : &queue->second[ordinal];
  }
  bool partners_posted(int rank, const Running& running) const {
    for (const Partner& p : partners(rank, action(rank, running.index).queue))
      if (post(p, running.ordinal) == nullptr) return false;
    return true;
  }

  // What all members' contributions make together.
  uint64_t exchanged(int rank, const Running& running) {
    const Action& a = action(rank, running.index);
    uint64_t all = hash_of({kGathered, static_cast<int>(a.kind)});
    for (const Partner& p : partners(rank, a.queue)) {
      const Running& other = *post(p, running.ordinal);
      const Action& b = action(p.rank, other.index);
      if (b.owner != a.owner || b.bytes != a.bytes || (p.queue.kind == a.queue.kind && b.kind != a.kind))
        trouble(rank, running.index, "meets another exchange");
      if (a.kind == ActionKind::receive) return other.contribution;
      all = mix(all, other.contribution);
    }
    return all;
  }

  void finish(int rank, const Running& running) {
    const Action& a = action(rank, running.index);
    const auto& values = list(rank).values;
    for (size_t u = 0; u < a.uses.size(); ++u) {
      const Value& v = values[a.uses[u].value];
      if (v.bytes == 0 || a.uses[u].access == Access::consume) continue;
      const uint64_t expected = writes(a.uses[u].access) ? busy(rank, running.index, u) : running.inputs[u];
      if (read(rank, v) != expected) trouble(rank, running.index, "has its values changed while it runs");
    }
    const uint64_t made = a.queue.kind == QueueKind::compute ? computed(rank, running) : exchanged(rank, running);
    if (a.kind == ActionKind::clip) ranks_[rank].scale = made;
    if (a.kind == ActionKind::sum_squares) ranks_[rank].squares += squares(rank, running);
    for (size_t u = 0; u < a.uses.size(); ++u)  // what is consumed is gone, before others take its bytes
      if (a.uses[u].access == Access::consume)
        write(rank, values[a.uses[u].value], hash_of({kGone, rank, running.index, static_cast<int64_t>(u)}));
    for (size_t u = 0; u < a.uses.size(); ++u) {
      if (!writes(a.uses[u].access)) continue;
      const Value& v = values[a.uses[u].value];
      if (a.queue.kind == QueueKind::compute) {
        write(rank, v, output(rank, running, u, running.inputs[u], made));
        continue;
      }
      Rank::Line& line = ranks_[rank].lines[{a.queue, a.uses[u].value}];
      line.content = output(rank, running, u, line.content, made);
      if (--line.under_way == 0) write(rank, v, line.content);
    }
  }

  // Sums whose old part makes nothing but the sum itself.
  static bool is_sum(ValueKind kind) {
    return kind == ValueKind::loss || kind == ValueKind::gradient_slot || kind == ValueKind::gradient ||
           kind == ValueKind::local_gradient;
  }

  uint64_t computed(int rank, const Running& running) const {
    const Action& a = action(rank, running.index);
    const bool of_micro_batch = is_computation(a.kind) || a.kind == ActionKind::load_batch;
    uint64_t h = hash_of({kMade, static_cast<int>(a.kind), a.owner, of_micro_batch ? a.micro_batch : -1});
    if (a.kind == ActionKind::load_batch) h = mix(h, static_cast<uint64_t>(rank));
    if (a.kind == ActionKind::step) h = mix(h, ranks_[rank].scale);
    for (size_t u = 0; u < a.uses.size(); ++u) {
      const bool sum = a.uses[u].access == Access::accumulate && is_sum(list(rank).values[a.uses[u].value].kind);
      if (a.uses[u].access != Access::write && !sum) h = mix(h, running.inputs[u]);
    }
    return h;
  }

  uint64_t output(int rank, const Running& running, size_t use, uint64_t before, uint64_t made) const {
    const Action& a = action(rank, running.index);
    const Use& u = a.uses[use];
    const Value& v = list(rank).values[u.value];
    if (a.kind == ActionKind::receive) return made;
    if (is_transfer(a.kind)) return running.inputs[0];
    if (v.kind == ValueKind::norm_partials) return running.contribution;
    if (v.kind == ValueKind::loss) return before + made;  // each micro-batch has a place of its own
    if (a.queue.kind != QueueKind::compute) return a.accumulate ? mix(before, made) : made;
    const uint64_t own = mix(made, hash_of({static_cast<int>(v.kind), v.owner, v.micro_batch, v.instance}));
    const bool onto = u.access == Access::accumulate && is_sum(v.kind);
    // A rank's own sum of all micro-batches has no order that another rank would have to keep.
    if (onto && v.kind != ValueKind::gradient_slot) return before + own;
    return onto ? mix(before, own) : own;
  }

  const std::vector<RankProgram>& programs_;
  std::vector<Rank> ranks_;
  Outcome out_;
};

}  // namespace

Outcome interpret(const std::vector<RankProgram>& programs) { return Interpreter(programs).run(); }

}  // namespace trireme::schedule
