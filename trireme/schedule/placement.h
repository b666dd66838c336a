// Placement: every value of a list gets an offset in its memory region, so that values alive together never
// share bytes. What comes out is what is allocated: the arena's size is the peak memory.
//
// Method    offline, greedy in several orders (by bytes, by bytes x lifetime, by start) and by time with short lives
//           from the top down, each repeated with the items on top of the pile placed earlier; the best is kept
// Cost      O(values x values alive at once) a try, at most 160 tries; milliseconds for a step
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

constexpr int64_t kValueAlignment = 64;  ///< bytes
constexpr int kNumMemories = 4;

/// Sizes of the memory regions and what they are for.
struct Arena {
  std::array<int64_t, kNumMemories> bytes{};        ///< per Memory; persistent and transient parts together
  std::array<int64_t, kNumMemories> persistent{};   ///< the first so many bytes of each
  int64_t total() const { return private_bytes() + host_shared_bytes(); }
  int64_t private_bytes() const { return of(Memory::device) + of(Memory::symmetric); }
  int64_t host_shared_bytes() const { return of(Memory::host_shared) + of(Memory::host_reduced); }
  int64_t of(Memory memory) const { return bytes[static_cast<int>(memory)]; }
};

/// Sets first, last and offset of every value of every list, the persistent ones at the same offsets in all,
/// and returns the regions' sizes: the maximum over the lists.
/// guard_bytes are left free behind every transient value (debugging).
Arena place(std::span<Schedule> schedules, int64_t guard_bytes = 0);

/// Bytes alive at each action (persistent values included), per memory: the lower bound of any placement is
/// their maximum. Computed from the uses alone, not from the offsets.
std::vector<std::array<int64_t, kNumMemories>> live_bytes(const Schedule& schedule);

/// Index of the action with the most live bytes.
int peak_action(const Schedule& schedule);

}  // namespace trireme::schedule
