// Splits text into the pieces that the model sees. A pre-tokenizer is a list of steps. Each step splits or rewrites a
// piece and passes the parts to the next step; nothing is stored in between.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/text/regex.h"
#include "trireme/text/regex_set.h"
#include "trireme/text/tokenizer.h"

namespace trireme::text {

inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";  ///< U+2581, which stands for a space

/// Cuts at the matches of a pattern, or at each character of a set.
struct SplitStep {
  enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  std::variant<std::string, Regex, CharacterSet> pattern;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< the text between matches counts as the matches
};

/// Puts a space in front of a piece that does not begin with one.
struct PrefixSpaceStep {};

/// Writes the piece in GPT-2's alphabet. Only needed if other steps follow, because Bpe takes plain bytes.
struct ByteLettersStep {};

/// Replaces spaces by `replacement`, puts one in front and cuts before each of them.
struct MetaspaceStep {
  enum class Prepend { always, first, never };
  std::string replacement = std::string(kMetaspace);
  Prepend prepend = Prepend::always;  ///< `first`: puts one only before the beginning of the text
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

/// The regular expressions that cut text for GPT-2 (also the ByteLevel pre-tokenizer's own), Llama 3 and Qwen2.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace trireme::text
