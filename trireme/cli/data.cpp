#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/data_commands.h"
#include "trireme/config/report.h"
#include "trireme/data/byte_tokenizer.h"
#include "trireme/data/load_tokenizer.h"

namespace trireme::cli {
namespace {

const std::vector<DataCommand>& commands() {
  static const std::vector<DataCommand> kCommands = {
      {"tokenize", "trireme data tokenize FILES|FOLDERS... --data.tokenizer T --output PREFIX",
       "text, JSONL and Parquet to a tokenized set, on all cores; after a kill the same command goes on",
       data_tokenize},
      {"stats",
       "trireme data stats PREFIX [PREFIX...]",
       "documents, tokens, lengths and share to be learned of tokenized sets",
       data_stats,
       {"prepare"}},
      {"train_tokenizer", "trireme data train_tokenizer FILES|FOLDERS... --vocab_size N --output FOLDER",
       "a byte-level BPE of the texts, as a tokenizer.json", data_train_tokenizer},
      {"show", "trireme data show FILES|PREFIX --data.tokenizer T [--count N] [--ids]",
       "documents token by token, with what is learned and what is not", data_show},
      {"ledger",
       "trireme data ledger MODEL|--config FILE ... --step N",
       "the samples of a pretraining step: source, documents, tokens; worked out from the settings alone",
       data_ledger,
       {"data", "train", "prepare"}},
  };
  return kCommands;
}

void print_commands() {
  fmt::print("trireme data turns text into tokens to learn from, and looks at them (docs/data.md).\n\n");
  for (const DataCommand& c : commands()) fmt::print("  {:<16} {}\n  {:<16} {}\n", c.name, c.help, "", c.usage);
  fmt::print("\ntrireme data SUBCOMMAND --help lists its settings.\n");
}

}  // namespace

std::unique_ptr<data::Tokenizer> named_tokenizer(const config::Settings& settings, const std::string& command) {
  const auto& name = settings.data.tokenizer;
  if (!name)
    throw UsageError(
        fmt::format("error: trireme data {} needs a tokenizer: --data.tokenizer FOLDER (that of a model), a "
                    "file (tokenizer.json, *.model, *.tiktoken), or byte",
                    command));
  if (*name == "byte") return std::make_unique<data::ByteTokenizer>();
  return data::load_tokenizer(*name);
}

int run_data(Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print_commands();
    return arguments.empty() ? 2 : 0;
  }
  std::vector<std::string> names;
  for (const DataCommand& c : commands()) {
    names.emplace_back(c.name);
    if (arguments[0] != c.name) continue;
    const config::ParsedSettings parsed = config::parse(
        arguments.subspan(1),
        {.command = fmt::format("data {}", c.name), .positional = "", .takes_list = true, .section = "prepare"});
    if (!parsed.help) return c.run(parsed);
    fmt::print("{}\n{}\n\n{}", c.usage, c.help, config::help_text(c.settings, "prepare"));
    return 0;
  }
  const auto near = base::nearest(arguments[0], names);
  throw UsageError(fmt::format("error: there is no trireme data {}{}; there is {}", arguments[0],
                               near ? fmt::format(" (did you mean {}?)", *near) : "", base::join(names, ", ")));
}

}  // namespace trireme::cli
