#include "trireme/train/prompt_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <span>
#include <sstream>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/named_file.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/data/conversation.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/text/not_json.h"
#include "trireme/train/jsonl_records.h"
#include "trireme/train/trained_template.h"

namespace trireme::train {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kOwnKeys[] = {"prompt", "messages", "chat_template_kwargs"};
constexpr const char* kResultKeys[] = {"index", "sample", "text", "finish_reason", "tokens", "logprobs"};

// As data files have them.
std::vector<text::ChatMessage> parse_messages(const ordered_json& list, const ordered_json& line,
                                              const std::string& place) {
  data::refuse_unbuilt_keys(nlohmann::json(line), place);
  data::refuse_system_beside(nlohmann::json(line), place);
  return data::parse_conversation(base::json_text(ordered_json{{"messages", list}}), place,
                                  data::ConversationFormat::messages)
      .messages;
}

Prompt parse_prompt(const ordered_json& j, const std::string& place, ResultKeys result_keys) {
  Prompt p;
  if (j.is_string()) {
    p.text = j.get<std::string>();
    return p;
  }
  const bool has_prompt = j.is_object() && j.contains("prompt"), has_messages = j.is_object() && j.contains("messages");
  if (has_prompt == has_messages)
    throw UsageError("a line is a text, or an object with either \"prompt\" or \"messages\"");
  const ordered_json& asked = has_prompt ? j["prompt"] : j["messages"];
  if (has_messages || asked.is_array()) {  // TRL's conversations are under "prompt"
    p.messages = parse_messages(asked, j, place);
  } else {
    if (!asked.is_string()) throw UsageError("\"prompt\" is neither a text nor a list of messages");
    p.text = asked.get<std::string>();
  }
  if (j.contains("chat_template_kwargs")) p.thinks = data::parse_thinks(j["chat_template_kwargs"].dump(), place);
  for (const auto& [key, value] : j.items()) {
    if (result_keys == ResultKeys::refused && std::ranges::find(kResultKeys, key) != std::end(kResultKeys))
      throw UsageError(fmt::format("\"{}\" is a key of the results; rename it", key));
    if (std::ranges::find(kOwnKeys, key) == std::end(kOwnKeys)) p.others[key] = value;
  }
  return p;
}

}  // namespace

std::vector<Prompt> read_prompts(const fs::path& file, std::string_view setting, ResultKeys result_keys) {
  base::refuse_folder(file, "name the file of prompts in it");
  std::vector<Prompt> prompts;
  for_each_json_text(file, std::string(setting), [&](std::string_view json, const std::string& place, int64_t line) {
    try {
      prompts.push_back(parse_prompt(base::parse_json<ordered_json>(json), place, result_keys));
    } catch (const nlohmann::json::exception&) {
      throw UsageError(fmt::format("{} is {}; a prompt is a line such as {{\"prompt\": \"It is\"}}", place,
                                   text::why_not_json(json)));
    } catch (const UsageError& e) {
      const std::string_view said = e.what();
      throw UsageError(said.starts_with(place) ? std::string(said) : fmt::format("{}: {}", place, said));
    }
    prompts.back().line = line;
  });
  if (prompts.empty()) throw UsageError(fmt::format("{}: {} holds no prompt", setting, file.string()));
  return prompts;
}

const text::ChatFamily& chat_family(const GenerateSettings& g, const fs::path& folder, const fs::path& adapter,
                                    std::string_view setting) {
  if (g.chat_template) return text::find_chat_family(*g.chat_template);
  if (const auto known = template_of_model(folder, adapter)) return text::find_chat_family(known->name);
  throw UsageError(fmt::format("{} names no chat template that is known; name one with {}", folder.string(), setting));
}

void name_template(GenerateSettings& g, const std::vector<Prompt>& prompts, const fs::path& folder,
                   const fs::path& adapter, std::string_view setting) {
  if (std::ranges::any_of(prompts, [](const Prompt& p) { return !p.messages.empty(); }))
    g.chat_template = chat_family(g, folder, adapter, setting).name;
}

std::vector<int64_t> encode(const Prompt& prompt, const text::Tokenizer& tokenizer,
                            const GenerateSettings& settings) try {
  std::vector<int32_t> ids;
  if (prompt.messages.empty()) {
    ids = tokenizer.encode(prompt.text, text::kWholeText);
    if (ids.empty()) ids = tokenizer.document_separator();  // what stands before any text
    if (ids.empty()) ids = tokenizer.encode("\n");
  } else {
    check_invariant(settings.chat_template.has_value(), "a conversation has a template");
    const text::ChatFamily& family = text::find_chat_family(*settings.chat_template);
    std::vector<text::ChatMessage> messages = prompt.messages;
    if (settings.system && messages.front().role != "system")
      messages.insert(messages.begin(), {.role = "system", .content = *settings.system});
    const text::ChatEncoder encoder(tokenizer, family);
    encoder.require_stop();
    ids = encoder.encode(text::render_chat(family, messages, {.for_reply = true, .thinks = prompt.thinks})).ids;
  }
  return {ids.begin(), ids.end()};
} catch (const UsageError& e) {
  if (prompt.line == 0) throw;
  throw UsageError(fmt::format("{}:{}: {}", *settings.prompts, prompt.line, e.what()));
}

ResultFile::ResultFile(fs::path path, std::string about, bool is_first_rank) : path_(std::move(path)) {
  if (path_.empty()) return;
  take_up(about, is_first_rank);
}

fs::path ResultFile::about_path() const { return path_.string() + ".about.json"; }

namespace {

/// Keeps others, such as ranks of a killed command that just end, from adding lines.
class FileLock {
 public:
  explicit FileLock(int file) : file_(file) {
    while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {  // a signal that asks for a stop
    }
  }
  ~FileLock() { ::flock(file_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

/// Locks a file that at most a killed command, which just ends, still has locked. A file system without locks: true.
bool is_locked_soon(int file) {
  constexpr auto kEndOfKilled = std::chrono::seconds(5);
  const auto end = std::chrono::steady_clock::now() + kEndOfKilled;
  while (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

/// ": max_new_tokens was 50, is 500 now", or nothing if what was written about them cannot be read.
std::string what_differs(const std::string& before, const std::string& about) {
  const ordered_json old = base::parse_json_if_sound<ordered_json>(before), now = base::parse_json<ordered_json>(about);
  if (!old.is_object()) return "";
  // Checksums say nothing to a reader.
  const std::map<std::string, const char*> checksums = {{"prompts", "its prompts are not these"},
                                                        {"weights", "its model's weights are not these"},
                                                        {"adapter_weights", "its adapter's weights are not these"}};
  std::vector<std::string> said;
  for (const auto& [key, value] : now.items())
    if (const auto sum = checksums.find(key); sum != checksums.end()) {
      if (old.contains(key) && old[key] != value) said.emplace_back(sum->second);
    } else if (!old.contains(key) || old[key] != value) {
      said.push_back(fmt::format("{} was {}, is {} now", key, base::json_text(old.value(key, ordered_json())),
                                 base::json_text(value)));
    }
  return said.empty() ? "" : ": " + base::join(said, "; ");
}

}  // namespace

// A line that a kill has cut is cut off.
void ResultFile::take_up(const std::string& about, bool is_first_rank) {
  file_ = base::open_file(path_, O_RDWR | O_CREAT | O_APPEND, 0644);
  const FileLock lock(file_.get());
  const std::string text = fs::file_size(path_) > 0 ? base::read_file(path_) : "";
  const std::string before = fs::exists(about_path()) ? base::read_file(about_path()) : "";
  if (!text.empty() && before != about)
    throw UsageError(fmt::format("{} holds other texts{}; name another file with --output, or delete it",
                                 path_.string(), what_differs(before, about)));
  if (is_first_rank) {
    about_ = base::open_file(about_path(), O_RDWR | O_CREAT, 0644);
    if (!is_locked_soon(about_.get()))
      throw UsageError(
          fmt::format("another process is writing {}; wait until it ends, or name another file with "
                      "--output",
                      path_.string()));
  }
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  std::istringstream lines(text.substr(0, whole));
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const ordered_json j = base::parse_json_if_sound<ordered_json>(line);
    if (!j.is_object() || !j.contains("index") || !j.contains("sample") || !base::is_whole_number(j["index"]) ||
        !base::is_whole_number(j["sample"]))
      throw UsageError(fmt::format("{}:{} is no result of trireme generate; name another file with --output",
                                   path_.string(), number));
    done_.insert({j["index"].get<int64_t>(), j["sample"].get<int64_t>()});
  }
  if (!is_first_rank) return;
  if (whole < text.size() && ftruncate(file_.get(), static_cast<off_t>(whole)) != 0)
    base::throw_file_error("cut off the last line of", path_, errno);
  if (before == about) return;  // otherwise there is no text yet that it would be about
  if (ftruncate(about_.get(), 0) != 0) base::throw_file_error("write", about_path(), errno);
  base::write_at(about_, std::as_bytes(std::span(about)), 0, about_path());
}

void ResultFile::add(const ordered_json& result) {
  const std::string line = base::json_text(result) + "\n";
  if (path_.empty()) {
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0)
      base::throw_file_error("write", "standard output", errno);
    return;
  }
  const FileLock lock(file_.get());
  const off_t end = lseek(file_.get(), 0, SEEK_END);
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(file_.get(), line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int code = errno;
      if (ftruncate(file_.get(), end) != 0) written = 0;  // the reader cuts it off
      base::throw_file_error("write", path_, code);
    }
    written += static_cast<size_t>(n);
  }
}

void ResultFile::finish() const {
  if (path_.empty()) return;
  std::map<Key, std::string> ordered;
  std::istringstream lines(base::read_file(path_));
  for (std::string line; std::getline(lines, line);) {
    const ordered_json j = base::parse_json<ordered_json>(line);
    ordered[{j["index"].get<int64_t>(), j["sample"].get<int64_t>()}] = line;
  }
  std::string all;
  for (const auto& [key, line] : ordered) all += line + "\n";
  base::write_named_file(path_, all);
}

}  // namespace trireme::train
