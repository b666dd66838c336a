#include "trireme/checkpoint/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/adapt/base_fingerprint.h"
#include "trireme/adapt/open_model.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/checkpoint/diff.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/settings.h"
#include "trireme/checkpoint/verify.h"
#include "trireme/cli/command.h"
#include "trireme/cli/out_dir_lock.h"
#include "trireme/config/parse.h"
#include "trireme/config/report.h"
#include "trireme/formats/whole_model.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/observe/work_bar.h"

namespace trireme::cli {
namespace {

namespace ck = trireme::checkpoint;

constexpr const char* kCheckpointUsage =
    "trireme checkpoint list FOLDER             what a folder holds: a run's folder, a checkpoint, or any model\n"
    "trireme checkpoint verify FOLDER           reads every byte of a checkpoint, or of all in a run's folder; names\n"
    "                                           the file and the tensors of each damaged block; --base PATH says\n"
    "                                           where the base of an adapter lies now\n"
    "trireme checkpoint diff A B [--all]        tensor by tensor: names, shapes, dtypes, largest and rms difference\n"
    "trireme checkpoint reshard FROM TO         the same checkpoint in files of another size or dtype\n"
    "trireme checkpoint consolidate FROM TO     the weights alone, for other tools\n"
    "\n"
    "Exit code 0: good, or equal; 1: damaged, ruined, or different; 2: it could not be read.\n"
    "\n"
    "Other systems save a `full` state dict (one file, gathered on one rank), a `sharded` one (each rank's part of\n"
    "each tensor, tied to the number of ranks until it is resharded) or a `local` one (a rank's flat buffers, for\n"
    "exactly one mesh): FSDP's StateDictType and Accelerate's fsdp_state_dict_type. Trireme has one format for all:\n"
    "  full      every checkpoint holds whole tensors under their Hugging Face names, though no rank gathers them;\n"
    "            `consolidate` leaves out what only training needs, --max_shard_bytes 1TB makes it a single file\n"
    "  sharded   all ranks write and read their own parts in parallel, and any mesh reads what any other wrote\n"
    "  local     not needed: each rank reads only the bytes that it holds, on the same mesh or another\n";

struct CheckpointWords {
  std::vector<std::string> folders;
  std::optional<int64_t> threads;
  std::optional<std::string> base;
  bool all = false;
  int64_t max_shard_bytes = ck::RewriteOptions{}.max_shard_bytes;
  std::optional<ck::Dtype> dtype;

  int num_threads() const {
    return static_cast<int>(threads.value_or(std::max(1U, std::thread::hardware_concurrency())));
  }
};

config::Section section_of(CheckpointWords& words, const std::vector<std::string_view>& taken) {
  std::vector<config::Setting> all = {
      {"threads",
       &words.threads,
       "threads that read",
       {.unit = "threads",
        .at_least = 1,
        .at_most = 1024,
        .absent = "auto",
        .when_absent = "one a core",
        .example = "4"}},
      {"base",
       &words.base,
       "where the base of an adapter lies now",
       {.absent = "null", .when_absent = "where the adapter says", .example = "out/model"}},
      {"all", &words.all, "list equal tensors too"},
      {"max_shard_bytes", &words.max_shard_bytes, "largest file of the new folder", {.at_least = 1, .bytes = true}},
      {"dtype",
       &words.dtype,
       "dtype of the model's files; fp32 from a bf16 file takes the master weights",
       {.absent = "as_is", .when_absent = "that of each tensor"}}};
  std::erase_if(all, [&](const config::Setting& row) { return std::ranges::find(taken, row.key) == taken.end(); });
  return {.name = "", .title = "options", .rows = std::move(all)};
}

// Nothing if help was asked for and printed.
std::optional<CheckpointWords> read_checkpoint_words(Arguments arguments, const std::string& command, size_t folders,
                                                     const std::vector<std::string_view>& taken) {
  CheckpointWords words;
  const config::Section options = section_of(words, taken);
  config::Parsed parsed = config::parse(
      arguments, {.command = "checkpoint " + command, .positional = "", .takes_list = true, .own = {options}});
  if (parsed.help) {
    fmt::print("{}{}{}", kCheckpointUsage, taken.empty() ? "" : "\n", config::help_text(config::Table({options})));
    return std::nullopt;
  }
  words.folders = std::move(parsed.list);
  if (words.folders.size() != folders)
    throw UsageError(fmt::format("error: trireme checkpoint {} takes {}, {} given\n{}", command,
                                 base::plural(static_cast<int64_t>(folders), "folder"), words.folders.size(),
                                 kCheckpointUsage));
  return words;
}

/// "2026-03-01 09:30"; "-" for a folder without files.
std::string local_time(const std::optional<std::filesystem::file_time_type>& time) {
  if (!time) return "-";
  const auto system =
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(std::chrono::file_clock::to_sys(*time));
  const std::time_t seconds = std::chrono::system_clock::to_time_t(system);
  std::tm parts{};
  char text[32] = {};
  return std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", ::localtime_r(&seconds, &parts)) > 0 ? text : "?";
}

double done_share(int64_t done, int64_t total) {
  return total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
}

std::string kind_of(const ck::FolderInfo& info) {
  if (info.verdict.kind == ck::Verdict::Kind::ruined) return "RUINED: " + info.verdict.problem;
  if (info.verdict.kind == ck::Verdict::Kind::left_behind) return "LEFT BEHIND: " + info.verdict.problem;
  if (info.verdict.kind == ck::Verdict::Kind::weights_alone) return "weights alone: no run can go on from them";
  if (info.verdict.kind == ck::Verdict::Kind::unreadable) return "UNKNOWN: " + info.verdict.problem;
  if (!info.verdict.good()) return "NOT COMPLETE: " + info.verdict.problem;
  return info.ours ? "complete" : "no manifest: not written by Trireme, cannot be verified";
}

int list(Arguments arguments) {
  const auto words = read_checkpoint_words(arguments, "list", 1, {});
  if (!words) return 0;
  const std::vector<ck::FolderInfo> found = ck::list_checkpoints(words->folders[0]);
  fmt::print("{:>9}  {:>10}  {:<16}  {:>7}  {:>9}  {:<10}  {}\n", "step", "size", "saved", "tensors", "optimizer",
             "dtype", "state");
  for (const ck::FolderInfo& info : found)
    fmt::print("{:>9}  {:>10}  {:<16}  {:>7}  {:>9}  {:<10}  {}\n", info.step ? std::to_string(*info.step) : "-",
               base::human_bytes(info.bytes), local_time(info.saved), info.model_tensors, info.optimizer_tensors,
               info.dtypes, kind_of(info));
  return 0;
}

/// A checkpoint of an adapter names its base and the fingerprint of it: prints whether it is still there, unchanged.
int verify_base(const std::filesystem::path& folder, const std::optional<std::string>& given) {
  if (!adapt::is_adapter_folder(folder)) return 0;
  const adapt::AdapterFolder adapter = adapt::open_adapter_folder(folder);
  if (adapter.base_fingerprint.empty()) return 0;
  try {
    const std::filesystem::path base = adapt::base_of(adapter, given.value_or(""));
    if (adapt::fingerprint_of(adapt::open_base(base)) == adapter.base_fingerprint) {
      fmt::print("{}: its base {} is unchanged\n", folder.string(),
                 adapter.holds_base && !given ? "is in it and" : base.string());
      return 0;
    }
    fmt::print("changed  {}: its base {} is not the one that it was trained on\n", folder.string(), base.string());
    return 1;
  } catch (const UsageError& error) {
    fmt::print("no base  {}\n", error.what());
  } catch (const CheckpointError& error) {
    fmt::print("no base  {}\n", error.what());
  }
  return 2;
}

/// Prints what is wrong with one checkpoint; returns its exit code.
int verify_one(const std::filesystem::path& folder, int threads) {
  ck::VerifyReport report;
  {
    observe::WorkBar bar("verify");
    report = ck::verify(folder, {.threads = threads,
                                 .progress = [&](int64_t done, int64_t total) { bar.show(done_share(done, total)); }});
  }
  const std::string name = folder.string();
  for (const std::string& problem : report.problems) fmt::print("damaged  {}\n", problem);
  for (const std::string& problem : report.unreadable) fmt::print("unread   {}\n", problem);
  if (!report.ruined.empty()) fmt::print("ruined   {}: {}\n", name, report.ruined);
  if (!report.problems.empty()) {
    fmt::print("{}: {} in {}, {} blocks\n", name, base::plural(std::ssize(report.problems), "problem"),
               base::plural(report.files, "file"), base::human_count(report.blocks));
    return 1;
  }
  if (!report.unreadable.empty()) {
    fmt::print("{}: it is unknown whether it is good, because {} cannot be read\n", name,
               base::plural(std::ssize(report.unreadable), "file"));
    return 2;
  }
  if (!report.has_manifest) {
    fmt::print("{}: {}, headers are sound; without a manifest the contents cannot be verified\n", name,
               base::plural(report.files, "file"));
    return 0;
  }
  fmt::print("{}: {}, {}, all {} blocks are as they were saved\n", name, base::plural(report.files, "file"),
             base::human_bytes(report.bytes), base::human_count(report.blocks));
  return report.ruined.empty() ? 0 : 1;
}

int verify(Arguments arguments) {
  const auto words = read_checkpoint_words(arguments, "verify", 1, {"threads", "base"});
  if (!words) return 0;
  const std::vector<std::filesystem::path> folders = ck::checkpoints_in(words->folders[0]);
  for (const std::filesystem::path& folder : folders)
    if (words->base && !adapt::is_adapter_folder(folder))
      throw UsageError(fmt::format(
          "error: --base says where an adapter's base lies, and {} is no adapter; leave it out", folder.string()));
  int code = 0;
  for (const std::filesystem::path& folder : folders) {
    int one = verify_one(folder, words->num_threads());
    if (one == 0) one = verify_base(folder, words->base);
    code = one == 1 || code == 1 ? 1 : std::max(code, one);  // damage outweighs what could not be read
  }
  return code;
}

std::string line_of(const ck::TensorDiff& t) {
  using Kind = ck::TensorDiff::Kind;
  switch (t.kind) {
    case Kind::only_a:
      return fmt::format("only in A   {} {} {}", t.name, ck::dtype_name(t.dtype_a), ck::shape_text(t.shape_a));
    case Kind::only_b:
      return fmt::format("only in B   {} {} {}", t.name, ck::dtype_name(t.dtype_b), ck::shape_text(t.shape_b));
    case Kind::shape:
      return fmt::format("shape       {} {} in A, {} in B", t.name, ck::shape_text(t.shape_a),
                         ck::shape_text(t.shape_b));
    case Kind::equal:
      return fmt::format("equal       {} {} {}", t.name, ck::dtype_name(t.dtype_a), ck::shape_text(t.shape_a));
    case Kind::values:
      break;
  }
  const std::string dtypes =
      t.dtype_a == t.dtype_b ? std::string(ck::dtype_name(t.dtype_a))
                             : fmt::format("{} in A, {} in B", ck::dtype_name(t.dtype_a), ck::dtype_name(t.dtype_b));
  if (t.max_difference == 0)
    return fmt::format("{:<11} {} {}: equal values", t.dtype_a == t.dtype_b ? "bytes" : "dtype", t.name, dtypes);
  return fmt::format("values      {} {}: largest difference {:.3g}, rms {:.3g} (rms of A {:.3g})", t.name, dtypes,
                     t.max_difference, t.rms_difference, t.rms);
}

int diff(Arguments arguments) {
  using Kind = ck::TensorDiff::Kind;
  const auto words = read_checkpoint_words(arguments, "diff", 2, {"threads", "all"});
  if (!words) return 0;
  const ck::DiffReport report =
      ck::diff(ck::newest_or_itself(words->folders[0]), ck::newest_or_itself(words->folders[1]), words->num_threads());
  for (const ck::TensorDiff& t : report.tensors)
    if (t.kind != Kind::equal || words->all) fmt::print("{}\n", line_of(t));
  fmt::print("{}: {} equal, {} differ in values or dtype, {} in shape, {} only in A, {} only in B\n",
             base::plural(std::ssize(report.tensors), "tensor"), report.count(Kind::equal), report.count(Kind::values),
             report.count(Kind::shape), report.count(Kind::only_a), report.count(Kind::only_b));
  return report.equal() ? 0 : 1;
}

// A folder's name says its step: commands would take a copy for another step of its run.
void refuse_another_steps_name(const std::string& from, const std::string& to) {
  const std::optional<int64_t> named = ck::step_of(to);
  if (!named) return;
  const ck::Checkpoint source = ck::open_checkpoint(from);
  if (source.has_manifest && source.step != *named)
    throw UsageError(
        fmt::format("error: {} would be taken for step {}, and {} is step {}; give the folder another name", to, *named,
                    from, source.step));
}

int rewrite(Arguments arguments, const std::string& command) {
  const auto words = read_checkpoint_words(arguments, command, 2, {"max_shard_bytes", "dtype"});
  if (!words) return 0;
  const std::string from = ck::newest_or_itself(words->folders[0]), &to = words->folders[1];
  ck::RewriteOptions options{
      .max_shard_bytes = words->max_shard_bytes, .dtype = words->dtype, .weights_only = command == "consolidate"};
  if (adapt::is_adapter_folder(from))
    throw UsageError(fmt::format(
        "error: {} is an adapter, whose files always have the same form: copy the folder, or write it merged "
        "into its base with trireme merge_lora",
        from));
  refuse_in_a_running_jobs_folder(to);
  if (options.weights_only || !base::is_file(std::filesystem::path(from) / ck::kStateName))
    refuse_weights_among_a_runs_steps(to);
  else
    refuse_another_steps_name(from, to);
  if (options.weights_only) formats::check_model_folder(from);
  base::make_files_as_private_as(std::vector<std::filesystem::path>{from});
  launch::install_stop_signal();
  ck::SaveResult result;
  try {
    observe::WorkBar bar(command);
    options.progress = [&](const ck::SaveProgress& p) {
      launch::end_work_when_stopped();
      bar.show(done_share(p.done_bytes, p.total_bytes));
    };
    result = ck::rewrite(from, to, options);
  } catch (const Error&) {  // a save tells an end by request as a failure
    launch::end_work_when_stopped();
    throw;
  }
  fmt::print("saved    {} ({}, {:.1f} s)\n", result.path.string(), base::human_bytes(result.bytes),
             result.seconds.count());
  return 0;
}

}  // namespace

int run_checkpoint(Arguments arguments) {
  const std::map<std::string, std::function<int(Arguments)>> commands = {
      {"list", list},
      {"verify", verify},
      {"diff", diff},
      {"reshard", [](Arguments rest) { return rewrite(rest, "reshard"); }},
      {"consolidate", [](Arguments rest) { return rewrite(rest, "consolidate"); }}};
  if (const auto code = answer_help(arguments, kCheckpointUsage)) return *code;
  if (const auto found = commands.find(arguments[0]); found != commands.end())
    return found->second(arguments.subspan(1));
  std::vector<std::string> names;
  for (const auto& [name, run] : commands) names.push_back(name);
  throw UsageError(fmt::format("error: there is no trireme checkpoint {}{}\n{}", arguments[0],
                               base::did_you_mean(arguments[0], names), kCheckpointUsage));
}

}  // namespace trireme::cli
