#include "trireme/text/around_text.h"

#include <algorithm>

namespace trireme::text {

AroundText around_text(const Tokenizer& tokenizer) {
  const std::vector<int32_t> alone = tokenizer.encode("", kWholeText), with_text = tokenizer.encode("a", kWholeText);
  const auto behind = std::ranges::mismatch(alone, with_text).in1;
  return {.before = {alone.begin(), behind}, .behind = {behind, alone.end()}};
}

}  // namespace trireme::text
