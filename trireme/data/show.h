// Prints tokens one by one, and marks those that are learned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trireme/text/tokenizer.h"

namespace trireme::data {

struct ShowOptions {
  bool colour = false;  ///< marks tokens by background: green is learned, dim is not; false: by brackets
  bool ids = false;     ///< prints each token's id after it
  bool has_mask = false;
};

/// Text that is safe to print on one line: nothing in it moves the cursor, changes colours or the direction of text.
std::string visible(std::string_view bytes);

/// The tokens of one document as lines of text. Without colour each is in brackets, "[Hello]"; with a mask, learned
/// ones are "{Hello}". A line break is shown as U+21B5 and starts a new line, other control characters are shown as
/// their symbols (U+2400), bytes that are not a whole character as \xE2.
///
/// Errors    UsageError: ids that are not the tokenizer's
std::string show_tokens(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                        const ShowOptions& options);

/// One line that explains the marks.
std::string show_legend(const ShowOptions& options);

}  // namespace trireme::data
