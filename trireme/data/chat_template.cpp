#include "trireme/data/chat_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme::data {
namespace fs = std::filesystem;

namespace {

// In the order in which evidence is looked for: Llama 2 speaks Mistral's words and more.
constexpr ChatFamily kFamilies[] = {
    {.name = "chatml",
     .examples = "Qwen2.5, Qwen3, SmolLM2",
     .begin = "",
     .system = {"<|im_start|>system\n", "<|im_end|>\n"},
     .user = {"<|im_start|>user\n", "<|im_end|>\n"},
     .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"},
     .system_joint = "",
     .trims = false,
     .stop = "<|im_end|>",
     .evidence = "<|im_start|>"},
    {.name = "llama3",
     .examples = "Llama 3, 3.1, 3.2",
     .begin = "<|begin_of_text|>",
     .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     .system_joint = "",
     .trims = true,
     .stop = "<|eot_id|>",
     .evidence = "<|start_header_id|>"},
    {.name = "gemma",
     .examples = "Gemma 2, Gemma 3",
     .begin = "<bos>",
     .system = {nullptr, nullptr},
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
     .system_joint = "\n\n",
     .trims = true,
     .stop = "<end_of_turn>",
     .evidence = "<start_of_turn>"},
    {.name = "phi3",
     .examples = "Phi-3",
     .begin = "",
     .system = {"<|system|>\n", "<|end|>\n"},
     .user = {"<|user|>\n", "<|end|>\n"},
     .assistant = {"<|assistant|>\n", "<|end|>\n"},
     .system_joint = "",
     .trims = false,
     .stop = "<|end|>",
     .evidence = "<|end|>"},
    {.name = "zephyr",
     .examples = "Zephyr, TinyLlama-Chat",
     .begin = "",
     .system = {"<|system|>\n", "</s>\n"},
     .user = {"<|user|>\n", "</s>\n"},
     .assistant = {"<|assistant|>\n", "</s>\n"},
     .system_joint = "",
     .trims = false,
     .stop = "</s>",
     .evidence = "<|user|>"},
    {.name = "llama2",
     .examples = "Llama 2 Chat",
     .begin = "",
     .system = {nullptr, nullptr},
     .user = {"<s>[INST] ", " [/INST]"},
     .assistant = {" ", " </s>"},
     .system_joint = "\n<</SYS>>\n\n",
     .trims = true,
     .stop = "</s>",
     .evidence = "<<SYS>>"},
    {.name = "mistral",
     .examples = "Mistral Instruct",
     .begin = "<s>",
     .system = {nullptr, nullptr},
     .user = {"[INST] ", " [/INST]"},
     .assistant = {" ", "</s>"},
     .system_joint = "\n\n",
     .trims = false,
     .stop = "</s>",
     .evidence = "[INST]"},
};

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string content_of(const ChatFamily& family, const ChatMessage& message) {
  return family.trims ? trimmed(message.content) : message.content;
}

/// Appends text, leaving out empty pieces.
void add(std::vector<ChatPiece>& pieces, const std::string& text, bool is_markup, bool is_reply = false) {
  if (!text.empty()) pieces.push_back({text, is_markup, is_reply});
}

// The mark that ends a reply is supervised; line breaks behind it are not.
void add_reply_end(const ChatFamily& family, std::vector<ChatPiece>& pieces) {
  const std::string close = family.assistant.close;
  const size_t end = close.find(family.stop) + std::string(family.stop).size();
  add(pieces, close.substr(0, end), true, true);
  add(pieces, close.substr(end), true);
}

void add_user(const ChatFamily& family, const std::string& system, const ChatMessage& message,
              std::vector<ChatPiece>& pieces) {
  add(pieces, family.user.open, true);
  if (!system.empty()) {
    if (std::string(family.name) == "llama2") add(pieces, "<<SYS>>\n", true);
    add(pieces, system, false);
    add(pieces, family.system_joint, true);
  }
  add(pieces, content_of(family, message), false);
  add(pieces, family.user.close, true);
}

}  // namespace

std::span<const ChatFamily> chat_families() { return kFamilies; }

const ChatFamily& find_chat_family(const std::string& name) {
  std::vector<std::string> names;
  for (const ChatFamily& family : kFamilies) {
    if (name == family.name) return family;
    names.emplace_back(family.name);
  }
  const auto near = base::nearest(name, names);
  throw UsageError(fmt::format("there is no chat template {}{}; use {}", name,
                               near ? fmt::format(" (did you mean {}?)", *near) : "", base::join(names, ", ")));
}

std::optional<std::string> chat_family_of(const fs::path& folder) {
  std::string text;
  if (fs::exists(folder / "chat_template.jinja")) text = base::read_file(folder / "chat_template.jinja");
  if (text.empty() && fs::exists(folder / "tokenizer_config.json")) {
    const nlohmann::json j = nlohmann::json::parse(base::read_file(folder / "tokenizer_config.json"), nullptr, false);
    if (j.is_object() && j.contains("chat_template") && j["chat_template"].is_string())
      text = j["chat_template"].get<std::string>();
  }
  if (text.empty()) return std::nullopt;
  for (const ChatFamily& family : kFamilies)
    if (text.find(family.evidence) != std::string::npos) return family.name;
  return std::nullopt;
}

std::vector<ChatPiece> render_chat(const ChatFamily& family, std::span<const ChatMessage> messages, bool for_reply) {
  std::vector<ChatPiece> pieces;
  add(pieces, family.begin, true);
  std::string system;  // waits for the first user's turn
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    if (m.role == "system") {
      if (i > 0) throw UsageError("a system message stands behind others; it has to be the first");
      if (family.system.open == nullptr) {
        system = content_of(family, m);
        continue;
      }
      add(pieces, family.system.open, true);
      add(pieces, content_of(family, m), false);
      add(pieces, family.system.close, true);
    } else if (m.role == "user") {
      add_user(family, system, m, pieces);
      system.clear();
    } else if (m.role == "assistant") {
      add(pieces, family.assistant.open, true);
      add(pieces, content_of(family, m), false, true);
      add_reply_end(family, pieces);
    } else {
      throw UsageError(fmt::format("a message has the role '{}'; use system, user or assistant", m.role));
    }
  }
  if (for_reply) add(pieces, family.assistant.open, true);
  return pieces;
}

std::vector<ChatPiece> render_next(const ChatFamily& family, const ChatMessage& message) {
  std::vector<ChatPiece> pieces;
  add_reply_end(family, pieces);
  add_user(family, "", message, pieces);
  add(pieces, family.assistant.open, true);
  return pieces;
}

ChatTokens encode_chat(const Tokenizer& tokenizer, std::span<const ChatPiece> pieces) {
  ChatTokens tokens;
  for (const ChatPiece& piece : pieces)
    for (const int32_t id : tokenizer.encode(piece.text, {.parse_special = piece.is_markup})) {
      tokens.ids.push_back(id);
      tokens.is_reply.push_back(piece.is_reply);
    }
  return tokens;
}

}  // namespace trireme::data
