// What a tokenizer puts around a text that is encoded with EncodeOptions::add_special.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/text/tokenizer.h"

namespace trireme::text {

/// The ids before a text (<s>, [CLS]) and behind it (</s>, [SEP]). Both are empty for a tokenizer that adds nothing.
struct AroundText {
  std::vector<int32_t> before, behind;
};

AroundText around_text(const Tokenizer& tokenizer);

}  // namespace trireme::text
