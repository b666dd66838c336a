// The model section of tokenizer.json.
#include <fmt/format.h>

#include "trireme/text/bpe.h"
#include "trireme/text/tokenizer_json_parts.h"
#include "trireme/text/unigram.h"
#include "trireme/text/wordlevel.h"
#include "trireme/text/wordpiece.h"

namespace trireme::text {
namespace {

Vocabulary read_vocabulary(const JsonObject& section) {
  const nlohmann::json& entries = section.at("vocab");
  if (!entries.is_object()) throw UsageError(fmt::format("{} is not an object", section.place_of("vocab")));
  Vocabulary vocabulary;
  vocabulary.reserve(entries.size());
  for (const auto& [token, id] : entries.items()) {
    if (!base::is_whole_number(id)) throw UsageError(fmt::format("the id of '{}' is not a whole number", token));
    vocabulary.add(token, id.get<int64_t>());
  }
  return vocabulary;
}

// "A B" or ["A", "B"].
Bpe::Pairs read_merges(const JsonObject& section) {
  Bpe::Pairs pairs;
  const nlohmann::json& merges = section.array("merges");
  pairs.reserve(merges.size());
  const auto refuse = [&] {
    throw UsageError(fmt::format("{}[{}] is not two tokens", section.place_of("merges"), pairs.size()));
  };
  for (const nlohmann::json& merge : merges) {
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse();
      pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else {
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) refuse();
      pairs.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    }
  }
  return pairs;
}

std::unique_ptr<TokenModel> read_bpe(const JsonObject& section, bool byte_level) {
  return std::make_unique<Bpe>(read_vocabulary(section), read_merges(section),
                               BpeOptions{.byte_level = byte_level,
                                          .ignore_merges = section.flag("ignore_merges", false),
                                          .byte_fallback = section.flag("byte_fallback", false),
                                          .fuse_unknown = section.flag("fuse_unk", false),
                                          .unknown = section.text("unk_token", ""),
                                          .prefix = section.text("continuing_subword_prefix", ""),
                                          .suffix = section.text("end_of_word_suffix", "")});
}

// "vocab": [["<unk>", 0.0], ["\u2581the", -3.2], ...], by id
std::unique_ptr<TokenModel> read_unigram(const JsonObject& section) {
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const nlohmann::json& entry : section.array("vocab")) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      throw UsageError(fmt::format("{}[{}] is not a token and its score", section.place_of("vocab"), scores.size()));
    vocabulary.add(entry[0].get_ref<const std::string&>(), static_cast<int64_t>(scores.size()));
    scores.push_back(entry[1].get<double>());
  }
  UnigramOptions options{.byte_fallback = section.flag("byte_fallback", false)};
  if (section.find("unk_id") != nullptr) {
    const int64_t id = section.integer("unk_id");
    if (id < 0 || id >= vocabulary.size())
      throw UsageError(fmt::format("{} {} is not in the vocabulary", section.place_of("unk_id"), id));
    options.unknown = static_cast<int32_t>(id);
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), std::move(options));
}

std::unique_ptr<TokenModel> read_wordpiece(const JsonObject& section) {
  return std::make_unique<WordPiece>(
      read_vocabulary(section), WordPieceOptions{.unknown = section.text("unk_token", "[UNK]"),
                                                 .prefix = section.text("continuing_subword_prefix", "##"),
                                                 .longest_word = section.integer("max_input_chars_per_word", 100)});
}

}  // namespace

std::unique_ptr<TokenModel> read_model(const JsonObject& section, bool byte_level) {
  const std::string type = section.text("type", "BPE");
  if (type == "BPE") return read_bpe(section, byte_level);
  if (type == "Unigram") return read_unigram(section);
  if (type == "WordPiece") return read_wordpiece(section);
  if (type == "WordLevel")
    return std::make_unique<WordLevel>(read_vocabulary(section), section.text("unk_token", "<unk>"));
  throw UsageError(fmt::format("{} '{}' is not known", section.place_of("type"), type));
}

}  // namespace trireme::text
