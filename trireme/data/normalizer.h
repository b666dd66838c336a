// What happens to text before it is cut: Unicode normal forms, case, replacements. A normalizer is a list of steps; an
// empty list leaves text alone without a copy.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// One step. `text` is well-formed UTF-8, and so is the result.
using NormalizerStep = std::function<std::string(std::string text)>;

class Normalizer {
 public:
  void add(NormalizerStep step) { add(step, step); }
  /// `inside` is done instead where the text goes on from other text.
  void add(NormalizerStep step, NormalizerStep inside) { steps_.push_back({std::move(step), std::move(inside)}); }
  bool is_identity() const { return steps_.empty(); }

  /// Cost      a copy a step
  /// Numerics  ill-formed bytes become U+FFFD first, unless the normalizer is the identity
  /// Errors    UsageError when the text grows beyond largest_growth
  std::string operator()(std::string_view text, bool is_inside = false) const;

 private:
  struct Step {
    NormalizerStep step, inside;
  };
  std::vector<Step> steps_;
};

/// How long a file's replacements may make a text of `bytes`: no normal form comes near it, and no file can fill the
/// memory.
inline constexpr size_t largest_growth(size_t bytes) { return (size_t{1} << 20) + 16 * bytes; }

/// Errors    UsageError when `now` is beyond largest_growth(`before`)
void check_growth(size_t before, size_t now);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// Numerics  as PyPI's tokenizers does it: characters newer than Unicode 9.0 neither change nor move
std::string to_normal_form(std::string_view text, NormalForm form);
std::string to_lower(std::string_view text);       ///< full lower case of every character, as Rust's to_lowercase
std::string strip_accents(std::string_view text);  ///< without combining marks; decompose first (nfd)
std::string strip_spaces(std::string_view text, bool left, bool right);
/// Errors    UsageError beyond largest_growth(text.size())
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

struct BertOptions {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
std::string bert_normalize(std::string_view text, const BertOptions& options);

}  // namespace trireme::data
