// Text from a trained model: continued from a prompt, or in a conversation.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"

namespace trireme::train {

/// Refuses before a process starts what `generate` would refuse. Errors: UsageError, CheckpointError
void check_generate(const config::Settings& settings);

/// Writes the continuation of generate.prompt, piece by piece as it comes; a piece never ends inside a character. On
/// every rank; the first one writes.
/// @returns  the exit code
int generate(const config::Settings& settings, const launch::RankEnvironment& environment,
             const std::function<void(std::string_view)>& write);

/// Ends a text at the first of some words. What could be the beginning of one is held back until it is known.
class StopWords {
 public:
  explicit StopWords(std::vector<std::string> words) : words_(std::move(words)) {}
  /// Adds `text`; returns what can be shown of it.
  std::string push(std::string_view text);
  /// What was held back; nothing when a word was found.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> words_;
  std::string waiting_;
  bool found_ = false;
};

}  // namespace trireme::train
