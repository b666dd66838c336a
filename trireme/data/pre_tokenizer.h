// Cuts text into the pieces that the model sees. A pre-tokenizer is a list of steps, each of which cuts or rewrites a
// piece and hands the parts to the next, so that nothing is stored between them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/data/regex.h"
#include "trireme/data/regex_set.h"
#include "trireme/data/tokenizer.h"

namespace trireme::data {

inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";  ///< U+2581, which stands for a space

/// Cuts at the matches of a pattern, or at each character of a set.
struct SplitStep {
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  std::variant<std::string, Regex, CharacterSet> pattern;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< what is between matches counts as the matches
};

/// Puts a space in front of a piece that does not begin with one.
struct PrefixSpaceStep {};

/// Writes the piece in GPT-2's alphabet; only needed where other steps follow.
struct ByteLettersStep {};

/// Replaces spaces, puts one in front, cuts before each.
struct MetaspaceStep {
  enum class Prepend { always, first, never };
  std::string replacement = std::string(kMetaspace);
  Prepend prepend = Prepend::always;  ///< `first`: only to the piece at the beginning of the text
  bool split = true;
};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep, ByteLettersStep, MetaspaceStep>;

class PreTokenizer {
 public:
  using Take = std::function<void(std::string_view piece)>;

  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }

  /// Hands the pieces of `text` to `take`, in order; none is empty.
  void run(std::string_view text, TextBefore before, const Take& take) const { run_from(0, text, before, take); }

 private:
  void run_from(size_t index, std::string_view piece, TextBefore before, const Take& take) const;

  std::vector<PreTokenizerStep> steps_;
};

/// GPT-2's own expression, which the ByteLevel pre-tokenizer applies.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace trireme::data
