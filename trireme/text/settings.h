// Settings of conversations: which tokens training learns, and which template writes the text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/config/choices.h"

namespace trireme::text {

/// What training learns of a conversation.
enum class Learn {
  replies,     ///< the assistant's replies, each with the mark that ends it
  last_reply,  ///< only the last reply
  messages,    ///< messages of users and assistant; no markup, no system messages
  all,         ///< every token, markup too; not replies of weight 0
};
std::span<const config::Choice<Learn>> choices_of(Learn);

/// Names of the known chat templates (chat_template.h).
std::vector<std::string> chat_template_names();

}  // namespace trireme::text
