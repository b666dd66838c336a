#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/cli/data_commands.h"
#include "trireme/data/show.h"
#include "trireme/data/text_source.h"
#include "trireme/data/token_set.h"
#include "trireme/data/unread.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

constexpr int64_t kMostTokens = 2000;  // that are printed of a document

/// Prints up to prepare.count documents.
class Printer {
 public:
  Printer(const Settings& settings, const text::Tokenizer& tokenizer, bool has_mask)
      : tokenizer_(tokenizer),
        left_(settings.prepare.count),
        options_{
            .colour = base::terminal_has_colour(STDOUT_FILENO), .ids = settings.prepare.ids, .has_mask = has_mask} {
    fmt::print("{}\n", data::show_legend(options_));
  }

  bool wants_more() const { return left_ > 0; }

  /// `is_cut`: there are more tokens than `ids`.
  void print(const std::string& title, std::span<const int32_t> ids, std::span<const uint8_t> mask,
             bool is_cut = false) {
    --left_;
    const auto shown = std::min(ids.size(), static_cast<size_t>(kMostTokens));
    const int64_t learned = mask.empty() ? 0 : std::count(mask.begin(), mask.end(), uint8_t{1});
    fmt::print("\n-- {}: {}{}{}\n", title, is_cut ? "more than " : "", base::plural(std::ssize(ids), "token"),
               mask.empty() ? "" : fmt::format(", {} learned", base::human_count(learned)));
    fmt::print("{}",
               data::show_tokens(tokenizer_, ids.first(shown), mask.first(std::min(mask.size(), shown)), options_));
    if (shown < ids.size())
      fmt::print("... {}{} more\n", is_cut ? "at least " : "",
                 base::plural(static_cast<int64_t>(ids.size() - shown), "token"));
  }

 private:
  const text::Tokenizer& tokenizer_;
  int64_t left_;
  data::ShowOptions options_;
};

std::unique_ptr<text::Tokenizer> tokenizer_for(const Settings& settings, const data::TokenSet& set) {
  auto tokenizer = named_tokenizer(settings, "show");
  const auto& about = set.about();
  if (about && about->tokenizer_fingerprint != 0 && about->tokenizer_fingerprint != tokenizer->fingerprint())
    throw UsageError(
        fmt::format("{} was tokenized with another tokenizer ({}) than --data.tokenizer {} ({}); name the one it was "
                    "made with",
                    set.path().string(), about->tokenizer, *settings.data.tokenizer, tokenizer->name()));
  return tokenizer;
}

void show_set(const std::string& path, const Settings& settings) {
  const data::TokenSet set = data::TokenSet::open(path);
  const auto tokenizer = tokenizer_for(settings, set);
  Printer printer(settings, *tokenizer, set.has_mask());
  for (int64_t d = 0; d < set.num_documents() && printer.wants_more(); ++d) {
    const int64_t first = set.document_start(d);
    const auto count = static_cast<size_t>(set.document_start(d + 1) - first);
    std::vector<int64_t> wide(count);
    set.copy(first, wide);
    const std::vector<int32_t> ids(wide.begin(), wide.end());
    std::vector<uint8_t> mask(set.has_mask() ? count : 0);
    if (set.has_mask()) set.copy_mask(first, mask);
    printer.print(fmt::format("document {} of {}, from token {}", d, base::human_count(set.num_documents()),
                              base::human_count(first)),
                  ids, mask);
  }
}

void show_conversations(std::span<const std::filesystem::path> files, const data::ConversationSource& source,
                        const Settings& settings) {
  const auto tokenizer = named_tokenizer(settings, "show");
  const text::ChatFamily& family = source.family(files);
  const data::ConversationOptions& options = source.options;
  const text::ChatEncoder encoder(*tokenizer, family);
  encoder.require_stop();
  fmt::print("chat template {}\n", family.name);
  Printer printer(settings, *tokenizer, true);
  for (const auto& path : files) {
    const base::MappedFile file(path);
    data::RecordReader reader({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
    while (printer.wants_more()) {
      const auto record = reader.next();
      if (!record) break;
      const std::string place = reader.place(*record);
      const auto conversation = data::parse_conversation(record->text, place, options.format, options.columns);
      data::ConversationCounts counts;
      const auto tokens = data::render_conversation(conversation, family, encoder, options, counts);
      if (tokens.ids.empty())
        fmt::print("\n-- {}: left out, because none of its tokens is trained on\n", place);
      else
        printer.print(place + (counts.cut > 0 ? " (cut)" : ""), tokens.ids, tokens.mask);
    }
  }
}

void show_text(const std::string& path, const Settings& settings) {
  const auto tokenizer = named_tokenizer(settings, "show");
  data::TextSource source(data::TextFiles::list(std::span(&path, 1)), settings.data.text_field, *tokenizer);
  Printer printer(settings, *tokenizer, false);
  const std::vector<int32_t> separator =
      settings.data.append_eos ? tokenizer->document_separator() : std::vector<int32_t>();
  int64_t file = -1, document = 0;  // of that file
  std::vector<int32_t> ids;
  bool is_cut = false;  // the rest of a long document is not encoded
  while (printer.wants_more()) {
    const auto block = source.next_block();
    if (!block) break;
    source.read(*block, [&](const data::TextPiece& piece) {
      if (!printer.wants_more()) return;
      if (piece.text.empty() && piece.begins_document && piece.ends_document) return;  // no set has it
      if (std::ssize(ids) <= kMostTokens) {
        const auto more = tokenizer->encode(piece.text);
        ids.insert(ids.end(), more.begin(), more.end());
      } else {
        is_cut = is_cut || !piece.text.empty();
      }
      if (!piece.ends_document) return;
      if (!is_cut) ids.insert(ids.end(), separator.begin(), separator.end());
      document = piece.file == file ? document + 1 : 0;
      file = piece.file;
      printer.print(fmt::format("{}, document {}", source.files().path(file).string(), document), ids, {}, is_cut);
      ids.clear();
      is_cut = false;
    });
  }
}

}  // namespace

int data_show(const ParsedSettings& parsed) {
  if (parsed.list.empty())
    throw UsageError("error: trireme data show needs files of text or conversations, or the PREFIX of a tokenized set");
  const data::ConversationSource source = train::conversation_source(parsed.settings);
  const std::vector<std::filesystem::path> paths(parsed.list.begin(), parsed.list.end());
  data::refuse_unread(paths, source, [&](const std::string& key) { return parsed.typed(key); });
  for (const std::string& path : parsed.list) {
    if (data::TokenSet::is_named_by(path)) {
      show_set(path, parsed.settings);
      continue;
    }
    const auto files = source.files(path);
    files.empty() ? show_text(path, parsed.settings) : show_conversations(files, source, parsed.settings);
  }
  return 0;
}

}  // namespace trireme::cli
