// What all commands with ranks have in common: they read settings, refuse wrong ones early, decide how many ranks there
// are, and then start the ranks or are one of them.
#pragma once

#include <functional>
#include <string>

#include "trireme/cli/command.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

struct Job {
  std::string subcommand;  ///< as typed: "bench train"
  config::Overlay overlay;
  std::string help = {};  ///< how to call it, above its settings
  std::vector<std::string> help_groups = {};  ///< settings that help lists; empty: all
  const char* also_takes = "";  ///< others that the command reads, where help does not list all
  std::function<void(ParsedSettings&)> complete = {};  ///< sets settings that follow from others
  std::function<int64_t(const Settings&)> plan = {};  ///< bytes that one machine's ranks plan; also refuses settings
  std::function<void(const Settings&)> check;  ///< refuses settings before any process starts
  std::function<int(const Settings&, const launch::RankEnvironment&)> run;
  std::function<void(const Settings&)> show_plan = {};  ///< of dry_run, which only commands that train take
  bool uses_gpus = false;  ///< accepts accelerator cuda
  /// Its run lies in out_dir, which it locks (cli/out_dir_lock.h). Other commands write to a folder inside out_dir.
  bool owns_out_dir = false;
  /// Handles requests to stop (launch/supervise/stop_signal.h), and resumes.
  bool saves_when_stopped = false;
  /// Of a command that does not save: what a request to stop does with such settings. By default the signal ends it.
  std::function<launch::WhenStopped(const Settings&)> when_asked = {};
  launch::WhenStopped when_stopped(const Settings& settings) const {
    return saves_when_stopped ? launch::WhenStopped::resumes
           : when_asked       ? when_asked(settings)
                              : launch::WhenStopped::dies;
  }
  int answer_code = 0;  ///< a rank's exit code that is a result, not a failure; 0: none
};

/// Errors    UsageError, before any process starts if possible
int start(const Job& job, Arguments arguments);

/// Of a command that trains nothing: what an optimizer cannot keep in a number format does not matter.
void leave_out_optimizer(Settings& settings);

/// Errors    UsageError if the settings ask for a GPU, which this command does not use
void refuse_gpus(const Settings& settings, const std::string& subcommand);

/// Refuses a process that would work alone although a scheduler meant it as one of several: the process of a batch
/// script itself, or one pod of a job.
///
/// Errors    UsageError
void refuse_a_world_of_one(const launch::RankEnvironment& environment, const Settings& settings,
                           const std::string& subcommand, bool is_training);

/// For a process that starts ranks. Refused once; otherwise every rank would refuse it.
/// Errors    UsageError if comm.backend is mpi
void refuse_mpi_without_mpirun(const Settings& settings, const std::string& subcommand);

/// For a launcher's rank: takes the number of ranks from the launcher, and a share of the cores (share_threads).
///
/// Errors    UsageError if the settings give another number of ranks
void take_over_ranks(const launch::RankEnvironment& environment, Settings& settings);

/// A rank of another launcher takes its share of the cores, unless the user has said how many threads it has, or the
/// ranks of this host are yet to be found.
void share_threads(const launch::RankEnvironment& environment, Settings& settings);

/// If neither devices nor a mesh is given: one rank for each GPU, or for each NUMA node with one thread a core.
void choose_ranks(Settings& settings);

/// "torchrun started 4 ranks on 2 hosts (a, b)"
std::string describe_launcher(const launch::RankEnvironment& environment);

}  // namespace trireme::cli
