// Tokens as a person reads them: each for itself, those that are learned told from those that are not.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/data/tokenizer.h"

namespace trireme::data {

struct ShowOptions {
  bool colour = false;  ///< backgrounds in turn mark tokens, green ones are learned, dim ones are not; otherwise [..]
  bool ids = false;  ///< behind each token its number
  bool has_mask = false;
};

/// The tokens of one document as lines of text. Without colour each stands in brackets, "[Hello]", and with a mask
/// those that are learned in "{Hello}". Line breaks are shown as U+21B5 and begin a line; other control characters as
/// their symbols (U+2400), bytes that are no whole character as \xE2.
///
/// Errors    UsageError: ids that are not the tokenizer's
std::string show_tokens(const Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                        const ShowOptions& options);

/// What the marks mean: one line.
std::string show_legend(const ShowOptions& options);

}  // namespace trireme::data
