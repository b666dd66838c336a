// Conversations as the settings name them.
#pragma once

#include "trireme/config/settings.h"
#include "trireme/data/conversation_source.h"

namespace trireme::train {

/// From data, data.format, data.chat_template, data.learn, data.long_conversations, train.max_seq_length (and one token
/// more, the last target), prepare.threads and the tokenizer's folder.
data::ConversationSource conversation_source(const config::Settings& settings);

}  // namespace trireme::train
