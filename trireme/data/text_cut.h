// Where a text too long to be held may be cut, so that its parts, encoded one by one, are the ids of the whole. A cut
// lies behind a line end, or takes the place of a space, between printable ASCII and a letter; the tokenizer itself is
// asked: both sides of 2 KiB encoded apart have to equal both encoded together. What a pre-tokenizer or a search for
// merges does further away than that cannot be seen: token_cut_test compares whole novels.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trireme/data/tokenizer.h"

namespace trireme::data {

struct TextCut {
  int64_t left_end = 0;     ///< the part before ends here
  int64_t right_begin = 0;  ///< the part behind begins here: there, or one further where a space is left out
};

/// The first good cut of `text` with its left end at or behind `from`; nothing when the first 32 possible ones of each
/// kind are none. A pure function, so that threads who work on neighbouring parts agree.
std::optional<TextCut> find_cut(const Tokenizer& tokenizer, std::string_view text, int64_t from);

}  // namespace trireme::data
