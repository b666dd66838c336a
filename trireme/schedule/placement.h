// Placement: every value of a list gets an offset in its memory region, so that values alive at the same time share no
// bytes. The engine allocates exactly the result (the arena): its size is the peak memory.
//
// Method    greedy, in several orders: by bytes, by bytes x lifetime, by start, and by time with short-lived values
//           from the top down. Each order is tried again with the topmost values placed earlier; the best is kept
// Ranks     lists of ranks that share memory differ by what each rank owns. Lives there are counted in actions that all
//           of them have, so a value has the same offset on each of them
// Cost      O(values x values alive at once) a try, at most 160 tries; milliseconds for a step
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/round_up.h"
#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

constexpr int64_t kValueAlignment = 64;  ///< bytes
constexpr int64_t aligned(int64_t bytes) { return base::round_up(bytes, kValueAlignment); }
constexpr int kNumMemories = 6;
/// Blocks of files that are read and written past the system's cache begin at multiples of this, in memory too.
constexpr int64_t kDiskAlignment = 4096;

/// Sizes of the memory regions.
struct Arena {
  std::array<int64_t, kNumMemories> bytes{};  ///< per Memory; persistent and transient values
  std::array<int64_t, kNumMemories> persistent{};  ///< of these, bytes of persistent values, which come first
  /// Of the rank's memory, without the tiers.
  int64_t total() const { return private_bytes() + host_shared_bytes(); }
  /// With what rests in host memory.
  int64_t resident() const { return total() + of(Memory::host); }
  int64_t private_bytes() const { return of(Memory::own) + of(Memory::symmetric); }
  int64_t host_shared_bytes() const { return of(Memory::host_shared) + of(Memory::host_reduced); }
  int64_t of(Memory memory) const { return bytes[static_cast<int>(memory)]; }
};

/// Sets first, last and offset of every value of every list. A persistent value has the same offset in all lists.
/// Returns the regions' sizes, the maximum over the lists. `guard_bytes` stay free after every transient value
/// (debugging).
Arena place(std::span<Schedule> schedules, int64_t guard_bytes = 0);

/// As place(), but by bytes alone, without a search for a better order: a fraction of its time for a few percent more
/// bytes. Enough to see that a list does not need the most memory of several, because no region is smaller than place()
/// makes it.
Arena place_quickly(std::span<Schedule> schedules, int64_t guard_bytes = 0);

/// Bytes alive at each action (persistent values included), per memory, computed from the uses, not from the offsets.
/// No placement can be smaller than their maximum.
std::vector<std::array<int64_t, kNumMemories>> live_bytes(const Schedule& schedule);

/// Of the memories that are no tiers.
int64_t own_bytes(const std::array<int64_t, kNumMemories>& live);

/// Index of the action with the most live bytes, without the tiers.
int peak_action(const Schedule& schedule);

}  // namespace trireme::schedule
