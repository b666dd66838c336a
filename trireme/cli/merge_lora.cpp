#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/good.h"
#include "trireme/cli/command.h"
#include "trireme/formats/litgpt/adapter.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMergeUsage =
    "trireme merge_lora ADAPTER [--base PATH] [--out FOLDER]: writes a model with an adapter merged\n"
    "\n"
    "  trireme merge_lora out/finetune/lora                        the newest checkpoint of a run\n"
    "  trireme merge_lora my-adapter --base llama --out merged     PEFT's folder, whose base lies elsewhere now\n"
    "\n"
    "ADAPTER is PEFT's folder (adapter_config.json, adapter_model.safetensors), or a checkpoint of a run that trains\n"
    "adapters, or a folder of them. Without --base the base lies where the adapter says; without --out the result is\n"
    "written beside the adapter, as ADAPTER-merged. Further settings are those of trireme convert: --dtype, --force,\n"
    "--max_shard_bytes. trireme generate, evaluate and convert take an adapter without merging it first.\n";

fs::path without_slash(const std::string& text) {
  const fs::path path = fs::path(text).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

int run_merge_lora(Arguments arguments) {
  if (const auto code = answer_help(arguments, kMergeUsage)) return *code;
  std::vector<std::string> words = {"--convert.to=safetensors"};
  std::string adapter;
  bool has_out = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool takes_next = word == "--checkpoint_dir" && i + 1 < arguments.size();  // LitGPT's name
    if (takes_next || (i == 0 && !word.starts_with("-"))) {
      adapter = arguments[takes_next ? ++i : i];
      continue;
    }
    has_out = has_out || word == "--out" || word.starts_with("--out=") || word.find("convert.out") == 2;
    words.push_back(word);
  }
  if (adapter.empty())
    throw UsageError(
        "error: no adapter is named\n  trireme merge_lora ADAPTER, for instance trireme merge_lora out/finetune/lora");
  const fs::path folder = checkpoint::find_latest(adapter).value_or(adapter);
  if (!fs::exists(folder)) throw UsageError(fmt::format("error: there is no folder {}", adapter));
  if (fs::exists(folder / formats::kLitAdapterName))
    throw UsageError(fmt::format(
        "error: {} is an adapter of LitGPT, which is merged in two steps\n  trireme convert {} ADAPTER makes "
        "PEFT's folder of it, and trireme merge_lora ADAPTER --base FOLDER merges that into a folder with "
        "safetensors",
        folder.string(), folder.string()));
  if (!adapt::is_adapter_folder(folder))
    throw UsageError(fmt::format(
        "error: {} holds no adapter: there is no {} in it\n  to merge PEFT's adapter into a model, name the "
        "adapter's folder and, with --base, the model's",
        folder.string(), adapt::kAdapterConfigName));
  words.push_back("--convert.source=" + adapter);
  if (!has_out) words.push_back("--convert.out=" + without_slash(adapter).string() + "-merged");
  return run_convert(words);
}

}  // namespace trireme::cli
