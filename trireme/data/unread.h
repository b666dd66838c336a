// Settings of the data that nothing reads, because the files hold something else: data.learn beside plain text, or
// data.chat_template beside a set that is tokenized already. Whoever types one expects an effect.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "trireme/data/conversation_source.h"

namespace trireme::data {

/// Refuses typed settings that no source in `paths` reads. `typed` tells which are; say false for those that something
/// else reads. Sources that cannot be looked at are left to those who read them.
///
/// Cost      a look at the first record of each source; a stat per file where data.text_field is typed
/// Errors    UsageError naming the setting and what the source holds
void refuse_unread(std::span<const std::filesystem::path> paths, const ConversationSource& source,
                   const std::function<bool(const std::string& key)>& typed);

}  // namespace trireme::data
