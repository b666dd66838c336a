#include "trireme/launch/machines/room.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/cgroup.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/launch/identity/core_share.h"

namespace trireme::launch {
namespace {
int most_ranks(const HostRoom& room) { return std::max(kAlwaysAllowedRanks, kRanksPerCore * room.cores); }

std::string say_memory(const HostRoom& room, const RoomNeeded& needed) {
  std::string text =
      fmt::format("{} of memory", base::human_bytes(needed.num_ranks * needed.bytes_of_a_rank + needed.planned_bytes));
  text += needed.planned_bytes > 0
              ? fmt::format(" ({} planned, and {} for each rank's own start)", base::human_bytes(needed.planned_bytes),
                            base::human_bytes(needed.bytes_of_a_rank))
              : fmt::format(" for their start alone ({} each)", base::human_bytes(needed.bytes_of_a_rank));
  return text + fmt::format(", and {} {}", base::human_bytes(room.free_bytes),
                            room.is_limited ? "are left by the limit of the control group" : "are free");
}
}  // namespace

HostRoom room_of_this_host() {
  const base::AvailableMemory memory = base::available_memory();
  return {.cores = share_cores(1).threads_per_rank, .free_bytes = memory.bytes, .is_limited = memory.is_limited};
}

std::optional<std::string> lacks_room(const HostRoom& room, const RoomNeeded& needed) {
  const std::int64_t bytes = needed.num_ranks * needed.bytes_of_a_rank + needed.planned_bytes;
  const bool too_many = needed.num_ranks > most_ranks(room);
  const bool too_large = bytes > room.free_bytes;
  if (!too_many && !too_large) return std::nullopt;
  std::string text = fmt::format("there is no room for {} here", base::plural(needed.num_ranks, "rank"));
  if (too_many)
    text += fmt::format(": this machine has {} for this job, on which at most {} start",
                        base::plural(room.cores, "core"), base::plural(most_ranks(room), "rank"));
  if (bytes > 0) text += fmt::format("{} need {}", too_many ? "; they" : ": they", say_memory(room, needed));
  return text +
         "; take fewer ranks or a smaller plan, or allow it: --launch.oversubscribe true (trireme launch: "
         "--oversubscribe)";
}

void require_room(const RoomNeeded& needed, bool oversubscribe) {
  if (needed.num_ranks < 1 || needed.num_ranks > kMostRanksOnOneHost)
    throw UsageError(
        fmt::format("cannot start {} ranks: --devices takes 1 to {}", needed.num_ranks, kMostRanksOnOneHost));
  if (oversubscribe) return;
  if (const auto why = lacks_room(room_of_this_host(), needed)) throw UsageError(*why);
}

}  // namespace trireme::launch
