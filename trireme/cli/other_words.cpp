// Subcommands of LitGPT, torchrun and Hugging Face, and what to type here.
#include <array>
#include <utility>

#include "trireme/cli/command.h"

namespace trireme::cli {
namespace {

constexpr std::string_view kTrain = "to train, use trireme pretrain MODEL";
constexpr std::string_view kTune = "to train an existing model further, use trireme finetune_full FOLDER";
constexpr std::string_view kAdapters = "adapters here are low-rank adapters: use trireme finetune_lora FOLDER";
constexpr std::string_view kPairs =
    "to train on pairs of replies, use trireme finetune_dpo FOLDER (dpo.loss_type names the rule)";
constexpr std::string_view kRewards =
    "to train on rewards for answers, use trireme grpo FOLDER --reward.functions exact";
constexpr std::string_view kMerge = "to write a model with an adapter merged, use trireme merge_lora ADAPTER";
constexpr std::string_view kGenerate = "to generate text, use trireme generate CHECKPOINT --prompt TEXT";
constexpr std::string_view kChat = "to chat on standard input, use trireme generate CHECKPOINT --chat";
constexpr std::string_view kEvaluate = "to evaluate a model, use trireme evaluate CHECKPOINT --text FILE";
constexpr std::string_view kConvert = "to convert a model to another format, use trireme convert SOURCE OUT";
constexpr std::string_view kDownload = "nothing is downloaded; give the path of a model's folder on this machine";
constexpr std::string_view kLaunch =
    "to start the ranks of any program, use trireme launch --nproc_per_node N -- PROGRAM";
constexpr std::string_view kTokenize = "to turn text into tokens, use trireme data tokenize";
constexpr std::string_view kExplain =
    "to see what a run would do, use trireme explain config, mesh, schedule or memory";
constexpr std::string_view kCheckpoint = "use trireme checkpoint list, verify, diff, reshard or consolidate";
constexpr std::string_view kDoctor = "for facts about this machine, use trireme doctor";

constexpr auto kWords = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"train", kTrain},
    {"fit", kTrain},
    {"sft", kTune},
    {"finetune_adapter", kAdapters},
    {"finetune_adapter_v2", kAdapters},
    {"lora", kAdapters},
    {"dpo", kPairs},
    {"orpo", kPairs},
    {"simpo", kPairs},
    {"ipo", kPairs},
    {"ppo", kRewards},
    {"rlhf", kRewards},
    {"rlvr", kRewards},
    {"rloo", kRewards},
    {"merge", kMerge},
    {"merge_adapter", kMerge},
    {"resume", "to resume a run, use trireme pretrain ... --resume true"},
    {"chat", kChat},
    {"serve", "there is no server; to chat on standard input, use trireme generate CHECKPOINT --chat"},
    {"sample", kGenerate},
    {"infer", kGenerate},
    {"inference", kGenerate},
    {"predict", kGenerate},
    {"complete", kGenerate},
    {"eval", kEvaluate},
    {"test", kEvaluate},
    {"perplexity", kEvaluate},
    {"validate", kEvaluate},
    {"download", kDownload},
    {"pull", kDownload},
    {"convert_to_litgpt", kConvert},
    {"convert_from_litgpt", kConvert},
    {"convert_pretrained_checkpoint", kConvert},
    {"export", kConvert},
    {"quantize", kConvert},
    {"torchrun", kLaunch},
    {"run", kLaunch},
    {"tokenize", kTokenize},
    {"prepare", kTokenize},
    {"config", kExplain},
    {"memory", kExplain},
    {"settings", "for all settings, use trireme explain settings"},
    {"list", kCheckpoint},
    {"verify", kCheckpoint},
    {"diff", kCheckpoint},
    {"consolidate", kCheckpoint},
    {"env", kDoctor},
    {"info", kDoctor},
});

}  // namespace

std::string hint_for(std::string_view subcommand) {
  if (subcommand.starts_with("-")) return "settings follow a subcommand: trireme pretrain --config FILE";
  for (const auto& [word, sentence] : kWords)
    if (word == subcommand) return std::string(sentence);
  return "";
}

}  // namespace trireme::cli
