// The subcommands of `trireme`: one thin file each, all of the same shape.
#pragma once

#include <span>
#include <string>

namespace trireme::cli {

/// Everything after the subcommand's name. Returns the process's exit code; errors are thrown and printed by main.
using Arguments = std::span<const std::string>;

int run_pretrain(Arguments arguments);
int run_launch(Arguments arguments);
int run_generate(Arguments arguments);
int run_convert(Arguments arguments);
int run_evaluate(Arguments arguments);
int run_explain(Arguments arguments);
int run_bench(Arguments arguments);
int run_doctor(Arguments arguments);
int run_data(Arguments arguments);
int run_checkpoint(Arguments arguments);
int run_report(Arguments arguments);

/// Whether `trireme WORD ...` is one of the above.
bool is_subcommand(const std::string& word);

}  // namespace trireme::cli
