#include "trireme/schedule/placement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/round_up.h"
#include "trireme/base/side_by_side.h"

namespace trireme::schedule {
namespace {

void set_lifetimes(Schedule& s) {
  for (Value& v : s.values) v.first = v.last = -1;
  for (size_t i = 0; i < s.actions.size(); ++i) {
    const Action& a = s.actions[i];
    const int end = a.completes_at > static_cast<int>(i) ? a.completes_at - 1 : static_cast<int>(i);
    for (const Use& u : a.uses) {
      Value& v = s.values[u.value];
      if (v.first < 0) v.first = static_cast<int>(i);
      v.last = std::max(v.last, end);
    }
  }
  const int whole = static_cast<int>(s.actions.size()) - 1;
  for (Value& v : s.values)
    if (v.persistent || v.held) v.first = 0, v.last = whole;
}

// Whether the ranks that share memory all have the action. Which values a rank moves and steps depends on what it owns,
// and so does the number of these actions.
bool is_on_all_ranks(ActionKind kind) {
  return !is_transfer(kind) && kind != ActionKind::sum_squares && kind != ActionKind::step;
}

// Of each action, how many actions that all ranks have stand before it; one that only some ranks have counts with the
// action before it. All ranks count lives in shared memory like this, so they place these values alike. Lives that
// overlap in the list overlap in this time too, because it never runs backward.
std::vector<int> common_time(const Schedule& s) {
  std::vector<int> time;
  int passed = -1;
  for (const Action& a : s.actions) {
    if (is_on_all_ranks(a.kind)) ++passed;
    time.push_back(std::max(0, passed));
  }
  return time;
}

// Values that take over each other's bytes form one item.
struct Item {
  std::vector<int> values;
  int first = std::numeric_limits<int>::max(), last = -1;
  int64_t bytes = 0, alignment = kValueAlignment;
};

std::vector<Item> items_of(const Schedule& s, Memory memory) {
  std::vector<int> item_of(s.values.size(), -1);
  std::vector<Item> items;
  for (size_t i = 0; i < s.values.size(); ++i) {
    const Value& v = s.values[i];
    if (v.persistent || v.memory != memory || v.first < 0) continue;
    int index = v.takes_over >= 0 ? item_of[v.takes_over] : -1;
    if (index < 0) {
      index = static_cast<int>(items.size());
      items.emplace_back();
    }
    Item& item = items[index];
    item_of[i] = index;
    item.values.push_back(static_cast<int>(i));
    item.first = std::min(item.first, v.first);
    item.last = std::max(item.last, v.last);
    item.bytes = std::max(item.bytes, aligned(v.bytes));
    item.alignment = std::max(item.alignment, v.alignment);
  }
  return items;
}

// Places short-lived items from a given height down, so that they leave no holes among the others.
struct TopDown {
  int longest_life = 0;  ///< in actions; 0: no item is placed there
  int64_t height = 0;
};

/// Where an item lies.
struct Extent {
  int64_t offset, bytes;
};

// Those of some items, in the order of their offsets.
using Taken = std::span<const Extent>;

// The tightest gap that is large enough, or the place on top of everything.
int64_t lowest_offset(Taken taken, int64_t bytes, int64_t alignment) {
  int64_t end = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
  for (const auto& [at, size] : taken) {
    if (at - end >= bytes) {  // seldom, and then with a division
      const int64_t offset = base::round_up(end, alignment), gap = at - offset;
      if (gap >= bytes && gap < best_gap) best = offset, best_gap = gap;
    }
    end = std::max(end, at + size);
  }
  return best >= 0 ? best : base::round_up(end, alignment);
}

// The highest gap below `height`; -1 if there is none.
int64_t highest_offset(Taken taken, int64_t bytes, int64_t height, int64_t alignment) {
  const auto below = [&](int64_t end, int64_t lowest) -> int64_t {
    if (end - bytes < lowest) return -1;
    const int64_t begin = (end - bytes) / alignment * alignment;
    return begin >= lowest ? begin : -1;
  };
  int64_t offset = 0, best = -1;
  for (const auto& [at, size] : taken) {
    best = std::max(best, below(std::min(at, height), offset));
    offset = std::max(offset, at + size);
  }
  return std::max(best, below(height, offset));
}

// Sorts by offset: first into about as many buckets of equal width as there are extents, then within each bucket. By
// comparisons alone it would take several times as long, because a processor cannot guess how they end.
class OffsetSort {
 public:
  explicit OffsetSort(size_t most) : sorted_(most) {}

  /// The same extents in order, until the next call.
  Taken operator()(Taken extents) {
    int64_t all = 0;
    for (const Extent& extent : extents) all |= extent.offset;
    const size_t buckets = std::bit_ceil(extents.size() + 1);
    const int shift =
        std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(all))) - std::countr_zero(buckets));
    const auto bucket = [shift](const Extent& extent) { return static_cast<size_t>(extent.offset >> shift); };
    ends_.assign(buckets, 0);
    for (const Extent& extent : extents) ++ends_[bucket(extent)];
    std::exclusive_scan(ends_.begin(), ends_.end(), ends_.begin(), uint32_t{0});
    for (const Extent& extent : extents) sorted_[ends_[bucket(extent)]++] = extent;
    const std::span<Extent> sorted = std::span(sorted_).first(extents.size());
    uint32_t begin = 0;
    for (const uint32_t end : ends_) {
      if (end - begin > 1) std::ranges::sort(sorted.subspan(begin, end - begin), {}, &Extent::offset);
      begin = end;
    }
    return sorted;
  }

 private:
  std::vector<Extent> sorted_;
  std::vector<uint32_t> ends_;  // of buckets
};

// The items that are placed, by the time of their lives.
class Overlaps {
 public:
  Overlaps(const std::vector<Item>& items, int num_actions)
      : items_(items),
        num_actions_(static_cast<size_t>(num_actions)),
        alive_(2 * num_actions_),
        begun_(num_actions_ / kStep + 1),
        found_(items.size()),
        sort_(items.size()) {}

  void add(int index, int64_t offset) {
    const Item& item = items_[index];
    const Extent extent{offset, item.bytes};
    for (size_t l = num_actions_ + item.first, r = num_actions_ + item.last + 1; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) alive_[l++].push_back(extent);
      if (r % 2 == 1) alive_[--r].push_back(extent);
    }
    const Place place{extent, item.first, item.last};
    begun_[static_cast<size_t>(item.first) / kStep].push_back(place);
    auto block = std::upper_bound(blocks_.begin() + 1, blocks_.end(), offset,
                                  [](int64_t at, const Block& later) { return at < later.front().extent.offset; });
    --block;
    block->insert(std::ranges::upper_bound(*block, offset, {}, [](const Place& at) { return at.extent.offset; }),
                  place);
    ++num_places_;
    if (block->size() < kBlock) return;
    const auto half = block->begin() + kBlock / 2;
    Block upper(half, block->end());
    block->erase(half, block->end());
    blocks_.insert(block + 1, std::move(upper));
  }

  /// Of each placed item that lives at the same time as `index`, from the lowest on; until the next call. They are
  /// those that live when it begins, and those that begin later in its life. If they are many, all items are asked.
  Taken find(int index) {
    const Item& item = items_[index];
    const size_t first_step = static_cast<size_t>(item.first) / kStep,
                 last_step = static_cast<size_t>(item.last) / kStep;
    size_t entries = 0, count = 0;
    for (size_t node = num_actions_ + item.first; node >= 1; node /= 2) entries += alive_[node].size();
    for (size_t step = first_step; step <= last_step && entries * kSortedCost <= num_places_; ++step)
      entries += begun_[step].size();
    if (entries * kSortedCost > num_places_) {
      for (const Block& block : blocks_)
        for (const Place& place : block) {  // without a branch that nobody can foresee
          found_[count] = place.extent;
          count += static_cast<size_t>(static_cast<int>(place.first <= item.last) &
                                       static_cast<int>(item.first <= place.last));
        }
      return Taken(found_).first(count);
    }
    for (size_t node = num_actions_ + item.first; node >= 1; node /= 2)
      for (const Extent& extent : alive_[node]) found_[count++] = extent;
    for (size_t step = first_step; step <= last_step; ++step)
      for (const Place& place : begun_[step])
        if (item.first < place.first && place.first <= item.last) found_[count++] = place.extent;
    return sort_(Taken(found_).first(count));
  }

 private:
  static constexpr size_t kSortedCost = 8;  ///< of an entry that has to be sorted, in entries that are in order
  static constexpr size_t kStep = 8;  ///< actions
  static constexpr size_t kBlock = 512;
  /// A placed item, and its first and last action.
  struct Place {
    Extent extent;
    int first, last;
  };
  using Block = std::vector<Place>;

  const std::vector<Item>& items_;
  size_t num_actions_;
  // A tree over the actions. Action t is the leaf num_actions_ + t, and the parent of node n is n / 2. An item lies in
  // the fewest nodes that cover its life: of the nodes from a leaf of its life up, in exactly one.
  std::vector<std::vector<Extent>> alive_;
  std::vector<std::vector<Place>> begun_;  // in each step of kStep actions
  std::vector<Block> blocks_{1};  // by offset, in blocks of fewer than kBlock; only the first may be empty
  size_t num_places_ = 0;
  std::vector<Extent> found_;
  OffsetSort sort_;
};

// Items placed in one order.
struct Attempt {
  int64_t size = 0;  ///< of the region; above the limit: given up
  std::vector<int64_t> offsets;  ///< of each item; -1: not placed
};

// The first items of an order, if they were the first of another one too: they keep their offsets.
struct Known {
  size_t count = 0;
  std::span<const int64_t> offsets = {};
};

// An offset for each item in the given order. Stops as soon as the region exceeds `limit`.
Attempt place_in_order(const std::vector<Item>& items, const std::vector<int>& order, int num_actions,
                       const TopDown& top, int64_t limit, const Known& known) {
  Overlaps placed(items, num_actions);
  Attempt attempt{.offsets = std::vector<int64_t>(items.size(), -1)};
  for (size_t i = 0; i < order.size(); ++i) {
    const int index = order[i];
    const Item& item = items[index];
    int64_t& offset = attempt.offsets[index];
    if (i < known.count) {
      offset = known.offsets[index];
    } else {
      const Taken taken = placed.find(index);
      if (item.last - item.first < top.longest_life)
        offset = highest_offset(taken, item.bytes, top.height, item.alignment);
      if (offset < 0) offset = lowest_offset(taken, item.bytes, item.alignment);
    }
    attempt.size = std::max(attempt.size, offset + item.bytes);
    if (attempt.size > limit) break;
    placed.add(index, offset);
  }
  return attempt;
}

// The largest sum of bytes alive at the same time.
int64_t most_alive(const std::vector<Item>& items, int num_actions) {
  std::vector<int64_t> change(num_actions + 1, 0);
  for (const Item& item : items) change[item.first] += item.bytes, change[item.last + 1] -= item.bytes;
  int64_t now = 0, most = 0;
  for (int64_t c : change) most = std::max(most, now += c);
  return most;
}

enum class Effort { once, full };

// So many items are placed in several orders side by side.
constexpr size_t kManyItems = 2000;

struct Order {
  std::vector<int> items;
  TopDown top = {};
};

// The best placement found so far, and the search for a better one (placement.h). It ends when the placement is as low
// as possible, or when its budget is spent. What it finds does not depend on the number of threads.
class Search {
 public:
  Search(const std::vector<Item>& items, int num_actions)
      : items_(items), num_actions_(num_actions), bound_(most_alive(items, num_actions)) {}

  int64_t run_once() {
    take(attempt({by_bytes()}, best_));
    return best_;
  }

  int64_t run() {
    const std::function<double(const Item&)> keys[] = {
        [](const Item& i) { return double(i.bytes) * double(i.last - i.first + 1); },
        [](const Item& i) { return double(i.last - i.first + 1) * 1e15 + double(i.bytes); },
        [](const Item& i) { return -double(i.first) * 1e15 + double(i.bytes); },
    };
    std::vector<Order> orders = {{by_bytes()}};
    for (const auto& key : keys) {
      std::vector<double> keyed;
      for (const Item& item : items_) keyed.push_back(key(item));
      orders.push_back({sorted_items([&](int a, int b) { return keyed[a] > keyed[b]; })});
    }
    const int first = try_orders(orders);
    improve(orders[static_cast<size_t>(first)]);
    // In the order of time, short lives from the top down.
    const std::vector<int> by_time = sorted_items([&](int a, int b) {
      return std::pair(items_[a].first, -items_[a].bytes) < std::pair(items_[b].first, -items_[b].bytes);
    });
    Order best_order;
    for (int life = 1; life <= 64 && !low_enough(); life *= 2) {
      orders.clear();
      for (double height : {1.0, 1.005, 1.01, 1.02})
        orders.push_back(
            {by_time, {life, static_cast<int64_t>(height * double(bound_)) / kValueAlignment * kValueAlignment}});
      if (const int better = try_orders(orders); better >= 0) best_order = orders[static_cast<size_t>(better)];
    }
    if (!best_order.items.empty()) improve(best_order);
    return best_;
  }
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  template <class Less>
  std::vector<int> sorted_items(const Less& less) const {
    std::vector<int> order(items_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), less);
    return order;
  }

  std::vector<int> by_bytes() const {
    return sorted_items([&](int a, int b) { return items_[a].bytes > items_[b].bytes; });
  }

  // Repeatedly moves the topmost items to an earlier place in the order, and keeps the order unless the result is
  // higher.
  void improve(Order order) {
    constexpr int64_t kBudget = 60'000, kMostRounds = 60;  // items placed, rounds
    const int64_t rounds = std::min(kMostRounds, kBudget / static_cast<int64_t>(items_.size()));
    std::minstd_rand random(1);
    Attempt kept = attempt(order, std::numeric_limits<int64_t>::max());
    take(kept);
    for (int64_t round = 0; round < rounds && !low_enough(); ++round) {
      Order changed = order;
      int64_t same = std::ssize(changed.items);
      for (int64_t i = 0; i < std::ssize(changed.items); ++i) {
        if (kept.offsets[changed.items[i]] + items_[changed.items[i]].bytes != kept.size) continue;
        const auto to = static_cast<int64_t>(random() % static_cast<uint64_t>(i + 1));
        std::rotate(changed.items.begin() + to, changed.items.begin() + i, changed.items.begin() + i + 1);
        same = std::min(same, to);
      }
      Attempt tried = attempt(changed, kept.size, {static_cast<size_t>(same), kept.offsets});
      if (tried.size > kept.size) continue;
      take(tried);
      order = std::move(changed);
      kept = std::move(tried);
    }
  }

  bool low_enough() const { return double(best_) <= 1.001 * double(bound_); }
  Attempt attempt(const Order& order, int64_t limit, const Known& known = {}) const {
    return place_in_order(items_, order.items, num_actions_, order.top, limit, known);
  }
  // Whether it is better than the best so far.
  bool take(const Attempt& tried) {
    if (tried.size >= best_) return false;
    best_ = tried.size;
    offsets_ = tried.offsets;
    return true;
  }
  // The first of those that are better than all others, and than the best so far; -1: none is. An order is given up
  // where it becomes higher than the best so far.
  int try_orders(const std::vector<Order>& orders) {
    std::vector<Attempt> tried(orders.size());
    const auto try_one = [&](size_t i) { tried[i] = attempt(orders[i], best_); };
    if (items_.size() >= kManyItems)
      base::side_by_side(orders.size(), try_one);
    else
      for (size_t i = 0; i < orders.size(); ++i) try_one(i);
    int better = -1;
    for (size_t i = 0; i < orders.size(); ++i)
      if (take(tried[i])) better = static_cast<int>(i);
    return better;
  }

  const std::vector<Item>& items_;
  int num_actions_;
  int64_t bound_, best_ = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets_;
};

int64_t place_region(Schedule& s, Memory memory, int64_t base, int64_t guard_bytes, Effort effort) {
  std::vector<Item> items = items_of(s, memory);
  for (Item& item : items) item.bytes += aligned(guard_bytes);
  if (items.empty()) return base;
  auto num_actions = static_cast<int>(s.actions.size());
  if (is_shared(memory)) {
    const std::vector<int> time = common_time(s);
    for (Item& item : items) item.first = time[item.first], item.last = time[item.last];
    num_actions = time.back() + 1;
  }
  for (const Item& item : items) base = base::round_up(base, item.alignment);
  Search search(items, num_actions);
  const int64_t size = effort == Effort::full ? search.run() : search.run_once();
  for (size_t i = 0; i < items.size(); ++i)
    for (int v : items[i].values) s.values[v].offset = base + search.offsets()[i];
  return base + size;
}

Arena place_with(std::span<Schedule> schedules, int64_t guard_bytes, Effort effort) {
  Arena arena;
  for (Schedule& s : schedules) {
    set_lifetimes(s);
    std::array<int64_t, kNumMemories> at{};
    for (Value& v : s.values) {
      if (!v.persistent) continue;
      int64_t& offset = at[static_cast<int>(v.memory)];
      v.offset = base::round_up(offset, v.alignment);
      offset = v.offset + aligned(v.bytes);
    }
    check_invariant(&s == &schedules[0] || at == arena.persistent,
                    "lists of one arena have the same persistent values");
    arena.persistent = at;
    for (int m = 0; m < kNumMemories; ++m)
      arena.bytes[m] = std::max(arena.bytes[m], place_region(s, static_cast<Memory>(m), at[m], guard_bytes, effort));
  }
  return arena;
}

}  // namespace

Arena place(std::span<Schedule> schedules, int64_t guard_bytes) {
  return place_with(schedules, guard_bytes, Effort::full);
}

Arena place_quickly(std::span<Schedule> schedules, int64_t guard_bytes) {
  return place_with(schedules, guard_bytes, Effort::once);
}

}  // namespace trireme::schedule
