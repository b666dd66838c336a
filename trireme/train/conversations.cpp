#include "trireme/train/conversations.h"

#include <algorithm>
#include <thread>

#include "trireme/train/setup.h"

namespace trireme::train {
namespace fs = std::filesystem;
namespace {

std::optional<data::ConversationFormat> format_of(const config::DataSettings& d) {
  using enum data::ConversationFormat;
  const std::string name = d.format ? *d.format : d.name == "Alpaca" ? "alpaca" : "";
  if (name == "alpaca") return alpaca;
  if (name == "sharegpt") return sharegpt;
  if (name == "messages") return messages;
  return std::nullopt;
}

}  // namespace

data::ConversationSource conversation_source(const config::Settings& settings) {
  using Use = data::ConversationSource::Use;
  const config::DataSettings& d = settings.data;
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const auto format = format_of(d);
  const fs::path tokenizer = tokenizer_path(settings);
  return {.use = d.format == "text"           ? Use::never
                 : format || d.name == "JSON" ? Use::always
                                              : Use::found,
          .options = {.format = format,
                      .learn = d.learn == "last_reply" ? data::Learn::last_reply
                               : d.learn == "messages" ? data::Learn::messages
                                                       : data::Learn::replies,
                      .max_tokens = settings.train.max_seq_length ? *settings.train.max_seq_length + 1 : 0,
                      .drop_long = d.long_conversations == "drop",
                      .num_threads = static_cast<int>(settings.prepare.threads.value_or(cores))},
          .chat_template = d.name == "Alpaca" && !d.chat_template ? "alpaca" : d.chat_template,
          .folder = fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path()};
}

}  // namespace trireme::train
