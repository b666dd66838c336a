#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/cli/data_commands.h"
#include "trireme/data/token_stats.h"
#include "trireme/observe/work_bar.h"

namespace trireme::cli {
namespace {

using data::kLengthPercentiles;
using data::TokenSet;
using data::TokenStats;

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

bool is_damaged(const TokenSet& set, const TokenStats& stats) {
  return (stats.fingerprint && *stats.fingerprint != set.fingerprint()) || stats.ids_outside + stats.negative_ids > 0 ||
         stats.mask_outside > 0;
}

void print_origin(const TokenSet& set, const TokenStats& stats) {
  const auto& about = set.about();
  if (!about) {
    fmt::print("  tokenizer    unknown: there is no {}.json, so another program wrote the set\n",
               set.path().filename().string());
    return;
  }
  fmt::print("  tokenizer    {}, vocabulary of {}\n", about->tokenizer, base::human_count(about->vocab_size));
  for (const data::TokenSource& s : about->sources)
    fmt::print("  text         {}: {}, {}\n", s.path, base::plural(s.files, "file"), base::human_bytes(s.bytes));
  if (about->source_bytes > 0)
    fmt::print("  bytes        {} of text, {:.4f} tokens a byte, {:.3f} bytes a token\n",
               base::human_count(about->source_bytes), share(stats.tokens, about->source_bytes),
               share(about->source_bytes, stats.tokens));
  if (!about->chat_template.empty()) fmt::print("  template     {}\n", about->chat_template);
}

void print(const TokenSet& set, const TokenStats& stats) {
  fmt::print("{}\n", set.path().string());
  print_origin(set, stats);
  fmt::print(
      "  documents    {}{}\n", base::human_count(stats.documents),
      stats.empty_documents > 0 ? fmt::format(", {} of them empty", base::human_count(stats.empty_documents)) : "");
  fmt::print("  tokens       {} in {} bytes each\n", base::human_count(stats.tokens),
             data::bytes_per_token(set.view().type()));
  fmt::print("  lengths      mean {:.1f}", stats.mean_length);
  for (size_t i = 0; i < kLengthPercentiles.size(); ++i)
    fmt::print("{} {}",
               i == 0                               ? "; shortest"
               : i + 1 == kLengthPercentiles.size() ? ", longest"
                                                    : fmt::format(", {} %", kLengthPercentiles[i]),
               base::human_count(stats.lengths[i]));
  fmt::print(" tokens\n  learned      {:.2f} % of the tokens\n", 100 * share(stats.supervised_tokens, stats.tokens));
  fmt::print("  ids          {} different, the largest {}", base::human_count(stats.distinct_ids),
             base::human_count(stats.largest_id));
  if (stats.unknown_tokens)
    fmt::print("; {} unknown ({:.4f} %)", base::human_count(*stats.unknown_tokens),
               100 * share(*stats.unknown_tokens, stats.tokens));
  fmt::print("\n  fingerprint  {}{}\n", base::checksum_text(set.fingerprint()),
             !stats.fingerprint                        ? " (of the index and a sample of the tokens)"
             : *stats.fingerprint == set.fingerprint() ? ", and so are the files"
                                                       : "");
}

nlohmann::ordered_json json_of(const TokenSet& set, const TokenStats& stats) {
  nlohmann::ordered_json lengths;
  for (size_t i = 0; i < kLengthPercentiles.size(); ++i)
    lengths[fmt::format("p{}", kLengthPercentiles[i])] = stats.lengths[i];
  nlohmann::ordered_json json = {
      {"path", set.path().string()},
      {"documents", stats.documents},
      {"empty_documents", stats.empty_documents},
      {"tokens", stats.tokens},
      {"bytes_per_token_on_disk", data::bytes_per_token(set.view().type())},
      {"mean_length", stats.mean_length},
      {"lengths", lengths},
      {"supervised_tokens", stats.supervised_tokens},
      {"distinct_ids", stats.distinct_ids},
      {"largest_id", stats.largest_id},
      {"ids_outside_vocabulary", stats.ids_outside + stats.negative_ids},
      {"unknown_tokens", nullptr},
      {"fingerprint", base::checksum_text(set.fingerprint())},
      {"damaged", is_damaged(set, stats)},
  };
  if (stats.unknown_tokens) json["unknown_tokens"] = *stats.unknown_tokens;
  if (const auto& about = set.about()) {
    json["tokenizer"] = about->tokenizer;
    json["vocab_size"] = about->vocab_size;
    json["text_bytes"] = about->source_bytes;
    json["tokens_per_byte"] = share(stats.tokens, about->source_bytes);
  }
  return json;
}

int report_damage(const TokenSet& set, const TokenStats& stats) {
  if (stats.fingerprint && *stats.fingerprint != set.fingerprint())
    fmt::print(stderr, "damaged  {}: the files' fingerprint is {} and {}.json says {}; make the set again\n",
               set.path().string(), base::checksum_text(*stats.fingerprint), set.path().filename().string(),
               base::checksum_text(set.fingerprint()));
  if (stats.ids_outside + stats.negative_ids > 0)
    fmt::print(stderr, "damaged  {}: {} ids lie outside {}\n", set.path().string(),
               base::human_count(stats.ids_outside + stats.negative_ids),
               set.about() ? "the vocabulary" : "any tokenizer's vocabulary");
  if (stats.mask_outside > 0)
    fmt::print(stderr, "damaged  {}.mask: {} are neither 0 nor 1\n", set.path().string(),
               base::plural(stats.mask_outside, "byte"));
  return is_damaged(set, stats) ? 1 : 0;
}

}  // namespace

int data_stats(const ParsedSettings& parsed) {
  if (parsed.list.empty())
    throw UsageError(
        "error: trireme data stats needs the PREFIX of a tokenized set (PREFIX.bin with PREFIX.idx), or a folder of "
        "LitGPT's chunks");
  int code = 0;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::string& prefix : parsed.list) {
    const TokenSet set = TokenSet::open(prefix);
    TokenStats stats;
    {
      observe::WorkBar bar("stats");
      const auto unknown = set.about() ? set.about()->unknown_id : std::nullopt;
      stats = data::token_stats(set, unknown, [&](double done) { bar.show(done); });
    }
    if (parsed.settings.prepare.json)
      all.push_back(json_of(set, stats));
    else
      print(set, stats);
    code = std::max(code, report_damage(set, stats));
  }
  if (parsed.settings.prepare.json) fmt::print("{}\n", base::json_text(all.size() == 1 ? all[0] : all, 2));
  return code;
}

}  // namespace trireme::cli
