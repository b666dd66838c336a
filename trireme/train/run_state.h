// What a run's checkpoint keeps beside its tensors, and how it is written (trireme_state.json).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/checkpoint/load.h"
#include "trireme/data/training_data.h"
#include "trireme/optim/loss_scale.h"
#include "trireme/train/model_source.h"

namespace trireme::train {

/// What is saved beside the tensors: all that is needed to continue a run.
struct RunState {
  int64_t step = 0;
  int64_t samples = 0;              ///< consumed since the start of training
  int64_t tokens = 0;
  bool evaluation_due = false;      ///< a stop cut the evaluation of this step (evaluate_before.h)
  std::string run;                  ///< the name of the run that saved it (begin_run)
  data::DataIdentity data;          ///< of the data that `samples` refers to
  std::string settings_yaml;
  optim::LossScaleState loss_scale;         ///< of runs that scale the loss, or did before they were resumed
  std::map<std::string, int64_t> untrained_steps = {};  ///< Engine::untrained_steps
  std::string chat_template = {};   ///< in which it learned conversations; "": it learned none
  std::string reference = {};       ///< fingerprint of the weights that it compares its model with; "": none
  std::string task;                 ///< what a task keeps beside its place in the data; "": nothing
  ModelSource source;               ///< how the loaded folder stores its tensors; not saved in the state's file
  // Of a run that trains adapters:
  std::string adapter_config;               ///< adapter_config.json; not saved in the state's file
  std::string base_path, base_fingerprint;  ///< adapt/base_fingerprint.h
  std::shared_ptr<const checkpoint::Checkpoint> base_to_copy =
      {};  ///< saved with the adapters; not in the state's file
};

std::string to_json(const RunState& state);
/// Errors    CheckpointError naming the missing or wrong key
RunState parse_run_state(const std::string& json, const std::filesystem::path& path);

/// The value of a key in the settings of the run that saved a checkpoint; "" if they do not say it.
std::string saved_setting(const checkpoint::Checkpoint& checkpoint, std::string_view key);

}  // namespace trireme::train
