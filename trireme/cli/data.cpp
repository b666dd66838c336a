#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/cli/data_commands.h"
#include "trireme/cli/read_settings.h"
#include "trireme/cli/training.h"
#include "trireme/text/byte_tokenizer.h"
#include "trireme/text/load_tokenizer.h"

namespace trireme::cli {
namespace {

const std::vector<DataCommand>& commands() {
  static const std::vector<DataCommand> kCommands = {
      {"tokenize",
       "trireme data tokenize FILES|FOLDERS... --data.tokenizer T --output PREFIX",
       "text, JSONL and Parquet to a tokenized set, on all cores; after an interruption the same command continues",
       data_tokenize,
       {"data", "data.tokenizer", "data.text_field", "data.append_eos", "data.format", "data.chat_template",
        "data.learn", "data.long_conversations", "train.max_seq_length", "prepare.output", "prepare.overwrite",
        "prepare.threads", "prepare.max_documents"},
       {"data.tokenizer", "prepare.output"}},
      {"stats",
       "trireme data stats PREFIX [PREFIX...]",
       "documents, tokens and lengths of tokenized sets, and the share of tokens that is trained on",
       data_stats,
       {"prepare.json"}},
      {"train_tokenizer",
       "trireme data train_tokenizer FILES|FOLDERS... --vocab_size N --output FOLDER",
       "trains a byte-level BPE on the texts and writes tokenizer.json",
       data_train_tokenizer,
       {"data.text_field", "prepare.output", "prepare.overwrite", "prepare.threads", "prepare.vocab_size",
        "prepare.min_frequency", "prepare.pre_tokenizer", "prepare.special_tokens"},
       {"prepare.output"}},
      {"show",
       "trireme data show FILES|PREFIX --data.tokenizer T [--count N] [--ids]",
       "documents token by token; marks the tokens that are trained on",
       data_show,
       {"data", "data.tokenizer", "data.text_field", "data.append_eos", "data.format", "data.chat_template",
        "data.learn", "data.long_conversations", "train.max_seq_length", "prepare.count", "prepare.ids"},
       {"data.tokenizer"}},
      {"ledger",
       "trireme data ledger MODEL|--config FILE ... --step N",
       "the samples of a pretraining step: source, documents, tokens; computed from the settings, and from "
       "the checkpoint that --resume names",
       data_ledger,
       {"data", "train", "prepare.step", "prepare.json", "prepare.threads"},
       {"prepare.step"},
       /*takes_a_run=*/true},
  };
  return kCommands;
}

std::string data_overview() {
  std::string text = "trireme data turns text into tokens to train on, and shows them (docs/data.md).\n\n";
  for (const DataCommand& c : commands())
    text += fmt::format("  {:<16} {}\n  {:<16} {}\n", c.name, c.help, "", c.usage);
  return text + "\ntrireme data SUBCOMMAND --help lists its settings.\n";
}

constexpr std::string_view kOwn = "prepare.";  // settings that only trireme data reads

/// Refuses what was typed and has no effect.
void refuse_unused(const DataCommand& command, const ParsedSettings& parsed) {
  for (const auto& [key, source] : parsed.provenance) {
    const bool is_own = key.starts_with(kOwn);
    if (!parsed.typed(key) || (command.takes_a_run && !is_own) ||
        std::ranges::find(command.settings, key) != command.settings.end())
      continue;
    throw UsageError(fmt::format("error: trireme data {} does not use {} ({})\n  leave it out; it uses {}",
                                 command.name, key, source.place, base::join(command.settings, ", ")));
  }
}

/// The words of --help: "data" alone would be all settings of that group.
std::vector<std::string> help_words(const DataCommand& command) {
  std::vector<std::string> words = command.settings;
  if (!command.takes_a_run) std::erase(words, "data");
  return words;
}

/// Without a model, nothing gives these settings a value.
std::vector<std::pair<std::string, std::string>> shown_defaults(const DataCommand& command) {
  std::vector<std::pair<std::string, std::string>> shown;
  for (const std::string& key : command.needed) shown.emplace_back(key, "it must be given");
  if (!command.takes_a_run) shown.emplace_back("train.max_seq_length", "conversations have any length");
  return shown;
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
  try {
    return text::load_tokenizer(*name);
  } catch (const base::FileError&) {
    throw;
  } catch (const UsageError& error) {
    if (text::has_tokenizer(*name) || !base::is_file(std::filesystem::path(*name) / "config.json")) throw;
    throw UsageError(
        fmt::format("{}; if the model reads bytes, as llama-5m does: --data.tokenizer byte", error.what()));
  }
}

int run_data(Arguments arguments) {
  if (const auto code = answer_help(arguments, data_overview())) return *code;
  std::vector<std::string> names;
  for (const DataCommand& c : commands()) {
    names.emplace_back(c.name);
    if (arguments[0] != c.name) continue;
    const config::Overlay overlay{.command = fmt::format("data {}", c.name),
                                  .positional = "",
                                  .takes_list = true,
                                  .shown_defaults = shown_defaults(c),
                                  .section = "prepare"};
    const ParsedSettings parsed = read_settings(arguments.subspan(1), overlay);
    if (parsed.help) {
      fmt::print("{}\n{}\n\n{}", c.usage, c.help, settings_help(help_words(c), overlay));
      return 0;
    }
    refuse_unused(c, parsed);
    if (c.takes_a_run) refuse_other_tasks(parsed);
    return c.run(parsed);
  }
  throw UsageError(fmt::format("error: there is no trireme data {}{}; there is {}", arguments[0],
                               base::did_you_mean(arguments[0], names), base::join(names, ", ")));
}

}  // namespace trireme::cli
