#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/data_commands.h"
#include "trireme/cli/read_settings.h"
#include "trireme/text/byte_tokenizer.h"
#include "trireme/text/load_tokenizer.h"

namespace trireme::cli {
namespace {

const std::vector<DataCommand>& commands() {
  static const std::vector<DataCommand> kCommands = {
      {"tokenize", "trireme data tokenize FILES|FOLDERS... --data.tokenizer T --output PREFIX",
       "text, JSONL and Parquet to a tokenized set, on all cores; after an interruption the same command continues",
       data_tokenize},
      {"stats",
       "trireme data stats PREFIX [PREFIX...]",
       "documents, tokens and lengths of tokenized sets, and the share of tokens that is trained on",
       data_stats,
       {"prepare"}},
      {"train_tokenizer", "trireme data train_tokenizer FILES|FOLDERS... --vocab_size N --output FOLDER",
       "trains a byte-level BPE on the texts and writes tokenizer.json", data_train_tokenizer},
      {"show", "trireme data show FILES|PREFIX --data.tokenizer T [--count N] [--ids]",
       "documents token by token; marks the tokens that are trained on", data_show},
      {"ledger",
       "trireme data ledger MODEL|--config FILE ... --step N",
       "the samples of a pretraining step: source, documents, tokens; computed from the settings alone",
       data_ledger,
       {"data", "train", "prepare"}},
  };
  return kCommands;
}

std::string data_overview() {
  std::string text = "trireme data turns text into tokens to train on, and shows them (docs/data.md).\n\n";
  for (const DataCommand& c : commands())
    text += fmt::format("  {:<16} {}\n  {:<16} {}\n", c.name, c.help, "", c.usage);
  return text + "\ntrireme data SUBCOMMAND --help lists its settings.\n";
}

}  // namespace

std::unique_ptr<text::Tokenizer> named_tokenizer(const Settings& settings, const std::string& command) {
  const auto& name = settings.data.tokenizer;
  if (!name)
    throw UsageError(
        fmt::format("error: trireme data {} needs a tokenizer: --data.tokenizer FOLDER (that of a model), a file "
                    "(tokenizer.json, *.model, *.tiktoken), or byte",
                    command));
  if (*name == "byte") return std::make_unique<text::ByteTokenizer>();
  return text::load_tokenizer(*name);
}

int run_data(Arguments arguments) {
  if (const auto code = answer_help(arguments, data_overview())) return *code;
  std::vector<std::string> names;
  for (const DataCommand& c : commands()) {
    names.emplace_back(c.name);
    if (arguments[0] != c.name) continue;
    const ParsedSettings parsed = read_settings(
        arguments.subspan(1),
        {.command = fmt::format("data {}", c.name), .positional = "", .takes_list = true, .section = "prepare"});
    if (!parsed.help) return c.run(parsed);
    fmt::print("{}\n{}\n\n{}", c.usage, c.help, settings_help(c.settings, "prepare"));
    return 0;
  }
  throw UsageError(fmt::format("error: there is no trireme data {}{}; there is {}", arguments[0],
                               did_you_mean(arguments[0], names), base::join(names, ", ")));
}

}  // namespace trireme::cli
