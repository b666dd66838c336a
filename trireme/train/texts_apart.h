// Texts that share a row and see only themselves, over mesh.cp ranks. Keys that travel around a ring reach the whole
// row, so the ranks exchange tokens for heads.
#pragma once

#include <string_view>

#include "trireme/settings/parse.h"

namespace trireme::train {

/// With mesh.cp above 1, makes mesh.context ulysses. `why` begins the message: "replies of a pair are kept apart".
/// Errors    UsageError if mesh.context ring was given
void keep_texts_apart(ParsedSettings& parsed, std::string_view why);

/// The same for runs that learn to continue text, where data.reset_attention_mask keeps documents apart.
void keep_documents_apart(ParsedSettings& parsed);

}  // namespace trireme::train
