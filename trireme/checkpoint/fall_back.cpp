#include "trireme/checkpoint/fall_back.h"

#include "trireme/base/error.h"
#include "trireme/checkpoint/agree.h"

namespace trireme::checkpoint {

std::filesystem::path load_or_older(std::filesystem::path folder, comm::Communicator& world,
                                    const OlderCheckpoint& older, std::vector<PassedOver>& passed_over,
                                    const std::function<void(const std::filesystem::path& folder)>& load) {
  for (;;) try {
      load(folder);
      return folder;
    } catch (const DamagedError& error) {
      const auto found = world.rank() == 0 ? older(folder) : std::nullopt;
      const std::filesystem::path next = broadcast_text(world, found ? found->string() : "", 0);
      if (next.empty()) throw;
      passed_over.push_back({folder, {Verdict::Kind::damaged, error.what()}});
      folder = next;
    }
}

}  // namespace trireme::checkpoint
