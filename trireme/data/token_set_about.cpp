// The sidecar of a tokenized set, read and written.
#include <fmt/format.h>

#include "trireme/base/checksum.h"
#include "trireme/base/json.h"
#include "trireme/base/parse_whole.h"
#include "trireme/data/token_set.h"
#include "trireme/text/json_fields.h"

namespace trireme::data {
namespace {

constexpr const char* kFormat = "trireme tokens";
constexpr int64_t kFormatVersion = 1;

uint64_t fingerprint_at(const text::JsonObject& object, const std::string& key) {
  const std::string text = object.text(key);
  const auto value = base::parse_whole<uint64_t>(text, 16);
  if (text.size() != 16 || !value)
    throw UsageError(fmt::format("{} is not a fingerprint of 16 hexadecimal digits", object.place_of(key)));
  return *value;
}

TokenSetAbout about_of(const nlohmann::json& json) {
  const text::JsonObject top(json, "");
  if (top.text("format") != kFormat || top.integer("version") != kFormatVersion)
    throw UsageError(fmt::format("its format is {:?} version {} and {:?} version {} is known",
                                 text::shown(top.text("format")), top.integer("version"), kFormat, kFormatVersion));
  TokenSetAbout about;
  const text::JsonObject tokenizer = top.object("tokenizer"), text = top.object("text"), counts = top.object("counts");
  about.tokenizer = tokenizer.text("name");
  about.tokenizer_fingerprint = fingerprint_at(tokenizer, "fingerprint");
  about.vocab_size = tokenizer.count("vocab_size");
  if (tokenizer.find("unknown_id") != nullptr) about.unknown_id = tokenizer.count("unknown_id");
  about.source_bytes = text.count("bytes");
  about.source_fingerprint = fingerprint_at(text, "fingerprint");
  const nlohmann::json& sources = text.array("sources");
  for (size_t i = 0; i < sources.size(); ++i) {
    const text::JsonObject source(sources[i], fmt::format("text.sources[{}]", i));
    about.sources.push_back({source.text("path"), source.count("files"), source.count("bytes")});
  }
  about.chat_template = top.text("chat_template", "");
  if (top.find("conversations") != nullptr) {
    const text::JsonObject tally = top.object("conversations");
    about.tally = {.conversations = tally.count("read"),
                   .cut = tally.count("cut"),
                   .dropped = tally.count("dropped"),
                   .without_reply = tally.count("without_reply"),
                   .max_tokens = tally.count("max_tokens")};
  }
  about.num_documents = counts.count("documents");
  about.num_tokens = counts.count("tokens");
  about.supervised_tokens = counts.count("supervised_tokens");
  about.fingerprint = fingerprint_at(top, "fingerprint");
  return about;
}

}  // namespace

TokenSetAbout parse_token_set_about(std::string_view json, const std::string& name) {
  return text::read_json(json, name, "does not describe a tokenized data set", about_of);
}

std::string to_json(const TokenSetAbout& about) {
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const TokenSource& s : about.sources)
    sources.push_back({{"path", s.path}, {"files", s.files}, {"bytes", s.bytes}});
  nlohmann::ordered_json json = {
      {"format", kFormat},
      {"version", kFormatVersion},
      {"fingerprint", base::checksum_text(about.fingerprint)},
      {"tokenizer",
       {{"name", about.tokenizer},
        {"fingerprint", base::checksum_text(about.tokenizer_fingerprint)},
        {"vocab_size", about.vocab_size}}},
      {"text",
       {{"sources", sources},
        {"bytes", about.source_bytes},
        {"fingerprint", base::checksum_text(about.source_fingerprint)}}},
      {"counts",
       {{"documents", about.num_documents},
        {"tokens", about.num_tokens},
        {"supervised_tokens", about.supervised_tokens}}},
  };
  if (about.unknown_id) json["tokenizer"]["unknown_id"] = *about.unknown_id;
  if (!about.chat_template.empty()) json["chat_template"] = about.chat_template;
  if (about.tally)
    json["conversations"] = {{"read", about.tally->conversations},
                             {"cut", about.tally->cut},
                             {"dropped", about.tally->dropped},
                             {"without_reply", about.tally->without_reply},
                             {"max_tokens", about.tally->max_tokens}};
  return base::json_text(json, 2) + "\n";
}

}  // namespace trireme::data
