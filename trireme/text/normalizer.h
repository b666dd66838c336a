// Changes text before it is cut: Unicode normal forms, case, replacements. A normalizer is a list of steps; an empty
// list leaves text unchanged, without a copy.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

/// One step. `text` is well-formed UTF-8, and so is the result.
using NormalizerStep = std::function<std::string(std::string text)>;

class Normalizer {
 public:
  void add(NormalizerStep step) { add(step, step); }
  /// `inside` is used in place of `step` if the text continues other text (is_inside).
  void add(NormalizerStep step, NormalizerStep inside) { steps_.push_back({std::move(step), std::move(inside)}); }
  bool is_identity() const { return steps_.empty(); }

  /// Cost      one copy of the text for each step
  /// Numerics  ill-formed bytes become U+FFFD first, unless the normalizer is the identity
  /// Errors    UsageError if the text grows beyond check_growth's limit
  std::string operator()(std::string_view text, bool is_inside = false) const;

 private:
  struct Step {
    NormalizerStep step, inside;
  };
  std::vector<Step> steps_;
};

/// Stops replacements of a tokenizer file that would fill the memory. No normal form comes near the limit.
/// Errors    UsageError if a text of `before` bytes has grown to more than 16 times as many bytes plus 1 MiB
void check_growth(size_t before, size_t now);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// Numerics  as in PyPI's tokenizers: characters newer than Unicode 9.0 are neither changed nor reordered
std::string to_normal_form(std::string_view text, NormalForm form);
std::string to_lower(std::string_view text);       ///< full lower case of every character, as Rust's to_lowercase
std::string to_title(std::string_view character);  ///< title case of one character (of one for one)
std::string strip_accents(std::string_view text);  ///< removes combining marks; decompose the text first (nfd)
std::string_view strip_spaces(std::string_view text, bool left, bool right);
/// Errors    those of check_growth
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

struct BertOptions {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
std::string bert_normalize(std::string_view text, const BertOptions& options);

}  // namespace trireme::text
