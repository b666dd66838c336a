// How much cache fits into the memory of this host.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/train/inference.h"

namespace trireme::train {

/// What a command wants to keep in the cache.
struct CacheWish {
  generate::Room room;
  int64_t needed_tokens = 1;  ///< less is of no use: those of the longest text
  bool is_given = false;      ///< by generate.cache_tokens: it is not made smaller
};

/// Room for the longest texts, of which there are `samples` for each prompt; at most `texts` are written at a time.
CacheWish wish_to_write(const model::ModelConfig& config, const std::vector<std::vector<int64_t>>& prompts,
                        int64_t samples, int64_t max_new_tokens, int64_t texts);

/// What a Generator refuses later: a cache in which the longest text has no room. Errors    UsageError
void check_longest_text(const CacheWish& wish);

/// `wish.room`, with a smaller cache if the host's ranks do not have the memory. `available`: bytes on this host.
///
/// Errors    UsageError: not one text fits, or a given cache does not
/// Cost      one more plan. All ranks call it together and get the same, whatever each finds available
generate::Room fitting_room(const Settings& settings, const launch::RankEnvironment& environment, const Inference& in,
                            const CacheWish& wish, int64_t available);
/// The same, with the memory that is available now.
generate::Room fitting_room(const Settings& settings, const launch::RankEnvironment& environment, const Inference& in,
                            const CacheWish& wish);

}  // namespace trireme::train
