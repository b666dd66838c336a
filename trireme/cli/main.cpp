// The program. Only here do errors become a message and an exit code: 2 for what the user can correct (settings, files,
// checkpoints), 74 for a full or failing disk, 1 for the rest.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/mapped_ranges.h"
#include "trireme/base/process.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/cli/command.h"
#include "trireme/cli/training.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/ssh_start.h"
#include "trireme/launch/supervise/standard_descriptors.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/worker.h"
#include "trireme/settings/parse.h"
#include "trireme/train/failure.h"

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
    {"finetune_full", "train a model further: trireme finetune_full FOLDER --data JSON --data.json_path chat.jsonl",
     trireme::cli::run_finetune_full},
    {"finetune_lora", "train adapters on a model: trireme finetune_lora FOLDER --data JSON --data.json_path chat.jsonl",
     trireme::cli::run_finetune_lora},
    {"finetune_dpo",
     "train a model on pairs of replies: trireme finetune_dpo FOLDER --data JSON --data.json_path pairs.jsonl",
     trireme::cli::run_finetune_dpo},
    {"grpo",
     "train a model on rewards for its answers: trireme grpo FOLDER --grpo.prompts train.jsonl --reward.functions "
     "exact",
     trireme::cli::run_grpo},
    {"generate", "generate text with a checkpoint: trireme generate out/austen --prompt \"It is\"",
     trireme::cli::run_generate},
    {"convert", "convert a model to another format: trireme convert model.gguf model", trireme::cli::run_convert},
    {"convert_config", "write another system's settings as Trireme's YAML: trireme convert_config --config ds.json",
     trireme::cli::run_convert_config},
    {"merge_lora", "write a model with an adapter merged: trireme merge_lora out/finetune/lora",
     trireme::cli::run_merge_lora},
    {"evaluate", "perplexity of a text, multiple choice: trireme evaluate out/austen --text my.txt",
     trireme::cli::run_evaluate},
    {"launch", "start the ranks of any program: trireme launch --nproc_per_node 4 -- ./my_program",
     trireme::cli::run_launch},
    {"doctor", "check machines and ranks before a run, and say what to fix", trireme::cli::run_doctor},
    {"explain", "show what a run would do, without running it: config, mesh, schedule, memory, generate, settings",
     trireme::cli::run_explain},
    {"plan",
     "what a training would need and take, on hardware that need not be here: trireme plan llama-3-8b --cluster 8xH100 "
     "--recompute full",
     trireme::cli::run_plan},
    {"data", "turn text into tokens: tokenize, stats, show, ledger, train_tokenizer", trireme::cli::run_data},
    {"checkpoint", "inspect and rewrite checkpoints: list, verify, diff, reshard, consolidate",
     trireme::cli::run_checkpoint},
    {"report", "find out how a job ended or where it hangs: trireme report hang out/austen", trireme::cli::run_report},
    {"bench", "measure: train, ops, gemm, generate, collectives, checkpoint, data, scaling, calibrate, compare",
     trireme::cli::run_bench},
};

std::vector<std::string> subcommands() {
  std::vector<std::string> names;
  for (const Subcommand& s : kSubcommands) names.emplace_back(s.name);
  return names;
}

// Behind help. What is like no command is the name of a setting, maybe mistyped.
bool asks_for_setting(const std::string& word) {
  const std::vector<std::string> names = subcommands();
  if (std::ranges::count(names, trireme::cli::whole_name(word)) != 0) return false;
  return trireme::is_setting(word) ||
         (trireme::cli::hint_for(word).empty() && trireme::base::did_you_mean(word, names).empty());
}

void print_help() {
  fmt::print("trireme {}: trains transformers across processes, in C++\n\n", trireme::base::kVersion);
  for (const Subcommand& s : kSubcommands) fmt::print("  trireme {:<14} {}\n", s.name, s.help);
  fmt::print(
      "\ntrireme SUBCOMMAND --help, or trireme help SUBCOMMAND, says what it takes. trireme help NAME explains a "
      "setting or a\ngroup of them, as in trireme help train.max_steps; docs/settings.md lists them all. trireme "
      "version "
      "prints the version.\n");
}

// Stop signals have been blocked since before the libraries' constructors (before_main.cpp). A rank that trains handles
// them from now on. A process that starts ranks or trains alone has nothing to save yet, so the signal ends it.
void take_stop_signals(const std::string& subcommand) {
  const bool trains = trireme::cli::trains(subcommand);
  if (trains && trireme::launch::was_launched())
    trireme::launch::install_stop_signal();
  else if (trains || subcommand == "launch")
    trireme::launch::leave_when_stopped();
  else
    trireme::launch::unblock_stop_signals();
  trireme::launch::report_loaded();
}

// DeepSpeed's launcher, and older ones of PyTorch, type it right behind the program's name.
bool is_local_rank(const std::string& word) {
  return word.starts_with("--local_rank=") || word.starts_with("--local-rank=");
}

int run(std::vector<std::string> words) {
  if (words.size() > 1 && is_local_rank(words[0])) std::swap(words[0], words[1]);
  if (words.size() > 1 && words[0] == "help") {  // help pretrain, help explain memory
    std::vector<std::string> asked(words.begin() + 1, words.end());
    if (asks_for_setting(asked[0]))  // help train.max_steps
      asked.insert(asked.begin(), {"explain", "settings"});
    else
      asked.emplace_back("--help");
    return run(std::move(asked));
  }
  if (words.empty() || trireme::cli::is_help(words[0]) || words[0] == "help") {
    print_help();
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version" || words[0] == "-V" || words[0] == "version") {
    fmt::print("trireme {}\n", trireme::base::kVersion);
    return 0;
  }
  words[0] = trireme::cli::whole_name(words[0]);
  take_stop_signals(words[0]);
  if (words[0] == "on_host") return trireme::launch::run_on_host();  // --hosts runs this by ssh
  for (const Subcommand& s : kSubcommands)
    if (words[0] == s.name) return s.run(Arguments(words).subspan(1));
  const std::vector<std::string> names = subcommands();
  const std::string hint = trireme::cli::hint_for(words[0]);
  throw trireme::UsageError(fmt::format("error: there is no subcommand {}{}\n  {}trireme knows {}",
                                        words[0].empty() ? "''" : words[0],
                                        hint.empty() ? trireme::base::did_you_mean(words[0], names) : "",
                                        hint.empty() ? "" : hint + "\n  ", trireme::base::join(names, ", ")));
}

// Runs after the program's own exit handlers and replaces LibTorch's destructors, which would unregister each of its
// operators: 0.1 to 0.2 s.
void leave_without_destructors() {
#ifndef TRIREME_SANITIZED  // sanitizers report at exit
  on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        std::_Exit(status);
      },
      nullptr);
#endif
}

// Prints the error, tells the launcher, and returns the exit code.
int report(const std::exception& e) {
  namespace base = trireme::base;
  if (const auto* place = dynamic_cast<const std::filesystem::filesystem_error*>(&e)) try {
      base::throw_file_error(*place);
    } catch (const base::FileError& named) {
      return report(named);
    }
  // What the standard library throws where no thread can be started; launchers say it of processes themselves.
  if (const auto* system = dynamic_cast<const std::system_error*>(&e);
      system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return report(trireme::Error("no thread or process can be started: " + base::why_not_started(EAGAIN)));
  const bool refused =
      dynamic_cast<const trireme::UsageError*>(&e) || dynamic_cast<const trireme::CheckpointError*>(&e);
  if (refused) {
    if (!trireme::launch::report_refusal(e.what())) base::report_error(e);
  } else {
    trireme::train::report_failure(e);
    trireme::launch::name_rank_in_log();
    base::report_error(e);
  }
  return base::exit_code_of(e);
}

// What commands print is their result, and one that is lost is no success. (Logs go to standard error.)
void require_written_output() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return;
  int code = errno;
  if (code == 0) code = ::write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO;  // an earlier write failed: asked again
  trireme::base::throw_file_error("write", "standard output", code);
}

}  // namespace

bool trireme::cli::is_subcommand(const std::string& word) {
  return std::any_of(std::begin(kSubcommands), std::end(kSubcommands),
                     [&](const Subcommand& s) { return word == s.name && word != "launch"; });
}

std::string trireme::cli::whole_name(const std::string& subcommand) {
  return subcommand == "finetune" ? "finetune_lora" : subcommand;
}

std::optional<int> trireme::cli::answer_help(Arguments arguments, const std::string& text) {
  if (!arguments.empty() && !is_help(arguments[0])) return std::nullopt;
  fmt::print("{}", text);
  return arguments.empty() ? base::kRefused : 0;
}

int main(int argc, char** argv) try {
  trireme::launch::fill_standard_descriptors();
  leave_without_destructors();
  trireme::base::tell_faults_in_mappings();
  std::signal(SIGCHLD, SIG_DFL);  // ignored, as a parent may leave it, children would end without a status
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes then fails with an error
  const std::vector<std::string> words(argv + 1, argv + argc);
  const int code = run(words);
  // A run that its closed terminal has stopped can write there no more, and can be given again all the same.
  if (code != trireme::launch::kStoppedEarly || trireme::launch::stop_signal() != SIGHUP) require_written_output();
  return code;
} catch (const trireme::launch::Stopped& e) {
  // Of ranks that end because another one has failed, the launcher tells.
  if (trireme::launch::stop_signal() != trireme::launch::kOthersEnded) trireme::base::info("{}", e.what());
  return trireme::launch::kStoppedEarly;
} catch (const std::exception& e) {
  return report(e);
}
