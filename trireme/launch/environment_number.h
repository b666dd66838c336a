// Numbers in a launcher's environment, read strictly; every error names the variable and its value.
#pragma once

#include "trireme/launch/environment.h"

namespace trireme::launch {

inline constexpr int kMaxRanks = 1 << 20;

/// Errors    UsageError: not a whole number within the bounds
int parse_number(const char* name, std::string_view text, int lowest, int highest);

int optional_number(const EnvironmentLookup& lookup, const char* name, int otherwise, int lowest, int highest);

/// Errors    UsageError where `name` is not set though `because_of` is
const char* required_text(const EnvironmentLookup& lookup, const char* name, const char* because_of);
int required_number(const EnvironmentLookup& lookup, const char* name, const char* because_of, int lowest, int highest);

/// The four numbers of a rank, as a launcher calls them.
struct RankNames {
  const char *rank, *world_size, *local_rank, *local_world_size;
};

/// Fills in the four, and `launched`. False when none of them is set.
/// Errors    UsageError: some are missing, no numbers, contradictory
bool read_ranks(const EnvironmentLookup& lookup, const RankNames& names, RankEnvironment& result);

/// Errors    UsageError "... contradict each other: NAME=value must be RULE OTHER=other_value" unless `holds`
void refuse_contradiction(bool holds, const char* name, int value, const char* rule, const char* other,
                          int other_value);

}  // namespace trireme::launch
