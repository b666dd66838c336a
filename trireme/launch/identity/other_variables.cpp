#include "trireme/launch/identity/other_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/identity/rank_setup.h"

namespace trireme::launch {
namespace {
constexpr const char* kTimeout = "NCCL_TIMEOUT";
constexpr const char* kTokenFile = "TRIREME_TOKEN_FILE";
constexpr const char* kInterfaces[] = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};

// Where a variable has an effect; elsewhere `otherwise` says why it has none.
enum class Where { everywhere, on_gpus, nowhere };

struct Row {
  std::string_view name;  ///< ending in _: all variables that begin so
  Where where;
  std::string_view otherwise;
  std::string_view asks_for_nothing = "";  ///< a value that a launcher sets unasked
};
constexpr std::string_view kNoNccl = "NCCL reads it, and ranks on processors do not use NCCL";
constexpr std::string_view kAboutNccl = "it is about NCCL, and ranks on processors do not use NCCL";
constexpr std::string_view kAccelerate =
    "accelerate launch has set it; give its file with --config FILE, or Trireme's own settings";
constexpr Row kRows[] = {
    {"ACCELERATE_MIXED_PRECISION", Where::nowhere, "accelerate launch has set it; say --precision", "no"},
    {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", Where::nowhere,
     "accelerate launch has set it; say --train.global_batch_size", "1"},
    {"ACCELERATE_GRADIENT_CLIPPING", Where::nowhere, "accelerate launch has set it; say --train.max_norm", "none"},
    {"ACCELERATE_USE_FSDP", Where::nowhere, kAccelerate, "false"},
    {"ACCELERATE_USE_DEEPSPEED", Where::nowhere, kAccelerate, "false"},
    {"ACCELERATE_USE_MEGATRON_LM", Where::nowhere, kAccelerate, "false"},
    {"NCCL_TIMEOUT", Where::everywhere, ""},
    {"NCCL_SOCKET_IFNAME", Where::everywhere, ""},
    {"GLOO_SOCKET_IFNAME", Where::everywhere, ""},
    {"NCCL_ASYNC_ERROR_HANDLING", Where::on_gpus, kAboutNccl},
    {"NCCL_", Where::on_gpus, kNoNccl},
    {"TORCH_NCCL_", Where::on_gpus, kAboutNccl},
    {"TORCH_DISTRIBUTED_DEBUG", Where::nowhere, "every collective call is checked in every run; see docs/failures.md"},
    {"TORCH_CPP_LOG_LEVEL", Where::everywhere, ""},
    {"CUDA_VISIBLE_DEVICES", Where::on_gpus, "this run is on processors; --accelerator cuda trains on GPUs"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", Where::on_gpus, "this run is on processors"},
    {"CUDA_LAUNCH_BLOCKING", Where::on_gpus, "this run is on processors"},
    {"PET_NPROC_PER_NODE", Where::nowhere, "torchrun and trireme launch read it; this command has devices"},
    {"PET_NNODES", Where::nowhere, "torchrun and trireme launch read it; this command has num_nodes and launch.nnodes"},
    {"PYTORCH_CUDA_ALLOC_CONF", Where::nowhere,
     "memory is planned before a run and allocated once, so no allocator has settings"},
};

const Row* row_of(std::string_view name) {
  const auto fits = [&](const Row& row) {
    return row.name.ends_with('_') ? name.starts_with(row.name) : name == row.name;
  };
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), fits);
  return row == std::end(kRows) ? nullptr : row;
}
}  // namespace

void take_over_other_variables(ParsedSettings& parsed, const EnvironmentLookup& lookup) {
  if (const char* file = lookup(kTokenFile); file != nullptr && !parsed.given("launch.token_file"))
    parsed.settings.launch.token_file = file;
  const char* text = lookup(kTimeout);
  if (text == nullptr || parsed.given("comm.timeout")) return;
  int seconds = 0;
  const char* end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, seconds);
      error != std::errc() || stop != end || seconds < 1)
    throw UsageError(fmt::format(
        "environment variable {}='{}' is not a whole number of seconds, at least 1; it is read as comm.timeout",
        kTimeout, text));
  parsed.settings.comm.timeout = std::chrono::seconds(seconds);
}

std::vector<std::string> notes_on_other_variables(const std::map<std::string, std::string>& variables,
                                                  const Settings& settings) {
  const bool on_gpus = settings.accelerator == engine::Accelerator::cuda;
  const bool by_torchrun = variables.contains("TORCHELASTIC_RUN_ID");
  std::vector<std::string> notes;
  for (const auto& [name, value] : variables) {
    const Row* row = row_of(name);
    if (row == nullptr || (!value.empty() && value == row->asks_for_nothing) ||
        (by_torchrun && name.starts_with("PET_")))
      continue;
    if (name == kTimeout)
      notes.push_back(fmt::format("{} is read as comm.timeout, which is {} s", name,
                                  std::chrono::duration_cast<std::chrono::seconds>(settings.comm.timeout).count()));
    else if (row->where == Where::nowhere || (row->where == Where::on_gpus && !on_gpus))
      notes.push_back(fmt::format("{} has no effect: {}", name, row->otherwise));
  }
  return notes;
}

void tell_other_variables(const Settings& settings) {
  for (const std::string& note : notes_on_other_variables(own_environment(), settings)) base::info("{}", note);
}

std::string chosen_interface(const EnvironmentLookup& lookup) {
  for (const char* name : kInterfaces) {
    const char* text = lookup(name);
    if (text == nullptr || *text == '\0') continue;
    std::string_view wanted = text;
    if (wanted.starts_with('=')) wanted.remove_prefix(1);
    const std::vector<std::string> all = interfaces();
    if (std::find(all.begin(), all.end(), wanted) != all.end()) return std::string(wanted);
    // NCCL also takes beginnings of names, lists and exclusions; Gloo needs one interface.
    if (std::string_view(name).starts_with("NCCL")) continue;
    throw UsageError(fmt::format("environment variable {}='{}' names no interface of this host, which has {}", name,
                                 text, base::join(all, ", ")));
  }
  return "";
}

}  // namespace trireme::launch
