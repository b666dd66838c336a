// The subcommands of `trireme data`: one thin file each (data_<name>.cpp), listed in data.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/settings/parse.h"
#include "trireme/text/tokenizer.h"

namespace trireme::cli {

struct DataCommand {
  const char* name;
  const char* usage;  ///< one line: "trireme data stats PREFIX"
  const char* help;   ///< what it does, in one line
  int (*run)(const ParsedSettings& parsed);
  std::vector<std::string> settings;  ///< that it reads; --help lists them
  std::vector<std::string> needed = {};  ///< of these, the ones without which it does nothing
  bool takes_a_run = false;           ///< all settings of a run may be given, as they were given to the run
};

int data_tokenize(const ParsedSettings& parsed);
int data_stats(const ParsedSettings& parsed);
int data_train_tokenizer(const ParsedSettings& parsed);
int data_show(const ParsedSettings& parsed);
int data_ledger(const ParsedSettings& parsed);

/// The tokenizer that data.tokenizer names, which the command needs.
/// Errors    UsageError when none is named
std::unique_ptr<text::Tokenizer> named_tokenizer(const Settings& settings, const std::string& command);

}  // namespace trireme::cli
