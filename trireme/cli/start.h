// What pretrain and bench have in common: read settings, refuse what can be refused, and either start the ranks or
// be one of them.
#pragma once

#include <functional>
#include <string>

#include "trireme/cli/command.h"
#include "trireme/config/parse.h"
#include "trireme/launch/environment.h"

namespace trireme::cli {

struct Job {
  std::string subcommand;                                     ///< as typed: {"bench", "train"} is "bench train"
  config::Overlay overlay;
  std::string help = {};                                      ///< how to call it, above its settings
  std::vector<std::string> help_groups = {};                  ///< settings that help lists; empty: all
  std::function<void(config::ParsedSettings&)> complete = {}; ///< fills what follows from other settings
  std::function<int64_t(const config::Settings&)> plan = {};  ///< bytes that a machine's ranks plan; refuses likewise
  std::function<void(const config::Settings&)> check;  ///< refuses before any process starts
  std::function<int(const config::Settings&, const launch::RankEnvironment&)> run;
  bool uses_gpus = false;  ///< takes accelerator cuda
  bool owns_out_dir = false;  ///< a run of its own lies there, one at a time (cli/out_dir_lock.h); what others record
                              ///< goes to a folder inside of it
  bool saves_when_stopped = false;  ///< takes requests to stop (launch/stop_signal.h); others end by the signal
  int answer_code = 0;  ///< exit code of a rank that is its answer and no failure; 0: there is none
};

/// Errors    UsageError, before any process starts where it can be known then
int start(const Job& job, Arguments arguments);

/// Errors    UsageError where the settings ask for a GPU, which this command does not use
void refuse_gpus(const config::Settings& settings, const std::string& subcommand);

}  // namespace trireme::cli
