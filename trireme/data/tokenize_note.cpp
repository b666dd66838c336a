#include "trireme/data/tokenize_note.h"

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/text/json_fields.h"

namespace trireme::data {
namespace {

uint64_t hash_at(const text::JsonObject& object, const std::string& key) {
  const nlohmann::json& value = object.at(key);
  if (!value.is_number_unsigned()) throw UsageError(fmt::format("{} is no hash", object.place_of(key)));
  return value.get<uint64_t>();
}

TokenizeNote note_of(const nlohmann::json& json) {
  const text::JsonObject top(json, ""), set = top.object("set");
  TokenizeNote note{.job = hash_at(top, "job"),
                    .blocks = top.count("blocks"),
                    .file_bytes = top.count("file_bytes"),
                    .text_bytes = top.count("text_bytes"),
                    .empty_documents = top.count("empty_documents"),
                    .source_hash = hash_at(top, "source_hash"),
                    .set = {.tokens = set.count("tokens"),
                            .documents = set.count("documents"),
                            .sequences = set.count("sequences"),
                            .supervised = set.count("supervised"),
                            .sequence_tokens = set.count("sequence_tokens"),
                            .document_sequences = set.count("document_sequences")}};
  for (const nlohmann::json& pair : set.array("long_documents")) {
    if (!pair.is_array() || pair.size() != 2 || !base::is_whole_number(pair[0]) || !base::is_whole_number(pair[1]))
      throw UsageError("set.long_documents is no list of pairs");
    note.set.long_documents.emplace_back(base::whole_number(pair[0]), base::whole_number(pair[1]));
  }
  return note;
}

}  // namespace

std::string to_json(const TokenizeNote& note) {
  const nlohmann::ordered_json json = {{"job", note.job},
                                       {"blocks", note.blocks},
                                       {"file_bytes", note.file_bytes},
                                       {"text_bytes", note.text_bytes},
                                       {"empty_documents", note.empty_documents},
                                       {"source_hash", note.source_hash},
                                       {"set",
                                        {{"tokens", note.set.tokens},
                                         {"documents", note.set.documents},
                                         {"sequences", note.set.sequences},
                                         {"supervised", note.set.supervised},
                                         {"sequence_tokens", note.set.sequence_tokens},
                                         {"document_sequences", note.set.document_sequences},
                                         {"long_documents", note.set.long_documents}}}};
  return json.dump(2) + "\n";
}

TokenizeNote parse_tokenize_note(std::string_view json, const std::string& name) {
  return text::read_json(json, name, "does not say how far a set is written (start again with --overwrite)", note_of);
}

}  // namespace trireme::data
