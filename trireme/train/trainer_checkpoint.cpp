#include "trireme/train/trainer_checkpoint.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/checkpointing.h"

namespace trireme::train {
namespace fs = std::filesystem;
namespace {

std::string optimizer_of(engine::Trainer& trainer) {
  return std::string(config::name_of(trainer.engine().plan().request.optimizer.rule));
}

/// "" if there is no checkpoint.
std::string newest(const fs::path& folder) {
  if (fs::exists(folder / checkpoint::kManifestName)) return folder.string();
  if (const fs::path found = checkpoint::newest_or_itself(folder); found != folder) return found.string();
  std::vector<checkpoint::PassedOver> passed_over;
  checkpoint::find_latest(folder, &passed_over);
  if (passed_over.empty()) return "";
  throw CheckpointError(
      fmt::format("no checkpoint in {} is good; of the newest, {}: {}. To go on from one of them all the same, pass "
                  "its own folder",
                  folder.string(), passed_over.front().path.filename().string(), passed_over.front().verdict.problem),
      folder.string());
}

}  // namespace

fs::path save_trainer(engine::Trainer& trainer, const fs::path& folder, int64_t keep_last) {
  const engine::TrainerState state = trainer.state();
  Settings settings;
  settings.out_dir = folder.string();
  settings.save.keep_last = keep_last;
  const RunState saved{.step = state.steps,
                       .settings_yaml = fmt::format("optimizer: {}\n", optimizer_of(trainer)),
                       .loss_scale = state.loss_scale,
                       .untrained_steps = state.untrained_steps};
  return save_run(trainer.engine(), trainer.model(), settings, saved, *trainer.engine().communicators().world).path;
}

std::optional<fs::path> load_trainer(engine::Trainer& trainer, const fs::path& folder) {
  comm::Communicator& world = *trainer.engine().communicators().world;
  std::string found;
  checkpoint::agree(world, [&] {
    if (world.rank() == 0) found = newest(folder);
  });
  found = checkpoint::broadcast_text(world, found, 0);
  if (found.empty()) return std::nullopt;
  const RunState state =
      load_run(trainer.engine(), trainer.model(), found, world, LoadWhat::run, optimizer_of(trainer));
  trainer.restore({.steps = state.step, .loss_scale = state.loss_scale, .untrained_steps = state.untrained_steps});
  return found;
}

}  // namespace trireme::train
