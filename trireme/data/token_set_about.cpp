// The sidecar of a tokenized set, read and written.
#include <fmt/format.h>

#include <charconv>

#include "trireme/base/checksum.h"
#include "trireme/base/json.h"
#include "trireme/data/json_fields.h"
#include "trireme/data/token_set.h"

namespace trireme::data {
namespace {

constexpr const char* kFormat = "trireme tokens";
constexpr int64_t kFormatVersion = 1;

uint64_t fingerprint_at(const JsonObject& object, const std::string& key) {
  const std::string text = object.text(key);
  uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || failure != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{} is not a fingerprint of 16 hexadecimal digits", object.place_of(key)));
  return value;
}

TokenSetAbout about_of(const nlohmann::json& json) {
  const JsonObject top(json, "");
  if (top.text("format") != kFormat || top.integer("version") != kFormatVersion)
    throw UsageError(fmt::format("its format is {:?} version {} and {:?} version {} is known",
                                 shown(top.text("format")), top.integer("version"), kFormat, kFormatVersion));
  TokenSetAbout about;
  const JsonObject tokenizer = top.object("tokenizer"), text = top.object("text"), counts = top.object("counts");
  about.tokenizer = tokenizer.text("name");
  about.tokenizer_fingerprint = fingerprint_at(tokenizer, "fingerprint");
  about.vocab_size = tokenizer.count("vocab_size");
  if (tokenizer.find("unknown_id") != nullptr) about.unknown_id = tokenizer.count("unknown_id");
  about.source_bytes = text.count("bytes");
  about.source_fingerprint = fingerprint_at(text, "fingerprint");
  const nlohmann::json& sources = text.array("sources");
  for (size_t i = 0; i < sources.size(); ++i) {
    const JsonObject source(sources[i], fmt::format("text.sources[{}]", i));
    about.sources.push_back({source.text("path"), source.count("files"), source.count("bytes")});
  }
  about.chat_template = top.text("chat_template", "");
  about.num_documents = counts.count("documents");
  about.num_tokens = counts.count("tokens");
  about.supervised_tokens = counts.count("supervised_tokens");
  about.fingerprint = fingerprint_at(top, "fingerprint");
  return about;
}

}  // namespace

TokenSetAbout parse_token_set_about(std::string_view json, const std::string& name) {
  const nlohmann::json parsed = base::parse_json_if_sound(json);
  try {
    if (parsed.is_discarded()) throw UsageError("it is no JSON");
    return about_of(parsed);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{} does not describe a tokenized data set: {}", name, error.what()));
  }
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
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::data
