// Files of prompts for trireme generate --prompts: JSON in each line, or one list of objects; and what is written back
// about each text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/settings/settings.h"
#include "trireme/text/chat_template.h"
#include "trireme/text/tokenizer.h"

namespace trireme::train {

/// A line of the file: "a text", {"prompt": "a text"} or {"messages": [{"role", "content"}, ...]}; "prompt" may
/// hold such a list too.
struct Prompt {
  int64_t line = 0;  ///< from 1
  std::string text;
  std::vector<text::ChatMessage> messages;  ///< a conversation, instead of `text`
  bool thinks = true;
  nlohmann::ordered_json others = nlohmann::ordered_json::object();  ///< further keys, which the results repeat
};

/// What becomes of further keys with the name of a key of the results, such as "index".
enum class ResultKeys {
  refused,  ///< as the results repeat further keys
  others,   ///< are further keys like others: no results are written
};

/// `setting` names the file. Errors    UsageError naming file and line, or the setting of a file that is not there
std::vector<Prompt> read_prompts(const std::filesystem::path& file, std::string_view setting,
                                 ResultKeys result_keys = ResultKeys::refused);

/// The option of trireme generate that names a chat format.
inline constexpr std::string_view kTemplateOption = "--chat_template";

/// The chat format that the settings name, or that of the model (template_of_model).
/// Errors    UsageError if neither is known; `setting` could name one
const text::ChatFamily& chat_family(const GenerateSettings& settings, const std::filesystem::path& folder,
                                    const std::filesystem::path& adapter, std::string_view setting = kTemplateOption);

/// Names the chat format for all prompts, if one of them is a conversation. Says nothing if there is none.
/// Errors    as chat_family
void name_template(GenerateSettings& settings, const std::vector<Prompt>& prompts, const std::filesystem::path& folder,
                   const std::filesystem::path& adapter, std::string_view setting = kTemplateOption);

/// `settings` name the chat format of conversations (name_template).
/// Errors    UsageError naming the line: no tokens, or a conversation that the template cannot write
std::vector<int64_t> encode(const Prompt& prompt, const text::Tokenizer& tokenizer, const GenerateSettings& settings);

/// The results, a JSON object a line, as they come; at the end in the order of the prompts. A file that is there
/// already is taken up: the texts in it are not written again.
class ResultFile {
 public:
  /// Which text: the number of its prompt, from 0 on, and of its sample.
  using Key = std::pair<int64_t, int64_t>;

  /// `about` says what the texts depend on; it is kept beside the file. An empty path is standard output.
  /// Errors    UsageError if the file holds texts that depend on something else, or other lines, or another command
  ///           writes it
  ResultFile(std::filesystem::path path, std::string about, bool is_first_rank);

  bool has(const Key& key) const { return done_.contains(key); }
  int64_t count() const { return static_cast<int64_t>(done_.size()); }
  /// Adds a line, whole or not at all. Ranks may share the file. Errors    FileError
  void add(const nlohmann::ordered_json& result);
  /// Puts the lines in order. On one rank, when all have added theirs. Errors    FileError
  void finish() const;

 private:
  std::filesystem::path about_path() const;
  void take_up(const std::string& about, bool is_first_rank);

  std::filesystem::path path_;
  base::FileDescriptor file_, about_;  ///< the first rank locks `about_` as long as its command runs
  std::set<Key> done_;
};

}  // namespace trireme::train
