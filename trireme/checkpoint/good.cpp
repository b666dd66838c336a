#include "trireme/checkpoint/good.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/load.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// True when `folder` is one of the paths or their parent, under whatever name.
bool is_or_holds(const fs::path& folder, std::span<const fs::path> paths) {
  return std::any_of(paths.begin(), paths.end(), [&](const fs::path& path) {
    std::error_code ignored;  // a path that does not exist needs no protection
    return fs::equivalent(folder, path, ignored) || fs::equivalent(folder, base::parent_of(path), ignored);
  });
}

/// The checkpoints of which this process, or the launcher that started it, has warned.
struct Told {
  Told() {
    const char* before = std::getenv(kToldVariable);
    std::istringstream lines(before == nullptr ? "" : before);
    for (std::string path; std::getline(lines, path);) paths.insert(path);
  }
  std::mutex mutex;
  std::set<std::string> paths;
};

Told& told() {
  static Told all;
  return all;
}

// Of the ranks of a job, the first one tells. These variables have their numbers, as in
// launch/identity/environment.cpp: of torchrun and our launcher, of srun's steps, mpirun and MPICH.
void warn_once(const fs::path& checkpoint, const std::string& warning) {
  constexpr std::pair<const char*, const char*> kRanks[] = {{"RANK", "WORLD_SIZE"},
                                                            {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                                            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                            {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : kRanks)
    if (const char* number = std::getenv(rank); number != nullptr && std::getenv(size) != nullptr) {
      if (std::string_view(number) != "0") return;
      break;
    }
  Told& all = told();
  const std::lock_guard lock(all.mutex);
  if (all.paths.insert(checkpoint.string()).second) base::warn("{}", warning);
}

std::string problem_of_ruined(const std::string& why) { return fmt::format("it is marked as ruined: {}", why); }

/// Writes a mark into a manifest, atomically.
void mark(const fs::path& folder, std::string Manifest::* which, const std::string& why) {
  const fs::path path = folder / kManifestName;
  Manifest manifest = parse_manifest(base::read_side_file(path), path.string());
  manifest.*which = why;
  base::write_file_atomic(path, manifest_to_json(manifest));
}

}  // namespace

Verdict verdict_of(const fs::path& folder) try {
  using Kind = Verdict::Kind;
  const Checkpoint checkpoint = open_checkpoint(folder, Advice::none);
  if (!checkpoint.has_manifest) return {Kind::damaged, fmt::format("{} is missing", kManifestName)};
  const Manifest& manifest = checkpoint.manifest;
  if (!manifest.ruined.empty()) return {Kind::ruined, problem_of_ruined(manifest.ruined)};
  if (!manifest.left_behind.empty())
    return {Kind::left_behind, fmt::format("it is marked as left behind: {}", manifest.left_behind)};
  if (!manifest.files.contains(kStateName)) return {Kind::weights_alone, "it holds weights alone"};
  return {};
} catch (const UnreadableError& error) {
  return {Verdict::Kind::unreadable, error.what()};
} catch (const Error& error) {
  return {Verdict::Kind::damaged, error.what()};
}

std::optional<fs::path> find_latest(const fs::path& out_dir, std::vector<PassedOver>* passed_over) {
  for (const StepFolder& folder : list_step_folders(out_dir)) {
    Verdict verdict = verdict_of(folder.path);
    if (verdict.good()) return folder.path;
    if (passed_over != nullptr) passed_over->push_back({folder.path, std::move(verdict)});
  }
  return std::nullopt;
}

fs::path newest_or_itself(const fs::path& folder) {
  std::vector<PassedOver> passed_over;
  const std::optional<fs::path> found = find_latest(folder, &passed_over);
  for (const PassedOver& newer : passed_over)
    if (newer.verdict.kind == Verdict::Kind::unreadable)
      throw UnreadableError(
          fmt::format("{}; make it readable, or name the checkpoint that is meant", newer.verdict.problem),
          newer.path.string());
  for (const PassedOver& newer : passed_over) {
    if (!found && newer.verdict.kind == Verdict::Kind::weights_alone) return newer.path;
    warn_once(newer.path, fmt::format("passed over {}: {}", newer.path.string(), newer.verdict.problem));
  }
  return found.value_or(folder);
}

void warn_if_ruined(const fs::path& folder, const std::string& why) {
  if (!why.empty()) warn_once(folder, fmt::format("{} is not good: {}", folder.string(), problem_of_ruined(why)));
}

std::string told_of_passed_over() {
  Told& all = told();
  const std::lock_guard lock(all.mutex);
  return base::join(std::vector<std::string>(all.paths.begin(), all.paths.end()), "\n");
}

std::optional<fs::path> find_older(const fs::path& folder) {
  const std::optional<int64_t> step = step_of(folder);
  if (!step) return std::nullopt;
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  for (const StepFolder& other : list_step_folders(base::parent_of(named)))
    if (other.step < *step && verdict_of(other.path).good()) return other.path;
  return std::nullopt;
}

void mark_ruined(const fs::path& folder, const std::string& why) { mark(folder, &Manifest::ruined, why); }

std::vector<fs::path> leave_later_behind(const fs::path& out_dir, int64_t step) {
  std::vector<fs::path> left;
  for (const StepFolder& folder : list_step_folders(out_dir)) {
    if (folder.step < step) break;
    const Verdict verdict = verdict_of(folder.path);
    if (folder.step == step) {
      if (verdict.kind == Verdict::Kind::left_behind) mark(folder.path, &Manifest::left_behind, "");
    } else if (verdict.good()) {
      mark(folder.path, &Manifest::left_behind, fmt::format("a run went back to step {}", step));
      left.push_back(folder.path);
    }
  }
  return left;
}

std::vector<fs::path> keep_last_checkpoints(const fs::path& out_dir, int64_t step, int keep_last,
                                            std::span<const fs::path> protected_paths) {
  using Kind = Verdict::Kind;
  std::vector<fs::path> removed;
  if (keep_last < 1) return removed;
  const Kind newest = verdict_of(out_dir / step_folder_name(step)).kind;
  if (newest != Kind::good && newest != Kind::ruined) return removed;
  int kept = 1;
  for (const StepFolder& folder : list_step_folders(out_dir)) {
    if (folder.step >= step || !fs::exists(folder.path / kManifestName)) continue;
    if (!fs::exists(folder.path / kStateName)) continue;  // weights alone are not the run's
    bool goes = newest == Kind::good && kept >= keep_last;
    if (!goes) {
      const Kind kind = verdict_of(folder.path).kind;
      goes = kind == Kind::ruined || (kind == Kind::left_behind && newest == Kind::good);
      kept += kind == Kind::good ? 1 : 0;
    }
    if (!goes || is_or_holds(folder.path, protected_paths)) continue;
    try {
      remove_checkpoint(folder.path);
    } catch (const CheckpointError& error) {  // write-protected: the older ones go all the same
      base::warn("{}", error.what());
      continue;
    }
    removed.push_back(folder.path);
  }
  return removed;
}

}  // namespace trireme::checkpoint
