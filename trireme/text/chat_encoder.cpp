#include "trireme/text/chat_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::text {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The first place after `at` where `text` may be cut; its end if there is none.
size_t cut_behind(std::string_view text, size_t at) {
  do ++at;
  while (at < text.size() && !begins_character(text[at]));
  return std::min(at, text.size());
}

// Places inside every occurrence of `token`.
void find_cuts(std::string_view text, std::string_view token, std::set<size_t>& cuts) {
  if (token.size() < 2) return;
  for (size_t at = text.find(token); at != std::string_view::npos; at = text.find(token, at + 1)) {
    const size_t cut = cut_behind(text, at);
    if (cut < at + token.size()) cuts.insert(cut);
  }
}

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, const ChatFamily& family)
    : tokenizer_(tokenizer), family_(family) {
  std::istringstream words(family.marks);
  for (std::string word; words >> word;)
    if (const auto id = tokenizer.token_id(word)) marks_.push_back(*id);
  const auto before = tokenizer.encode("", {.add_special = true});
  if (!before.empty() && tokenizer.bos_id() == before[0]) begin_ = {before[0]};
  if (const auto id = tokenizer.eos_id()) {
    end_ = {*id};
    marks_.push_back(*id);
  } else {
    end_ = tokenizer.document_separator();
  }
}

void ChatEncoder::require_stop() const {
  if (family_.stop == nullptr || tokenizer_.token_id(family_.stop)) return;
  throw UsageError(
      fmt::format("the tokenizer ({}) has no token {}, which ends a reply in the chat template {}; name another "
                  "template (alpaca needs no token of its own) or another tokenizer",
                  tokenizer_.name(), family_.stop, family_.name));
}

std::vector<int32_t> ChatEncoder::opening_of_reply() const {
  const ChatMessage message{.role = "user", .content = "a"};
  const std::vector<ChatPiece> pieces = render_chat(family_, {&message, 1}, {.for_reply = true});
  const auto after =
      std::find_if(pieces.rbegin(), pieces.rend(), [](const ChatPiece& piece) { return !piece.is_markup; }).base();
  const size_t before = encode({pieces.data(), static_cast<size_t>(after - pieces.begin())}).ids.size();
  const std::vector<int32_t> all = encode(pieces).ids;
  return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
}

bool ChatEncoder::is_mark(int32_t id) const { return std::find(marks_.begin(), marks_.end(), id) != marks_.end(); }

ChatTokens ChatEncoder::encode(std::span<const ChatPiece> pieces) const {
  ChatTokens tokens;
  std::vector<int32_t>& ids = tokens.ids;
  for (const ChatPiece& piece : pieces) {
    const TextBefore before = ids.empty()                                                ? TextBefore::nothing
                              : is_mark(ids.back()) || tokenizer_.is_special(ids.back()) ? TextBefore::token
                                                                                         : TextBefore::text;
    if (piece.token != ChatPiece::Token::none) {
      const auto& token = piece.token == ChatPiece::Token::begin ? begin_ : end_;
      ids.insert(ids.end(), token.begin(), token.end());
    } else if (piece.is_markup) {
      const auto added = tokenizer_.encode(piece.text, {.before = before});
      ids.insert(ids.end(), added.begin(), added.end());
    } else {
      add_content(piece.text, before, ids);
    }
    tokens.mask.resize(ids.size(), piece.is_learned ? 1 : 0);
  }
  return tokens;
}

// parse_special is off, but some models have special tokens in their vocabulary and may still produce them.
void ChatEncoder::add_content(std::string_view text, TextBefore before, std::vector<int32_t>& ids) const {
  const auto added = tokenizer_.encode(text, {.parse_special = false, .as_text = marks_, .before = before});
  std::vector<int32_t> forged;
  for (const int32_t id : added)
    if (is_mark(id) || tokenizer_.is_special(id)) forged.push_back(id);
  if (!forged.empty() && cut_behind(text, 0) < text.size()) return add_in_parts(text, before, forged, ids);
  if (std::ranges::any_of(forged, [&](int32_t id) { return is_mark(id); }))
    throw UsageError(
        fmt::format("the tokenizer encodes the character '{}' as a token that is a mark of the chat template {}; name "
                    "another template with --data.chat_template",
                    text, family_.name));
  ids.insert(ids.end(), added.begin(), added.end());  // perhaps with the token for unknown characters
}

// Cuts inside everything that reads like a forged token; if there is nothing of the kind, in the middle.
void ChatEncoder::add_in_parts(std::string_view text, TextBefore before, std::span<const int32_t> forged,
                               std::vector<int32_t>& ids) const {
  std::set<size_t> cuts;
  for (const int32_t id : std::set<int32_t>(forged.begin(), forged.end()))
    find_cuts(text, tokenizer_.decode({&id, 1}), cuts);
  if (cuts.empty()) {
    const size_t middle = cut_behind(text, text.size() / 2 - 1);
    cuts.insert(middle < text.size() ? middle : cut_behind(text, 0));
  }
  cuts.insert(text.size());
  size_t done = 0;
  for (const size_t cut : cuts) {
    add_content(text.substr(done, cut - done), done == 0 ? before : TextBefore::text, ids);
    done = cut;
  }
}

}  // namespace trireme::text
