#include "trireme/data/unread.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/data/text_files.h"
#include "trireme/data/token_set.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

enum Kind : unsigned { kTextSet = 1, kChatSet = 2, kConversations = 4, kRecords = 8, kPlain = 16 };

struct ReadBy {
  const char* key;
  unsigned kinds;
};

// A run saves where the texts of a set end, so it reads data.append_eos beside one.
constexpr ReadBy kReadBy[] = {{"data.text_field", kRecords},
                              {"data.append_eos", kTextSet | kRecords | kPlain},
                              {"data.format", kConversations | kRecords | kPlain},
                              {"data.chat_template", kConversations},
                              {"data.learn", kConversations},
                              {"data.long_conversations", kConversations}};

struct Found {
  unsigned kinds = 0;
  std::string what;  // of a single path
};

Found find(const fs::path& path, const ConversationSource& source, bool asks_for_records) {
  if (TokenSet::is_named_by(path)) {
    const auto about = TokenSet::open(path).about();
    const std::string chat = about ? about->chat_template : "";
    return {chat.empty() ? kTextSet : kChatSet,
            fmt::format("{} is tokenized already{}", path.string(), chat.empty() ? "" : fmt::format(" (as {})", chat))};
  }
  if (!source.files(path).empty()) return {kConversations, fmt::format("{} holds conversations", path.string())};
  Found found{.what = fmt::format("{} holds plain text", path.string())};
  if (!asks_for_records) return {kRecords | kPlain, found.what};
  const TextFiles files = TextFiles::list(std::array{path.string()});
  for (int64_t i = 0; i < files.size(); ++i) found.kinds |= files.kind(i) == TextKind::plain ? kPlain : kRecords;
  return found;
}

std::optional<Found> find_if_there(const fs::path& path, const ConversationSource& source, bool asks_for_records) try {
  if (!TokenSet::is_named_by(path) && !fs::exists(path)) return std::nullopt;
  return find(path, source, asks_for_records);
} catch (const UsageError&) {
  return std::nullopt;
}

}  // namespace

void refuse_unread(std::span<const fs::path> paths, const ConversationSource& source,
                   const std::function<bool(const std::string& key)>& typed) {
  std::vector<ReadBy> rules;
  std::ranges::copy_if(kReadBy, std::back_inserter(rules), [&](const ReadBy& rule) { return typed(rule.key); });
  if (rules.empty() || paths.empty()) return;
  const bool asks_for_records = typed("data.text_field");
  unsigned kinds = 0;
  std::vector<std::string> what;
  for (const fs::path& path : paths) {
    const auto found = find_if_there(path, source, asks_for_records);
    if (!found) return;
    if ((kinds & found->kinds) != found->kinds) what.push_back(found->what);
    kinds |= found->kinds;
  }
  const bool are_sets = (kinds & ~(kTextSet | kChatSet)) == 0;
  for (const ReadBy& rule : rules)
    if ((rule.kinds & kinds) == 0)
      throw UsageError(fmt::format("{} has no effect: {}; {}leave it out", rule.key, base::join(what, ", and "),
                                   are_sets ? "tokenize the text again with it, or " : ""));
}

}  // namespace trireme::data
