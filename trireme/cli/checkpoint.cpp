#include "trireme/checkpoint/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/private_files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/checkpoint/diff.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/verify.h"
#include "trireme/cli/command.h"
#include "trireme/cli/out_dir_lock.h"
#include "trireme/observe/work_bar.h"

namespace trireme::cli {
namespace {

namespace ck = trireme::checkpoint;

constexpr const char* kCheckpointUsage =
    "trireme checkpoint list FOLDER                  what lies there: a run's folder, a checkpoint, a model of "
    "anybody's\n"
    "trireme checkpoint verify FOLDER                reads every byte of a checkpoint, or of all in a run's folder; "
    "names\n"
    "                                                file and tensors of each damaged block\n"
    "trireme checkpoint diff A B [--all]             tensor by tensor: names, shapes, dtypes, largest and rms "
    "difference\n"
    "trireme checkpoint reshard FROM TO              the same checkpoint in files of another size or dtype\n"
    "trireme checkpoint consolidate FROM TO          the weights alone, for other tools\n"
    "    --max_shard_bytes 5GB                       largest file of the new folder\n"
    "    --dtype as_is|fp32|bf16|fp16|fp64           of the model's files; fp32 from a bf16 file takes the master "
    "weights\n"
    "    --threads N                                 for verify and diff; one a core\n"
    "\n"
    "Exit code 0: well, or equal; 1: damaged, ruined, or different; 2: it could not be looked at.\n"
    "\n"
    "Other systems save a `full` state dict (one file, gathered on one rank), a `sharded` one (each rank's part of "
    "each\n"
    "tensor, tied to the number of ranks until it is resharded) or a `local` one (a rank's flat buffers, for exactly "
    "this\n"
    "mesh): FSDP's StateDictType and Accelerate's fsdp_state_dict_type. Here there is one format for the three:\n"
    "  full      every checkpoint is one: whole tensors under their Hugging Face names, though no rank gathers them;\n"
    "            `consolidate` leaves out what only training needs, --max_shard_bytes 1TB makes it a single file\n"
    "  sharded   every checkpoint is one: all ranks write and read their own parts at once, and any mesh reads any "
    "other's\n"
    "  local     not needed: each rank reads just the bytes that it holds, on the same mesh or another\n";

struct CheckpointWords {
  std::vector<std::string> folders;
  std::map<std::string, std::string> flags;
};

CheckpointWords read_checkpoint_words(Arguments arguments, const std::string& command, size_t folders,
                                      const std::vector<std::string>& known) {
  CheckpointWords words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with("--")) {
      words.folders.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const auto near = base::nearest(name, known);
      throw UsageError(fmt::format("error: trireme checkpoint {} has no --{}{}\n{}", command, name,
                                   near ? fmt::format(" (did you mean --{}?)", *near) : "", kCheckpointUsage));
    }
    if (name == "all") {
      words.flags[name] = "true";
    } else if (equals != std::string::npos) {
      words.flags[name] = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      words.flags[name] = arguments[++i];
    } else {
      throw UsageError(fmt::format("error: --{} needs a value", name));
    }
  }
  if (words.folders.size() != folders)
    throw UsageError(fmt::format("error: trireme checkpoint {} takes {}, {} given\n{}", command,
                                 base::plural(static_cast<int64_t>(folders), "folder"), words.folders.size(),
                                 kCheckpointUsage));
  return words;
}

int threads_of(const CheckpointWords& words) {
  if (!words.flags.contains("threads")) return 0;
  const auto count = base::parse_count(words.flags.at("threads"));
  if (!count || *count < 1 || *count > 1024)
    throw UsageError(fmt::format("error: --threads {} is not a number of threads", words.flags.at("threads")));
  return static_cast<int>(*count);
}

/// "2026-03-01 09:30"; "-" for a folder without files
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
  if (!info.verdict.good()) return "NOT COMPLETE: " + info.verdict.problem;
  return info.ours ? "complete" : "no manifest: a model of somebody else's, cannot be verified";
}

int list(Arguments arguments) {
  const CheckpointWords words = read_checkpoint_words(arguments, "list", 1, {});
  fmt::print("{:>9}  {:>10}  {:<16}  {:>7}  {:>9}  {:<10}  {}\n", "step", "size", "saved", "tensors", "optimizer",
             "dtype", "state");
  for (const ck::FolderInfo& info : ck::list_checkpoints(words.folders[0])) {
    fmt::print("{:>9}  {:>10}  {:<16}  {:>7}  {:>9}  {:<10}  {}\n", info.step ? std::to_string(*info.step) : "-",
               base::human_bytes(info.bytes), local_time(info.saved), info.model_tensors, info.optimizer_tensors,
               info.dtypes, kind_of(info));
  }
  return 0;
}

/// The exit code of one checkpoint, and what there is to say of it.
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
    fmt::print("{}: {} in {}, {} blocks\n", name, base::plural(static_cast<int64_t>(report.problems.size()), "problem"),
               base::plural(report.files, "file"), base::human_count(report.blocks));
    return 1;
  }
  if (!report.unreadable.empty()) {
    fmt::print("{}: nobody knows whether it is good, {} cannot be read\n", name,
               base::plural(static_cast<int64_t>(report.unreadable.size()), "file"));
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
  const CheckpointWords words = read_checkpoint_words(arguments, "verify", 1, {"threads"});
  const int threads = threads_of(words);
  const std::vector<std::filesystem::path> folders = ck::checkpoints_in(words.folders[0]);
  int code = 0;
  for (const std::filesystem::path& folder : folders) {
    const int one = verify_one(folder, threads);
    code = one == 1 || code == 1 ? 1 : std::max(code, one);  // what is known to be bad comes first
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
  const CheckpointWords words = read_checkpoint_words(arguments, "diff", 2, {"threads", "all"});
  const ck::DiffReport report = ck::diff(words.folders[0], words.folders[1], threads_of(words));
  for (const ck::TensorDiff& t : report.tensors)
    if (t.kind != Kind::equal || words.flags.contains("all")) fmt::print("{}\n", line_of(t));
  fmt::print("{}: {} equal, {} differ in values or dtype, {} in shape, {} only in A, {} only in B\n",
             base::plural(static_cast<int64_t>(report.tensors.size()), "tensor"), report.count(Kind::equal),
             report.count(Kind::values), report.count(Kind::shape), report.count(Kind::only_a),
             report.count(Kind::only_b));
  return report.equal() ? 0 : 1;
}

std::optional<ck::Dtype> dtype_of(const CheckpointWords& words) {
  static const std::map<std::string, std::optional<ck::Dtype>> kNames = {
      {"as_is", std::nullopt},     {"fp32", ck::Dtype::f32},      {"float32", ck::Dtype::f32},
      {"bf16", ck::Dtype::bf16},   {"bfloat16", ck::Dtype::bf16}, {"fp16", ck::Dtype::f16},
      {"float16", ck::Dtype::f16}, {"fp64", ck::Dtype::f64},      {"float64", ck::Dtype::f64}};
  if (!words.flags.contains("dtype")) return std::nullopt;
  const auto found = kNames.find(words.flags.at("dtype"));
  if (found == kNames.end())
    throw UsageError(
        fmt::format("error: --dtype {} is not known; as_is, fp32, bf16, fp16 and fp64 are", words.flags.at("dtype")));
  return found->second;
}

int rewrite(Arguments arguments, const std::string& command) {
  const CheckpointWords words = read_checkpoint_words(arguments, command, 2, {"max_shard_bytes", "dtype"});
  ck::RewriteOptions options{.dtype = dtype_of(words), .weights_only = command == "consolidate"};
  if (words.flags.contains("max_shard_bytes")) {
    const auto bytes = base::parse_bytes(words.flags.at("max_shard_bytes"));
    if (!bytes || *bytes < 1)
      throw UsageError(fmt::format("error: --max_shard_bytes {} is not a size; 5GB or 512MiB are",
                                   words.flags.at("max_shard_bytes")));
    options.max_shard_bytes = *bytes;
  }
  refuse_in_a_running_jobs_folder(words.folders[1]);
  base::make_files_as_private_as(std::vector<std::filesystem::path>{words.folders[0]});
  ck::SaveResult result;
  {
    observe::WorkBar bar(command);
    options.progress = [&](const ck::SaveProgress& p) { bar.show(done_share(p.done_bytes, p.total_bytes)); };
    result = ck::rewrite(words.folders[0], words.folders[1], options);
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
  const bool help = std::any_of(arguments.begin(), arguments.end(),
                                [](const std::string& word) { return word == "--help" || word == "-h"; });
  if (arguments.empty() || help) {
    fmt::print("{}", kCheckpointUsage);
    return arguments.empty() ? 2 : 0;
  }
  if (const auto found = commands.find(arguments[0]); found != commands.end())
    return found->second(arguments.subspan(1));
  std::vector<std::string> names;
  for (const auto& [name, run] : commands) names.push_back(name);
  const auto near = base::nearest(arguments[0], names);
  throw UsageError(fmt::format("error: there is no trireme checkpoint {}{}\n{}", arguments[0],
                               near ? fmt::format(" (did you mean {}?)", *near) : "", kCheckpointUsage));
}

}  // namespace trireme::cli
