#include "trireme/launch/machines/print_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/config/arguments.h"
#include "trireme/config/value.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/machines/job_file.h"
#include "trireme/launch/machines/room.h"
#include "trireme/launch/machines/ssh_hosts.h"

namespace trireme::launch {
namespace {
void say_unless_given(const ParsedSettings& parsed, std::vector<std::string>& words, const std::string& key,
                      const std::string& value) {
  if (!parsed.given(key)) words.insert(words.end(), {"--" + key, value});
}

std::vector<std::string> words_of(const std::string& subcommand, bool can_resume, const ParsedSettings& parsed,
                                  std::span<const std::string> arguments) {
  std::istringstream in(subcommand);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  for (std::string& word : command_of_the_job(arguments)) words.push_back(std::move(word));
  for (const std::string_view name : kMachineSettings)  // a file of settings may name machines, too
    if (const std::string key = fmt::format("launch.{}", name); parsed.given(key))
      words.insert(words.end(), {"--" + key, "null"});
  say_unless_given(parsed, words, "devices", std::to_string(parsed.settings.devices.value_or(1)));
  if (parsed.settings.num_nodes > 1)
    say_unless_given(parsed, words, "num_nodes", std::to_string(parsed.settings.num_nodes));
  if (can_resume) say_unless_given(parsed, words, "resume", "auto");
  return words;
}
// torchrun's words for one machine, 1:1 and HOST:0, change nothing.
bool come_and_go(const LaunchSettings& l) {
  return (l.nnodes && *l.nnodes != "1" && *l.nnodes != "1:1") || (l.rdzv_endpoint && !l.rdzv_endpoint->ends_with(":0"));
}

// The job would refuse it.
void refuse_restarts_of_several(const Settings& s) {
  if (s.launch.max_restarts == 0 || s.num_nodes == 1 || s.launch.master_addr) return;
  throw UsageError(
      "error: launch.max_restarts starts the ranks of one machine again, and the scheduler those of several: leave it "
      "out, or say --launch.max_restarts 0");
}
}  // namespace

bool is_for_printing(std::string_view key) {
  constexpr std::string_view kOfTheFile[] = {"print", "image", "volume"};
  if (key.starts_with("launch.")) key.remove_prefix(7);
  return std::ranges::count(kMachineSettings, key) + std::ranges::count(kOfTheFile, key) > 0;
}

// Whether a setting is true or false, and may stand without a value. `key` may be the last part of its name.
bool is_flag(const std::string& key) {
  static const std::vector<std::string> kFlags = [] {
    Settings settings;
    std::vector<std::string> flags;
    declare(settings).for_each([&](const config::Section&, const config::Setting& setting) {
      if (config::type_name(setting) == "true or false") flags.emplace_back(setting.key);
    });
    return flags;
  }();
  return std::ranges::any_of(kFlags, [&](const std::string& flag) { return flag == key || flag.ends_with("." + key); });
}

std::vector<std::string> command_of_the_job(std::span<const std::string> arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const size_t equals = word.find('=');
    const size_t begin = word.find_first_not_of('-');
    const bool is_option = word.starts_with("--") || equals != std::string::npos;
    const bool is_kept =
        !is_option || begin == std::string::npos || !is_for_printing(word.substr(begin, equals - begin));
    if (is_kept) kept.push_back(word);
    // The next word is its value, whatever it looks like: --prompt hosts=a.
    if (!word.starts_with("--") || equals != std::string::npos || i + 1 == arguments.size()) continue;
    const std::string& next = arguments[i + 1];
    if (is_kept && (next.starts_with("--") || (is_flag(word.substr(begin)) && !config::is_truth_word(next)))) continue;
    if (is_kept) kept.push_back(next);
    ++i;
  }
  return kept;
}

int print_job(const std::string& subcommand, WhenStopped when_stopped, const ParsedSettings& parsed,
              std::span<const std::string> arguments) {
  const std::string_view kind = config::name_of(*parsed.settings.launch.print);
  if (!parsed.typed("launch.print"))
    throw UsageError(
        fmt::format("error: launch.print {} stands in {}, so the job itself would print and not run; say --print {} on "
                    "the command line",
                    kind, parsed.provenance.at("launch.print").place, kind));
  if (parsed.settings.overwrite)
    throw UsageError(
        "error: overwrite removes what lies in out_dir, and a job that is queued again would remove its own "
        "checkpoints: leave out --overwrite, and remove the earlier run before");
  using From = train::Resume::From;
  const train::Resume& resume = parsed.settings.resume;
  std::error_code ignored;
  const bool begins_anew =
      resume.from == From::nothing ||
      (resume.from == From::folder &&
       !std::filesystem::equivalent(resume.named.value_or(resume.folder), parsed.settings.out_dir, ignored));
  if (when_stopped == WhenStopped::resumes && parsed.typed("resume") && begins_anew)
    throw UsageError(
        "error: a job that is queued again goes on where it was, and this --resume would begin it anew: leave it out, "
        "and --resume auto stands in the file");
  if (*parsed.settings.launch.print == JobKind::hostfile && parsed.typed("launch.max_restarts"))
    throw UsageError(
        "error: launch.max_restarts is for Trireme's own launcher, and mpirun starts the ranks of a hostfile: leave it "
        "out");
  return print_job_file(parsed.settings, words_of(subcommand, when_stopped == WhenStopped::resumes, parsed, arguments),
                        when_stopped);
}

void refuse_changing_machines(const LaunchSettings& l) {
  if (!come_and_go(l)) return;
  if (l.rdzv_endpoint)
    throw UsageError(
        "launch.rdzv_endpoint is for machines without a scheduler, whose number may change: leave it out of a job "
        "file");
  throw UsageError(
      fmt::format("launch.nnodes {} is for machines without a scheduler, and a job file has a fixed number of them: "
                  "give num_nodes N "
                  "in its place",
                  *l.nnodes));
}

int print_job_file(const Settings& s, std::vector<std::string> words, WhenStopped when_stopped) {
  namespace fs = std::filesystem;
  const JobKind kind = *s.launch.print;
  refuse_changing_machines(s.launch);
  if (kind != JobKind::hostfile) refuse_restarts_of_several(s);
  // The room of other machines is unknown here; only the limit on the number of ranks applies.
  require_room({.num_ranks = static_cast<int>(s.devices.value_or(1))}, true);
  JobFile job{.program = fs::read_symlink("/proc/self/exe").string(),
              .arguments = std::move(words),
              .folder = fs::current_path().string(),
              .out_dir = s.out_dir,
              .num_nodes = static_cast<int>(s.num_nodes),
              .ranks_per_node = static_cast<int>(s.devices.value_or(1)),
              .threads_per_rank = static_cast<int>(s.launch.threads_per_rank.value_or(1)),
              .on_gpus = s.accelerator == engine::Accelerator::cuda,
              .grace = std::chrono::duration_cast<std::chrono::seconds>(s.launch.grace),
              .master_port = static_cast<int>(s.launch.master_port),
              .image = s.launch.image.value_or(""),
              .when_stopped = when_stopped};
  const std::string volume = s.launch.volume.value_or("");
  if (const size_t colon = volume.find(':'); colon != std::string::npos) {
    job.claim = volume.substr(0, colon);
    job.mount = volume.substr(colon + 1);
  }
  if (kind == JobKind::hostfile) {
    for (const HostRanks& host : ssh_hosts(s)) job.hosts.push_back(host.name);
    if (job.hosts.empty() && job.num_nodes == 1) job.hosts = {own_address()};
    if (std::ssize(job.hosts) != job.num_nodes)
      throw UsageError(
          fmt::format("error: launch.print hostfile needs the names of {} machines: --hosts a:4,b:4", job.num_nodes));
  }
  fmt::print("{}", kind == JobKind::sbatch ? sbatch_file(job) : kind == JobKind::k8s ? k8s_file(job) : host_file(job));
  return 0;
}

}  // namespace trireme::launch
