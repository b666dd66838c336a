// A run's checkpoints: converts between the engine's flat shards and named tensors in files.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/save.h"
#include "trireme/engine/engine.h"
#include "trireme/settings/settings.h"
#include "trireme/train/run_state.h"

namespace trireme::train {

/// The checkpoint format's name for a tensor's dtype.
checkpoint::Dtype dtype_of(at::ScalarType type);

/// The folders that the run's command names. The same command needs them again, so checkpoints among them are never
/// deleted. Some are names, not paths.
std::vector<std::filesystem::path> started_with(const Settings& settings);

/// What this rank saves of `groups` (Engine::state or copy_state). The request points into their memory. A model with
/// adapters is saved as a PEFT folder of what is trained; its base is not saved.
checkpoint::SaveRequest save_request(std::span<const engine::GroupState> groups, const plan::StepPlan& plan,
                                     const Settings& settings, const RunState& state);

/// Saves model, optimizer and state; every rank must call.
checkpoint::SaveResult save_run(engine::Engine& engine, const model::Model& model, const Settings& settings,
                                const RunState& state, comm::Communicator& world);

enum class LoadWhat {
  run,
  weights,
  base,  ///< the weights of an adapter's base (adapt::open_base)
};

/// Refuses a folder that a run of this plan could not go on from, by its headers. `optimizer` as for load_run.
/// Errors    CheckpointError
void check_run(const plan::StepPlan& plan, const std::filesystem::path& path, const std::string& optimizer);

/// Fills the engine's masters and optimizer state from any checkpoint of this model, saved by any number of ranks. A
/// folder without masters (a Hugging Face model) gives weights and zero optimizer state. With LoadWhat::weights, only
/// weights are loaded, and the returned state is that of a new run. `optimizer` is the name of this run's optimizer. It
/// is compared with the checkpoint's settings, because Adam and AdamW keep tensors of the same names. If either name is
/// missing, nothing is compared. A model with adapters takes from a PEFT folder what is trained, and from any other
/// folder all parameters but the adapters'. With LoadWhat::weights, a classification head that the folder lacks
/// (ModelSource::fresh) keeps the values that it has. A parameter that was frozen when the folder was saved begins with
/// zero optimizer state, and Engine::untrained_steps says when. `before_reading` is called on every rank once the
/// folder is known to fit: after an error behind it, the engine holds a part of the checkpoint. Errors CheckpointError,
/// the same on every rank; also if another optimizer saved the checkpoint
RunState load_run(engine::Engine& engine, const model::Model& model, const std::filesystem::path& path,
                  comm::Communicator& world, LoadWhat what = LoadWhat::run, const std::string& optimizer = "",
                  const std::function<void()>& before_reading = {});

/// A matrix of a folder in the format of the parameter: its codes, if the folder has them, else quantized here.
/// Errors    CheckpointError
std::shared_ptr<const ops::Quantized> read_whole_quantized(const checkpoint::Checkpoint& folder,
                                                           const std::string& name,
                                                           const model::ParameterSpec& parameter);

/// Gives the magnitudes of new adapters (DoRA) their first values: the norms of the weights in `base`. Does nothing for
/// a model without them.
/// Cost      each rank reads the rows of its magnitudes; for weights stored [in, out], whole matrices
/// Errors    CheckpointError, the same on every rank
void load_magnitudes(engine::Engine& engine, const model::Model& model, const std::filesystem::path& base,
                     comm::Communicator& world, uint64_t seed);

}  // namespace trireme::train
