#include "trireme/cli/other_words.h"

#include <array>
#include <utility>

namespace trireme::cli {

namespace {

constexpr std::string_view kTrain = "training is trireme pretrain MODEL";
constexpr std::string_view kTune = "training a model's weights further is trireme pretrain FOLDER";
constexpr std::string_view kAdapters =
    "low-rank adapters are not built yet; training all weights of a model further is trireme pretrain FOLDER";
constexpr std::string_view kGenerate = "writing text is trireme generate CHECKPOINT --prompt TEXT";
constexpr std::string_view kChat = "a conversation on standard input is trireme generate CHECKPOINT --chat";
constexpr std::string_view kEvaluate = "judging a model is trireme evaluate CHECKPOINT --text FILE";
constexpr std::string_view kConvert = "turning one format into another is trireme convert SOURCE OUT";
constexpr std::string_view kDownload = "nothing is downloaded; a model's folder that lies here is named by its path";
constexpr std::string_view kExplain = "what a run would do is said by trireme explain config, mesh, schedule or memory";
constexpr std::string_view kCheckpoint = "that is trireme checkpoint list, verify, diff, reshard or consolidate";

constexpr auto kWords = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"train", kTrain},
    {"fit", kTrain},
    {"sft", kTune},
    {"finetune", kTune},
    {"finetune_full", kTune},
    {"finetune_lora", kAdapters},
    {"finetune_adapter", kAdapters},
    {"finetune_adapter_v2", kAdapters},
    {"lora", kAdapters},
    {"merge_lora", kAdapters},
    {"resume", "going on with a run is trireme pretrain ... --resume true"},
    {"chat", kChat},
    {"serve", "there is no server; a conversation on standard input is trireme generate CHECKPOINT --chat"},
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
    {"torchrun", "starting the ranks of any program is trireme launch --nproc_per_node N -- PROGRAM"},
    {"run", "starting the ranks of any program is trireme launch --nproc_per_node N -- PROGRAM"},
    {"tokenize", "text becomes tokens by trireme data tokenize"},
    {"prepare", "text becomes tokens by trireme data tokenize"},
    {"config", kExplain},
    {"plan", kExplain},
    {"memory", kExplain},
    {"settings", "all settings are in trireme explain settings"},
    {"list", kCheckpoint},
    {"verify", kCheckpoint},
    {"diff", kCheckpoint},
    {"consolidate", kCheckpoint},
    {"env", "facts of this machine are in trireme doctor"},
    {"info", "facts of this machine are in trireme doctor"},
});

}  // namespace

std::string way_out_for(std::string_view subcommand) {
  if (subcommand.starts_with("-")) return "settings stand behind a subcommand: trireme pretrain --config FILE";
  for (const auto& [word, sentence] : kWords)
    if (word == subcommand) return std::string(sentence);
  return "";
}

}  // namespace trireme::cli
