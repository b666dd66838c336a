// Text from a trained model: continued from a prompt, or in a conversation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"
#include "trireme/text/tokenizer.h"

namespace trireme::train {

/// Refuses what `generate` would refuse, before ranks start. Errors: UsageError, CheckpointError
void check_generate(const Settings& settings);

/// Writes the continuation of generate.prompt, piece by piece; a piece never ends inside a character. Every rank must
/// call; rank 0 writes.
/// @returns  the exit code
int generate(const Settings& settings, const launch::RankEnvironment& environment,
             const std::function<void(std::string_view)>& write);

/// Errors    UsageError naming `setting` if a word is empty: it would stop nothing
void check_stop_words(std::string_view setting, const std::optional<std::vector<std::string>>& words);

/// Ends a text before the first of some words. Text that may be the beginning of a stop word is held back.
class StopWords {
 public:
  explicit StopWords(std::vector<std::string> words) : words_(std::move(words)) {}
  /// Adds `text`; returns what can be shown.
  std::string push(std::string_view text);
  /// What was held back; "" if a word was found.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> words_;
  std::string waiting_;
  bool found_ = false;
};

/// The tokens of a reply whose first `shown_bytes` were shown, before a stop word. `texts` are those of its tokens.
/// What was shown of a token alone is encoded anew.
std::vector<int64_t> shown_tokens(const text::Tokenizer& tokenizer, std::vector<int64_t> tokens,
                                  std::span<const std::string> texts, size_t shown_bytes);

}  // namespace trireme::train
