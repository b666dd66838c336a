// Finds where a text that is too long for memory may be cut, so that its parts give the same ids as the whole. A cut
// lies after a line end, or drops a space, between printable ASCII and a letter. The tokenizer checks it: 2 KiB on each
// side, encoded separately, must give the same ids as both together. Effects over a longer distance would not be
// noticed, so token_cut_test compares whole novels.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/text/tokenizer.h"

namespace trireme::data {

struct TextCut {
  int64_t left_end = 0;  ///< the part before the cut ends here
  int64_t right_begin = 0;  ///< the part after it begins here: at the same place, or one later if a space is dropped
};

/// The first valid cut of `text` whose left end is at or after `from`; nothing if the first 32 candidates of each kind
/// are invalid. A pure function: threads that work on neighbouring parts agree.
std::optional<TextCut> find_cut(const text::Tokenizer& tokenizer, std::string_view text, int64_t from);

}  // namespace trireme::data
