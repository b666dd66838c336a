// The families of chat templates, as their models' own templates write them.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/text/chat_template.h"

namespace trireme::text {
namespace {

#define TRIREME_ALPACA_TASK "Below is an instruction that describes a task"
#define TRIREME_ALPACA_INPUT_TASK TRIREME_ALPACA_TASK ", paired with an input that provides further context. "
#define TRIREME_ALPACA_END "Write a response that appropriately completes the request."
#define TRIREME_VICUNA_CHAT "A chat between a curious user and an artificial intelligence assistant"

constexpr ChatFamily alpaca(const char* name, const char* examples, const char* reply, const char* evidence) {
  return {.name = name,
          .examples = examples,
          .begin = nullptr,
          .system = {"", "\n\n"},
          .user = {"### Instruction:\n", reply},
          .evidence = evidence,
          .also = TRIREME_ALPACA_TASK,  // DeepSeek-Coder's has the same headings
          .input_joint = "\n\n### Input:\n",
          .again = "\n\n",
          .usual_system = TRIREME_ALPACA_TASK ". " TRIREME_ALPACA_END,
          .usual_system_input = TRIREME_ALPACA_INPUT_TASK TRIREME_ALPACA_END};
}

// As alpaca, with the same sentence whether there is an input or not.
constexpr ChatFamily task_alone(const char* name, const char* task) {
  ChatFamily family = alpaca(name, "models tuned with LitGPT on these data", "\n\n### Response:\n", nullptr);
  family.input_joint = "\n\n";
  family.usual_system = task;
  family.usual_system_input = task;
  return family;
}

constexpr ChatFamily with_thoughts(ChatFamily family) {
  family.name = "qwen3";
  family.examples = "Qwen3";
  family.has_thoughts = true;
  family.evidence = "'\\n<think>\\n' + reasoning_content.strip(";
  family.also = "loop.index0 > ns.last_query_index";
  family.contrary = {"assistant\\n<think>", "preserve_thinking"};  // Qwen3-Thinking; Qwen3.6 and later
  return family;
}

constexpr ChatFamily kChatMl = {.name = "chatml",
                                .examples = "Qwen2.5, Qwen3-Instruct, SmolLM2",
                                .system = {"<|im_start|>system\n", "<|im_end|>\n"},
                                .user = {"<|im_start|>user\n", "<|im_end|>\n"},
                                .assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"},
                                .stop = "<|im_end|>",
                                .marks = "<|im_start|> <|im_end|>",
                                .evidence = "<|im_start|>",
    // Phi-4; Hermes 2 Pro, LFM2; SmolLM3; QwQ; Qwen3-Thinking, Qwen3.5 and later
    // Others change what a message says, or put a colon behind the role.
                                .contrary = {"<|im_sep|>", "bos_token", "## Metadata", "assistant\\n<think>",
                                             "reasoning_content", "trim", "upper", "lower", "':'", "': '"},
                                .no_thought = "<think>\n\n</think>\n\n"};

// Evidence is searched for in this order: qwen3 before chatml and llama2 before mistral, whose words the templates of
// the first ones contain too.
constexpr ChatFamily kFamilies[] = {
    with_thoughts(kChatMl),
    kChatMl,
    {.name = "llama3",
     .examples = "Llama 3, 3.1, 3.2",
     .begin = "<|begin_of_text|>",
     .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     .trims = true,
     .stop = "<|eot_id|>",
     .marks = "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>",
     .evidence = "<|start_header_id|>"},
    {.name = "gemma",
     .examples = "Gemma 2, Gemma 3",
     .begin = "<bos>",
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
     .system_in_user = {"", "\n\n"},
     .trims = true,
     .trims_system = false,
     .stop = "<end_of_turn>",
     .marks = "<bos> <start_of_turn> <end_of_turn>",
     .evidence = "<start_of_turn>",
     .contrary = {"<start_of_turn>developer"}},  // FunctionGemma
    {.name = "phi3",
     .examples = "Phi-3",
     .system = {"<|system|>\n", "<|end|>\n"},
     .user = {"<|user|>\n", "<|end|>\n"},
     .assistant = {"<|assistant|>\n", "<|end|>\n"},
     .stop = "<|end|>",
     .marks = "<|system|> <|user|> <|assistant|> <|end|>",
     .evidence = "<|end|>",
     .contrary = {"<|tool|>", "<|channel|>"}},  // Phi-4-mini; gpt-oss
    {.name = "zephyr",
     .examples = "Zephyr, TinyLlama-Chat",
     .system = {"<|system|>\n", "</s>\n"},
     .user = {"<|user|>\n", "</s>\n"},
     .assistant = {"<|assistant|>\n", "</s>\n"},
     .stop = "</s>",
     .marks = "<|system|> <|user|> <|assistant|> </s>",
     .evidence = "<|user|>",
     .beside = "eos_token"},  // Tulu 2 and Granite-7b-lab end no user's turn
    {.name = "llama2",
     .examples = "Llama 2 Chat",
     .user = {"<s>[INST]", " [/INST]"},
     .assistant = {"", " </s>"},
     .system_in_user = {" <<SYS>>\n", "\n<</SYS>>\n\n"},
     .words_begin = " ",
     .trims = true,
     .stop = "</s>",
     .marks = "<s> </s>",
     .evidence = "<<SYS>>"},
    {.name = "mistral",
     .examples = "Mistral Instruct 0.1 and 0.2",
     .begin = "<s>",
     .user = {"[INST]", " [/INST]"},
     .assistant = {"", "</s>"},
     .system_in_user = {"", "\n\n"},
     .words_begin = " ",
     .stop = "</s>",
     .marks = "<s> </s> [INST] [/INST]",
     .evidence = "[INST]",
     .also = " [/INST]",  // from version 3 on there is no space
     // Those of 0.1, 0.2 and Mixtral write no space before a reply. Later ones write one before [INST].
     .contrary = {"{{ message['content'] + eos_token", "{{message['content'] + eos_token",
                  "{{- message['content'] + eos_token", "' [INST] '"}},
    alpaca("alpaca", "models tuned with LitGPT or LLaMA-Factory on Alpaca's data", "\n\n### Response:\n",
           "### Response:\\n"),
    alpaca("stanford_alpaca", "Stanford Alpaca: as alpaca, without the last line break before the reply",
           "\n\n### Response:", "### Response:"),
    {.name = "vicuna",
     .examples = "Vicuna 1.1 to 1.5",
     .begin = nullptr,
     .system = {"", " "},
     .user = {"USER:", ""},
     .assistant = {" ASSISTANT:", ""},
     .words_begin = " ",
     .evidence = "ASSISTANT:",
     .also = TRIREME_VICUNA_CHAT,
     .usual_system = TRIREME_VICUNA_CHAT ". The assistant gives helpful, detailed, and polite answers to the user's "
                                         "questions."},
    task_alone("flan", TRIREME_ALPACA_TASK ". " TRIREME_ALPACA_END),
    task_alone("longform", TRIREME_ALPACA_INPUT_TASK TRIREME_ALPACA_END),
    {.name = "default",
     .examples = "none: the prompt, and the reply behind it",
     .begin = nullptr,
     .system = {"", "\n\n"},
     .user = {"", ""}},
};

}  // namespace

std::span<const ChatFamily> chat_families() { return kFamilies; }

const ChatFamily& find_chat_family(const std::string& name) {
  std::vector<std::string> names;
  for (const ChatFamily& family : kFamilies) {
    if (name == family.name) return family;
    names.emplace_back(family.name);
  }
  throw UsageError(fmt::format("there is no chat template {}{}; use {}", name, base::did_you_mean(name, names),
                               base::join(names, ", ")));
}

bool is_written_as(const ChatFamily& family, std::string_view jinja) {
  const auto has = [](std::string_view text, const char* part) { return text.find(part) != std::string_view::npos; };
  const size_t at = jinja.find(family.evidence);
  const std::string_view expression = jinja.substr(at, jinja.find("}}", at) - at);
  return (family.also == nullptr || has(jinja, family.also)) &&
         (family.beside == nullptr || has(expression, family.beside)) &&
         std::ranges::none_of(family.contrary, [&](const char* part) { return part != nullptr && has(jinja, part); });
}

}  // namespace trireme::text
