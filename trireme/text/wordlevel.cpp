#include "trireme/text/wordlevel.h"

#include "trireme/text/json_fields.h"

namespace trireme::text {

WordLevel::WordLevel(Vocabulary vocabulary, const std::string& unknown)
    : TokenModel(std::move(vocabulary)), unknown_(vocabulary_.find(unknown)) {}

void WordLevel::encode(std::string_view piece, ModelScratch&, std::vector<int32_t>& out) const {
  const std::optional<int32_t> id = vocabulary_.find(piece);
  if (!id && !unknown_)
    throw UsageError(fmt::format(
        "the vocabulary has words only, and neither '{}' nor an unknown token is among them: give its tokenizer.json "
        "an unk_token, or leave the word out of the text",
        shown(piece)));
  out.push_back(id ? *id : *unknown_);
}

}  // namespace trireme::text
