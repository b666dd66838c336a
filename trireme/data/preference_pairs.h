// Pairs of replies: a prompt, the reply that people chose, and the one that they rejected. A JSON object in each line
// (or one JSON list), in the forms that TRL reads:
//
//   {"prompt": "The sky is", "chosen": " blue.", "rejected": " green."}
//   {"prompt": [{"role": "user", ...}], "chosen": [{"role": "assistant", ...}], "rejected": [...]}
//   {"prompt": "Hi", "chosen": [{"role": "assistant", ...}], "rejected": [...]}   the text is the user's question
//   {"chosen": ..., "rejected": ...}     the prompt is what both begin with
//
// Other keys are ignored, but those that would change a text are refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/text/chat_template.h"

namespace trireme::data {

struct PreferencePair {
  bool is_conversation = false;
  std::vector<text::ChatMessage> prompt, chosen, rejected;  ///< of a conversation
  std::string prompt_text, chosen_text, rejected_text;  ///< of plain text
  bool thinks = true;  ///< of a conversation: Conversation::thinks
  std::string where;  ///< "pairs.jsonl:12"
  bool same() const;  ///< both replies are equal: such a pair says nothing
};

/// Errors    UsageError naming file, line and key
std::vector<PreferencePair> read_preference_pairs(const std::filesystem::path& path);

/// One record. Errors    UsageError naming `place` and the key
PreferencePair parse_preference_pair(std::string_view record, const std::string& place);

}  // namespace trireme::data
