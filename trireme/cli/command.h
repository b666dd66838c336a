// The subcommands of `trireme`: one thin file each, all of the same shape.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

/// Everything after the subcommand's name. Returns the process's exit code; errors are thrown and printed by main.
using Arguments = std::span<const std::string>;

int run_pretrain(Arguments arguments);
int run_finetune_full(Arguments arguments);
int run_finetune_lora(Arguments arguments);
int run_finetune_dpo(Arguments arguments);
int run_grpo(Arguments arguments);
int run_launch(Arguments arguments);
int run_generate(Arguments arguments);
int run_convert(Arguments arguments);
int run_convert_config(Arguments arguments);
int run_merge_lora(Arguments arguments);
int run_evaluate(Arguments arguments);
int run_explain(Arguments arguments);
int run_plan(Arguments arguments);
int run_bench(Arguments arguments);
int run_doctor(Arguments arguments);
int run_data(Arguments arguments);
int run_checkpoint(Arguments arguments);
int run_report(Arguments arguments);

/// Whether `trireme WORD ...` is one of the above and starts no other program.
bool is_subcommand(const std::string& word);

/// The subcommand that LitGPT's short name `finetune` means; any other word as it is.
std::string whole_name(const std::string& subcommand);

inline bool is_help(std::string_view word) { return word == "--help" || word == "-h"; }

/// Prints `text` if a command is called with --help or without any word, and returns the exit code.
std::optional<int> answer_help(Arguments arguments, const std::string& text);

/// A hint for a subcommand of LitGPT, torchrun or Hugging Face that Trireme does not have; empty for other words.
std::string hint_for(std::string_view subcommand);

}  // namespace trireme::cli
