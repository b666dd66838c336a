// The one binary. Errors become one message and an exit code here and nowhere else: 2 for what the user can mend
// (settings, files, checkpoints), 74 for a disk that takes no more, 1 for the rest.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/cli/command.h"
#include "trireme/cli/other_words.h"
#include "trireme/launch/environment.h"
#include "trireme/launch/ssh_start.h"
#include "trireme/launch/stop_signal.h"
#include "trireme/launch/worker.h"

namespace {

using trireme::cli::Arguments;

struct Subcommand {
  const char* name;
  const char* help;
  int (*run)(Arguments);
};

constexpr Subcommand kSubcommands[] = {
    {"pretrain", "train a model from text: trireme pretrain llama-5m --data TextFiles --data.train_data_path my.txt",
     trireme::cli::run_pretrain},
    {"generate", "write text with a checkpoint: trireme generate out/austen --prompt \"It is\"",
     trireme::cli::run_generate},
    {"convert", "a model from one format into another: trireme convert model.gguf model", trireme::cli::run_convert},
    {"evaluate", "perplexity of a text, multiple choice: trireme evaluate out/austen --text my.txt",
     trireme::cli::run_evaluate},
    {"launch", "start the ranks of any program: trireme launch --nproc_per_node 4 -- ./my_program",
     trireme::cli::run_launch},
    {"doctor", "look at machines and ranks before a run, and say what to mend", trireme::cli::run_doctor},
    {"explain", "say beforehand what a run would do: config, mesh, schedule, memory, settings",
     trireme::cli::run_explain},
    {"data", "text to tokens: tokenize, stats, show, ledger, train_tokenizer", trireme::cli::run_data},
    {"checkpoint", "look after checkpoints: list, verify, diff, reshard, consolidate", trireme::cli::run_checkpoint},
    {"report", "what is left of a job says about its end: trireme report hang out/austen", trireme::cli::run_report},
    {"bench", "measure: train, ops, gemm, collectives, checkpoint, data, scaling, compare", trireme::cli::run_bench},
};

void print_help() {
  fmt::print("trireme {}: trains transformers across processes, in C++\n\n", trireme::base::kVersion);
  for (const Subcommand& s : kSubcommands) fmt::print("  trireme {:<10} {}\n", s.name, s.help);
  fmt::print(
      "\ntrireme SUBCOMMAND --help, or trireme help SUBCOMMAND, lists its settings; docs/settings.md has them all.\n");
}

// They have been blocked since before the libraries' constructors (before_main.cpp). A rank that trains takes requests
// to stop from its first moment; who starts ranks, or is to train alone, has nothing to lose before that.
void take_stop_signals(const std::string& subcommand) {
  const bool trains = subcommand == "pretrain";
  if (trains && trireme::launch::was_launched())
    trireme::launch::install_stop_signal();
  else if (trains || subcommand == "launch")
    trireme::launch::leave_when_stopped();
  else
    trireme::launch::unblock_stop_signals();
  trireme::launch::report_loaded();
}

int run(const std::vector<std::string>& words) {
  if (words.size() > 1 && words[0] == "help") {  // help pretrain, help explain memory
    std::vector<std::string> asked(words.begin() + 1, words.end());
    asked.emplace_back("--help");
    return run(asked);
  }
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help();
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version" || words[0] == "-V" || words[0] == "version") {
    fmt::print("trireme {}\n", trireme::base::kVersion);
    return 0;
  }
  take_stop_signals(words[0]);
  if (words[0] == "on_host") return trireme::launch::run_on_host();  // what --hosts runs by ssh; nobody types it
  for (const Subcommand& s : kSubcommands)
    if (words[0] == s.name) return s.run(Arguments(words).subspan(1));
  std::vector<std::string> names;
  for (const Subcommand& s : kSubcommands) names.emplace_back(s.name);
  const auto near = trireme::base::nearest(words[0], names);
  const std::string way_out = trireme::cli::way_out_for(words[0]);
  throw trireme::UsageError(fmt::format("error: there is no subcommand {}{}\n  {}trireme knows {}",
                                        words[0].empty() ? "''" : words[0],
                                        near && way_out.empty() ? fmt::format(" (did you mean {}?)", *near) : "",
                                        way_out.empty() ? "" : way_out + "\n  ", trireme::base::join(names, ", ")));
}

// Runs after whatever the program itself has registered, and instead of LibTorch's destructors: they would take back
// the registration of each of its operators, which costs a process 0.1 to 0.2 s.
void leave_without_destructors() {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // sanitizers report in what comes after
  on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        std::_Exit(status);
      },
      nullptr);
#endif
}

}  // namespace

bool trireme::cli::is_subcommand(const std::string& word) {
  return std::any_of(std::begin(kSubcommands), std::end(kSubcommands),
                     [&](const Subcommand& s) { return word == s.name && word != "launch"; });
}

int main(int argc, char** argv) try {
  leave_without_destructors();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes fails then, and says so
  return run(std::vector<std::string>(argv + 1, argv + argc));
} catch (const trireme::base::FileError& e) {
  trireme::launch::report_failure(e.what());
  trireme::base::report_error(e);
  return trireme::base::exit_code_of(e.code);
} catch (const trireme::UsageError& e) {
  trireme::launch::report_failure(e.what());
  trireme::base::report_error(e);
  return trireme::base::kRefused;
} catch (const trireme::base::StorageError& e) {
  trireme::launch::report_failure(e.what());
  trireme::base::report_error(e);
  return trireme::base::exit_code_of(e.code);
} catch (const trireme::CheckpointError& e) {
  trireme::launch::report_failure(e.what());
  trireme::base::report_error(e);
  return trireme::base::kRefused;
} catch (const trireme::launch::Stopped& e) {
  trireme::base::info("{}", e.what());
  return trireme::launch::kStoppedEarly;
} catch (const trireme::CommError& e) {
  trireme::launch::report_failure(e.what(), trireme::launch::fault_of(e));
  trireme::launch::name_rank_in_log();
  trireme::base::report_error(e);
  return 1;
} catch (const std::exception& e) {
  trireme::launch::report_failure(e.what());
  trireme::launch::name_rank_in_log();
  trireme::base::report_error(e);
  return 1;
}
