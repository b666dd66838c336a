#include "trireme/engine/shared_places.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <bit>
#include <iterator>
#include <string>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"

namespace trireme::engine {

void compare_places(const plan::StepPlan& plan, schedule::Memory memory, comm::Communicator& ranks) {
  std::string places;
  for (const schedule::Schedule& list : plan.lists)
    for (const schedule::Value& v : list.values)
      if (v.memory == memory)
        fmt::format_to(std::back_inserter(places), "{} {} {} {}\n", list.name, v.label, v.offset, v.bytes);
  const at::Tensor mine = at::full({1}, std::bit_cast<int64_t>(base::hash_text(places)), at::kLong);
  const at::Tensor all = at::empty({ranks.size()}, at::kLong);
  ranks.all_gather(all, mine, std::vector<int64_t>(static_cast<size_t>(ranks.size()), 1))->wait();
  const auto* hashes = all.data_ptr<int64_t>();
  for (int rank = 1; rank < ranks.size(); ++rank)
    if (hashes[rank] != hashes[0])
      throw InternalError(fmt::format(
          "ranks 0 and {} of group '{}' share memory and have planned different places for its values; until "
          "this is mended, leave offload.* out or take --comm.backend gloo",
          rank, ranks.name()));
}

}  // namespace trireme::engine
