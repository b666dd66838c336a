// Damages one rank's list in one place, as a wrong pass or placement would.
#pragma once

#include <optional>
#include <random>
#include <set>
#include <string>

#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

enum class Damage {
  drop,           ///< an action is gone
  swap,           ///< two neighbours change places
  move,           ///< an action stands somewhere else
  duplicate,      ///< and once more
  other_owner,    ///< it says another unit or group
  other_batch,    ///< another micro-batch
  other_peer,     ///< a message goes to or comes from another rank, or in the other lane
  other_action,   ///< it does what another of its kind does
  complete_early,
  complete_late,
  overlap,        ///< a value lies on another
  swap_groups,    ///< two groups' entries change places
  accumulate,     ///< a sum starts afresh, or does not
  count
};
const char* name_of(Damage damage);

struct Mutation {
  Damage damage;
  std::string what;
  std::set<std::string> names;  ///< the damaged action, and those that lost their writer, reader or peer by it
};

/// Damages `list` at random; nothing when this kind of damage has nothing to do there.
/// Actions keep pointing at the same actions, values keep their bytes, and their lives are counted anew.
std::optional<Mutation> mutate(Schedule& list, Damage damage, int num_peers, std::mt19937& random);

}  // namespace trireme::schedule
