#include "trireme/train/same_on_ranks.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/launch/machines/same_settings.h"

namespace trireme::train {

std::optional<Unlike> find_unlike(comm::Communicator& world, const std::string& own) {
  const int64_t mine[] = {static_cast<int64_t>(base::hash_text(own))};
  const std::vector<int64_t> one_of_each(static_cast<size_t>(world.size()), 1);
  const std::vector<int64_t> all = checkpoint::all_gather_numbers(world, mine, one_of_each);
  if (std::ranges::count(all, all.front()) == world.size()) return std::nullopt;
  const std::string of_rank_0 = checkpoint::broadcast_text(world, own, 0);
  std::optional<Unlike> unlike;
  std::vector<int64_t> known = {all.front()};
  for (int rank = 1; rank < world.size(); ++rank) {
    const int64_t hash = all[static_cast<size_t>(rank)];
    if (std::ranges::count(known, hash) > 0) continue;
    known.push_back(hash);
    Unlike found{.rank = rank, .what = launch::difference(checkpoint::broadcast_text(world, own, rank), of_rank_0)};
    if (!found.what.empty()) return found;  // values without a word may be the same, said in other ways
    if (!unlike) unlike = std::move(found);
  }
  return unlike;
}

}  // namespace trireme::train
