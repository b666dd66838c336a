#include "trireme/data/from_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/data/named_sets.h"
#include "trireme/text/load_tokenizer.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAustenPath = "data/austen.txt";

// "0.7 some/path" or "some/path".
DataSource mixture_source(const std::string& item) {
  const size_t space = item.find(' ');
  const auto weight = space == std::string::npos ? std::nullopt : base::parse_number(item.substr(0, space));
  if (!weight) return {.path = item};
  if (!(*weight > 0))
    throw UsageError(fmt::format("data.mixture: the weight of {} must be above 0, not {}", item.substr(space + 1),
                                 item.substr(0, space)));
  return {.path = item.substr(space + 1), .weight = weight};
}

std::vector<DataSource> mixture_sources(const DataSettings& d) {
  if (d.train_data_path)
    throw UsageError(
        "data.mixture and data.train_data_path both say what to learn from; give one of them, and set the other "
        "null");
  std::vector<DataSource> sources;
  for (const std::string& item : *d.mixture) sources.push_back(mixture_source(item));
  if (sources.empty()) throw UsageError("data.mixture is empty; give it at least one path");
  const auto weighted = std::ranges::count_if(sources, [](const auto& s) { return s.weight.has_value(); });
  if (weighted != 0 && weighted != std::ssize(sources))
    throw UsageError(
        fmt::format("data.mixture gives {} of {} sources a weight; give one to all of them, or to none (each sample of "
                    "each source once an epoch)",
                    weighted, sources.size()));
  return sources;
}

// What the run trains and validates on, if there is no mixture.
SetFiles files_of(const DataSettings& d) {
  if (const NamedSet* set = find_named_set(d.name)) return find_files(*set, d.train_data_path);
  if (d.train_data_path) {
    const auto splits = d.name == Corpus::json ? find_json_splits(*d.train_data_path) : std::nullopt;
    return splits ? *splits : SetFiles{.train = {*d.train_data_path}};
  }
  if (d.name != Corpus::austen)
    throw UsageError(fmt::format(
        "data {} needs --data.train_data_path: text, JSONL, JSON or Parquet, a folder of them, or a tokenized set",
        config::name_of(d.name)));
  if (!fs::exists(kAustenPath))
    throw UsageError(
        fmt::format("the Austen corpus is not at {}: run 'make setup', or name a text with --data TextFiles "
                    "--data.train_data_path FILE",
                    kAustenPath));
  return {.train = {kAustenPath}};
}

std::optional<ConversationFormat> format_of(const DataSettings& d) {
  if (d.format == Format::alpaca) return ConversationFormat::alpaca;
  if (d.format == Format::sharegpt) return ConversationFormat::sharegpt;
  if (d.format == Format::messages) return ConversationFormat::messages;
  const NamedSet* set = find_named_set(d.name);
  return set == nullptr || d.format ? std::nullopt : std::optional(set->format);
}

}  // namespace

std::vector<DataSource> sources_of(const DataSettings& settings) {
  if (settings.mixture) return mixture_sources(settings);
  std::vector<DataSource> sources;
  for (const fs::path& file : files_of(settings).train) sources.push_back({.path = file});
  return sources;
}

fs::path tokenizer_path(const DataSettings& settings, const fs::path& model) {
  if (settings.tokenizer) return *settings.tokenizer == "byte" ? fs::path() : fs::path(*settings.tokenizer);
  return text::has_tokenizer(model) ? model : fs::path();
}

ConversationSource conversation_source(const DataSettings& d, const fs::path& tokenizer) {
  using Use = ConversationSource::Use;
  const auto format = format_of(d);
  const NamedSet* set = find_named_set(d.name);
  return {.use = d.format == Format::text           ? Use::never
                 : format || d.name == Corpus::json ? Use::always
                                                    : Use::found,
          .options = {.format = format,
                      .columns = set == nullptr || d.format ? std::nullopt : set->columns,
                      .learn = d.learn,
                      .drop_long = d.long_conversations == LongConversations::drop},
          .chat_template = set != nullptr && !d.chat_template ? set->chat_template : d.chat_template,
          .folder = fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path()};
}

TrainingDataOptions training_data_options(const DataSettings& d) {
  TrainingDataOptions options{.sources = sources_of(d),
                              .setting = d.mixture ? "data.mixture" : "data.train_data_path",
                              .val_split_fraction = d.val_split_fraction,
                              .split = d.val_split,
                              .packing = d.packing,
                              .apart = d.reset_attention_mask,
                              .seed = static_cast<uint64_t>(d.seed),
                              .text_field = d.text_field,
                              .append_eos = d.append_eos};
  if (d.val_data_path)
    options.val_data_path = *d.val_data_path;
  else if (!d.mixture)
    options.val_data_path = files_of(d).validation;
  return options;
}

}  // namespace trireme::data
