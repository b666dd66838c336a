#include "trireme/train/trainer_checkpoint.h"

#include <fmt/format.h>

#include <set>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/checkpointing.h"

namespace trireme::train {
namespace fs = std::filesystem;
namespace {

std::string optimizer_of(engine::Trainer& trainer) {
  return std::string(config::name_of(trainer.engine().plan().request.optimizer.rule));
}

void check_is_folder(const fs::path& folder, std::string_view what) {
  if (folder.empty()) throw UsageError(fmt::format("{}: the folder has no name; name one", what));
  if (!fs::exists(folder) || fs::is_directory(folder)) return;
  throw CheckpointError(
      fmt::format("{}: {} is a file, and checkpoints lie in a folder; name a folder", what, folder.string()),
      folder.string());
}

// A run begins in a folder that is not there yet. But a checkpoint's own name, or a name beside checkpoints, is one
// that somebody has mistyped: to start anew would lose the run without a word.
void check_is_no_slip(const fs::path& folder) {
  const bool exists = fs::exists(folder);
  if (checkpoint::step_of(folder) ? exists : exists || checkpoint::list_step_folders(base::parent_of(folder)).empty())
    return;
  throw CheckpointError(
      fmt::format("load_trainer: there is no folder {}; name a checkpoint's folder, or the folder of a run with its "
                  "checkpoints. For a new run inside a run's folder, make its folder first",
                  folder.string()),
      folder.string());
}

/// "" if there is no checkpoint.
std::string newest(const fs::path& folder) {
  check_is_folder(folder, "load_trainer");
  check_is_no_slip(folder);
  const auto with_state = [](const fs::path& found) {
    if (checkpoint::verdict_of(found).kind == checkpoint::Verdict::Kind::weights_alone)
      throw CheckpointError(
          fmt::format("load_trainer: {} holds weights alone, without the state of a Trainer; name another checkpoint",
                      found.string()),
          found.string());
    return found.string();
  };
  if (fs::exists(folder / checkpoint::kManifestName)) return with_state(folder);
  if (const fs::path found = checkpoint::newest_or_itself(folder); found != folder) return with_state(found);
  std::vector<checkpoint::PassedOver> passed_over;
  checkpoint::find_latest(folder, &passed_over);
  if (passed_over.empty()) return checkpoint::step_of(folder) ? folder.string() : "";  // loading it says what it lacks
  throw CheckpointError(
      fmt::format("no checkpoint in {} is good; of the newest, {}: {}. To go on from one of them all the same, pass "
                  "its own folder",
                  folder.string(), passed_over.front().path.filename().string(), passed_over.front().verdict.problem),
      folder.string());
}

// Two trainers that save into one folder would replace each other's checkpoints.
void refuse_another_model(const fs::path& folder, const model::Model& model) {
  const auto newest = checkpoint::find_latest(folder);
  if (!newest) return;
  std::set<std::string> own;
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters) own.insert(p.name);
  const checkpoint::Checkpoint saved = checkpoint::open_checkpoint(*newest);
  const auto refuse = [&](const std::string& name, const char* whose) {
    throw UsageError(
        fmt::format("save_trainer: {} holds checkpoints of another model (the tensor {} is {}); give each trainer a "
                    "folder of its own",
                    folder.string(), name, whose));
  };
  for (const std::string& name : own)
    if (!saved.has_tensor(name)) refuse(name, "only this trainer's");
  for (const auto& [name, stored] : saved.tensors) {
    size_t end = name.size();  // "net.weight.exp_avg" is the optimizer's of "net.weight"
    while (end != std::string::npos && !own.contains(name.substr(0, end)))
      end = end == 0 ? std::string::npos : name.rfind('.', end - 1);
    if (end == std::string::npos) refuse(name, "only theirs");
  }
}

// What the trainer has not come to yet belongs to a run that it left when it went back.
void leave_later_behind(const fs::path& folder, int64_t step) {
  std::vector<std::string> names;
  for (const fs::path& left : checkpoint::leave_later_behind(folder, step)) names.push_back(left.filename().string());
  if (!names.empty())
    base::warn(
        "left behind in {}: {}. The trainer has taken {} steps, and later checkpoints no longer count as the newest; "
        "to go back to one, load its own folder",
        folder.string(), base::join(names, ", "), step);
}

}  // namespace

fs::path save_trainer(engine::Trainer& trainer, const fs::path& folder, int64_t keep_last) {
  comm::Communicator& world = *trainer.engine().communicators().world;
  const engine::TrainerState state = trainer.state();
  if (keep_last < 0) throw UsageError(fmt::format("save_trainer: keep_last is {}; it must be at least 0", keep_last));
  checkpoint::agree(world, [&] {
    if (world.rank() != 0) return;
    check_is_folder(folder, "save_trainer");
    refuse_another_model(folder, trainer.model());
    leave_later_behind(folder, state.steps);
  });
  Settings settings;
  settings.out_dir = folder.string();
  settings.save.keep_last = keep_last;
  const RunState saved{.step = state.steps,
                       .settings_yaml = fmt::format("optimizer: {}\n", optimizer_of(trainer)),
                       .loss_scale = state.loss_scale,
                       .untrained_steps = state.untrained_steps};
  return save_run(trainer.engine(), trainer.model(), settings, saved, world).path;
}

std::optional<fs::path> load_trainer(engine::Trainer& trainer, const fs::path& folder) {
  comm::Communicator& world = *trainer.engine().communicators().world;
  std::string found;
  checkpoint::agree(world, [&] {
    if (world.rank() == 0) found = newest(folder);
  });
  found = checkpoint::broadcast_text(world, found, 0);
  if (found.empty()) return std::nullopt;
  const RunState state = load_run(trainer.engine(), trainer.model(), found, world, LoadWhat::run, optimizer_of(trainer),
                                  [&] { trainer.begin_restore(); });
  trainer.restore({.steps = state.step, .loss_scale = state.loss_scale, .untrained_steps = state.untrained_steps});
  return found;
}

}  // namespace trireme::train
