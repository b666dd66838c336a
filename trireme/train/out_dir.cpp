#include "trireme/train/out_dir.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/flight_file.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/data/named_sets.h"
#include "trireme/launch/hang/hang.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/train/checkpointing.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

using checkpoint::kRunFile;
constexpr std::array<std::string_view, 8> kFiles = {"metrics.jsonl",      kCsvFile,      "loss.svg",
                                                    "prediction.json",    "profile.txt", "profile.json",
                                                    "profile.trace.json", kRunFile};

// What each rank writes: folder and ending.
constexpr std::pair<std::string_view, std::string_view> kRankFiles[] = {
    {"logs", ".log"}, {"flight", ".flight"}, {"ledger", ".jsonl"}};

bool is_a_ranks(const std::string& name, std::string_view ending) {
  constexpr std::string_view kRank = "rank";
  if (!name.starts_with(kRank) || !name.ends_with(ending) || name.size() <= kRank.size() + ending.size()) return false;
  const std::string_view digits =
      std::string_view(name).substr(kRank.size(), name.size() - kRank.size() - ending.size());
  return digits.find_first_not_of("0123456789") == std::string_view::npos;
}

// A folder that is only named like a step is not a checkpoint.
bool is_checkpoint(const fs::path& folder) {
  return base::is_file(folder / checkpoint::kManifestName) || base::is_file(folder / "config.json") ||
         checkpoint::holds_weights(folder);
}

std::vector<fs::path> checkpoints_in(const fs::path& out_dir) {
  std::vector<fs::path> found;
  for (const checkpoint::StepFolder& folder : checkpoint::list_step_folders(out_dir))
    if (is_checkpoint(folder.path)) found.push_back(folder.path);
  return found;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  std::error_code ignored;
  const fs::path named = path.has_filename() ? path : path.parent_path();
  return fs::equivalent(named, folder, ignored) ||
         fs::equivalent(named.has_parent_path() ? named.parent_path() : fs::path("."), folder, ignored);
}

void refuse_to_remove_the_start(const Settings& settings, const std::vector<fs::path>& checkpoints) {
  for (const fs::path& start : started_with(settings))
    for (const fs::path& folder : checkpoints)
      if (!start.empty() && lies_in(start, folder))
        throw UsageError(fmt::format(
            "overwrite would remove {}, which the run starts from: choose another --out_dir, or go on with the run "
            "that saved it: trireme pretrain --resume {}",
            start.string(), base::shell_quoted(start.string())));
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) base::throw_file_error("remove", path, error.value());
}

// Not behind a link.
template <class Belongs>
void remove_files(const fs::path& folder, const Belongs& belongs) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (belongs(entry.path().filename().string())) files.push_back(entry.path());
  for (const fs::path& file : files) remove_file(file);
}

void remove_rank_files(const fs::path& folder, std::string_view ending) {
  remove_files(folder,
               [&](const std::string& name) { return is_a_ranks(name, ending) || name == launch::kVerdictName; });
}

// The log's link would take the place of a file of the run, or be replaced by it.
void refuse_link_in_the_way(const Settings& settings) {
  const auto& link = settings.launch.log_link;
  if (!link) return;
  const auto is_it = [&](std::string_view path) { return path.substr(0, path.find('/')) == *link; };
  const bool is_a_file = std::ranges::any_of(kFiles, is_it),
             is_a_folder = *link == kTokensFolder ||
                           std::ranges::any_of(kRankFiles, is_it, [](const auto& f) { return f.first; });
  if (link->starts_with('.'))
    throw UsageError(
        fmt::format("launch.log_link {} begins with a dot, as the names of locks and unfinished files do; give another "
                    "one, for instance train.log",
                    *link));
  if (is_a_file || is_a_folder || checkpoint::step_of(*link))
    throw UsageError(fmt::format(
        "launch.log_link {} is a name that a run uses itself in out_dir; give another one, for instance train.log",
        *link));
}

std::string run_in(const fs::path& out_dir) {
  const fs::path file = out_dir / kRunFile;
  if (!fs::exists(file)) return "";
  const auto json = base::parse_json_if_sound(base::read_side_file(file));
  return json.is_object() && json.contains("run") && json["run"].is_string() ? json["run"].get<std::string>() : "";
}

}  // namespace

std::string run_name(const Settings& settings) {
  if (settings.train.run_name) return *settings.train.run_name;
  std::error_code ignored;
  const fs::path model = settings.model.name;
  if (!fs::is_directory(model, ignored)) return "pretrain-" + settings.model.name;
  return "finetune-" + (model.has_filename() ? model : model.parent_path()).filename().string();
}

bool holds_a_run(const fs::path& out_dir) {
  std::error_code ignored;
  return std::any_of(kFiles.begin(), kFiles.end(),
                     [&](std::string_view name) { return fs::exists(out_dir / name, ignored); }) ||
         !checkpoints_in(out_dir).empty();
}

void refuse_models_folder(const fs::path& out_dir) {
  std::error_code ignored;
  for (const char* name : {"config.json", "adapter_config.json"})
    if (fs::exists(out_dir / name, ignored) && checkpoints_in(out_dir).empty())
      throw UsageError(fmt::format("out_dir {} is the folder of a model (it holds {}); choose another --out_dir",
                                   out_dir.string(), name));
}

// Two files of such a folder are read, and no others.
static bool has_splits(const fs::path& folder) try {
  return data::find_json_splits(folder).has_value();
} catch (const UsageError&) {
  return false;
}

void refuse_folder_of_data(const Settings& s) {
  if (s.task != Learning::language) return;
  const auto absolute = [](const fs::path& path) { return fs::absolute(path).lexically_normal(); };
  for (const auto& [key, path] :
       {std::pair("data.train_data_path", s.data.train_data_path), {"data.val_data_path", s.data.val_data_path}}) {
    std::error_code ignored;
    if (!path || !fs::is_directory(*path, ignored)) continue;
    const fs::path inside = absolute(s.out_dir).lexically_relative(absolute(*path));
    if (inside.empty() || *inside.begin() == ".." || has_splits(*path)) continue;
    if (fs::exists(*path + ".idx", ignored)) continue;  // a set of tokens has that name
    throw UsageError(
        fmt::format("out_dir {} lies in the folder of {}, and a run's files would be read as data; name a "
                    "folder elsewhere, for instance --out_dir out/mine",
                    s.out_dir, key));
  }
}

void refuse_another_runs_folder(const Settings& settings) {
  refuse_link_in_the_way(settings);
  using From = train::Resume::From;
  const fs::path out_dir = settings.out_dir;
  const std::vector<fs::path> checkpoints = checkpoints_in(out_dir);
  if (checkpoints.empty()) return;
  if (settings.overwrite) return refuse_to_remove_the_start(settings, checkpoints);
  const auto from = settings.resume.from;
  if (from == From::newest || from == From::newest_if_any) return;
  if (from == From::folder && lies_in(settings.resume.folder, out_dir)) return;
  throw UsageError(fmt::format(
      "{0} holds checkpoints of another run (the newest is {1}), and {2} would replace some of them and leave others: "
      "go on with that run (trireme pretrain --resume {3}), choose another --out_dir, or remove it first with "
      "--overwrite true",
      out_dir.string(), checkpoints.front().filename().string(),
      from == From::folder ? fmt::format("a run from {}", settings.resume.folder) : "a new one",
      base::shell_quoted(out_dir.string())));
}

void remove_earlier_run(const Settings& settings) {
  const fs::path out_dir = settings.out_dir;
  if (!settings.overwrite || !fs::is_directory(out_dir)) return;
  for (const fs::path& folder : checkpoints_in(out_dir)) checkpoint::require_removable(folder);  // all, or none goes
  for (const fs::path& folder : checkpoints_in(out_dir)) checkpoint::remove_checkpoint(folder);
  checkpoint::remove_leftovers(out_dir);
  for (const std::string_view name : kFiles) remove_file(out_dir / name);
  for (const auto& [folder, ending] : kRankFiles) remove_rank_files(out_dir / folder, ending);
  remove_files(out_dir / kEventsFolder,
               [](const std::string& name) { return name.starts_with(observe::kEventsPrefix); });
}

void remove_earlier_flights(const fs::path& out_dir) try {
  remove_rank_files(base::flight_folder(out_dir), ".flight");
} catch (const std::exception&) {  // they only describe a job, and no run fails because they stay
}

std::string begin_run(const fs::path& out_dir, const launch::RankEnvironment& environment, comm::Communicator& world) {
  std::string run;
  checkpoint::agree(world, [&] {
    if (world.rank() != 0) return;
    const std::string before = run_in(out_dir);
    run = environment.run.empty() && environment.restart_count > 0 ? before : environment.run;
    if (run.empty()) {
      std::random_device random;
      run = fmt::format("{:08x}{:08x}", random(), random());
    }
    if (run == before) return;
    base::write_file_atomic(out_dir / kRunFile, nlohmann::json{{"run", run}}.dump() + "\n");
  });
  return checkpoint::broadcast_text(world, run, 0);
}

void forget_earlier_run(const fs::path& out_dir, const launch::RankEnvironment& environment) {
  if (environment.global_rank > 0 || environment.restart_count > 0 || !environment.run.empty()) return;
  std::error_code ignored;
  fs::remove(out_dir / kRunFile, ignored);
}

std::optional<fs::path> find_saved_by_this_run(const fs::path& out_dir, const launch::RankEnvironment& environment,
                                               const fs::path& before) {
  const std::string run = environment.run.empty() ? run_in(out_dir) : environment.run;
  if (run.empty()) return std::nullopt;
  const auto limit = checkpoint::step_of(before);
  for (const checkpoint::StepFolder& folder : checkpoint::list_step_folders(out_dir)) try {
      if ((!limit || folder.step < *limit) && checkpoint::verdict_of(folder.path).good() &&
          parse_run_state(checkpoint::open_checkpoint(folder.path).state_json, folder.path).run == run)
        return folder.path;
    } catch (const Error&) {  // not one that could be loaded
    }
  return std::nullopt;
}

}  // namespace trireme::train
