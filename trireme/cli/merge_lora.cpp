#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/adapt/open_model.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/good.h"
#include "trireme/cli/command.h"
#include "trireme/formats/litgpt/adapter.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/inference.h"

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
    "written beside the adapter, as ADAPTER-merged. --quantize bnb.nf4 merges an adapter that was trained on a base "
    "in\n"
    "4 bits into the values of these bits, and prints how far the logits of both bases lie apart. Further settings are "
    "those of trireme convert: --dtype, --force,\n"
    "--max_shard_bytes. trireme generate, evaluate and convert take an adapter without merging it first.\n";

fs::path without_slash(const std::string& text) {
  const fs::path path = fs::path(text).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

/// The value of --NAME VALUE or --convert.NAME=VALUE, if `word` is that setting.
void take_value(const std::string& word, const std::string& next, const std::string& name, std::string& value) {
  for (const std::string& setting : {"--" + name, "--convert." + name}) {
    if (word == setting) value = next;
    if (word.starts_with(setting + "=")) value = word.substr(setting.size() + 1);
  }
}

/// Logits of the first tokens of the vocabulary, in another order.
at::Tensor logits_of(const checkpoint::Checkpoint& model) {
  constexpr int64_t kTokens = 64, kStep = 7919;
  const auto alone = train::open_alone(model, {}, kTokens);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < std::min(kTokens, alone->config().longest_generation()); ++i)
    tokens.push_back(i * kStep % alone->config().vocab_size);
  return alone->logits(tokens);
}

/// How far the result, and a merge into the base with all its bits, lie from what was trained.
void print_distances(adapt::ModelPlace place, const fs::path& out, const std::string& quantize) {
  const at::Tensor wide = logits_of(adapt::open_model(place));
  place.quantize = base::block_format_named(quantize);
  const at::Tensor trained = logits_of(adapt::open_model(place)), result = logits_of(adapt::open_base(out));
  const auto distance = [&](const at::Tensor& other) {
    return ((other - trained).square().mean().sqrt() / trained.std()).item<double>();
  };
  fmt::print(
      "logits   of the result are {:.1e} standard deviations from those of the adapter on {}, of a merge into the "
      "base with all its bits {:.1e} (64 tokens)\n",
      distance(result), quantize, distance(wide));
}

}  // namespace

int run_merge_lora(Arguments arguments) {
  if (const auto code = answer_help(arguments, kMergeUsage)) return *code;
  std::vector<std::string> words = {"--convert.to=safetensors"};
  std::string adapter, base, quantize, out;
  bool has_out = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool takes_next = word == "--checkpoint_dir" && i + 1 < arguments.size();  // LitGPT's name
    if (takes_next || (i == 0 && !word.starts_with("-"))) {
      adapter = arguments[takes_next ? ++i : i];
      continue;
    }
    take_value(word, i + 1 < arguments.size() ? arguments[i + 1] : "", "base", base);
    take_value(word, i + 1 < arguments.size() ? arguments[i + 1] : "", "quantize", quantize);
    take_value(word, i + 1 < arguments.size() ? arguments[i + 1] : "", "out", out);
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
  if (!has_out) words.push_back("--convert.out=" + (out = without_slash(adapter).string() + "-merged"));
  const std::string trained = train::saved_setting(checkpoint::open_checkpoint(folder), "quantize");
  if (quantize.empty() && base::block_format_named(trained) != base::BlockFormat::none)
    base::info("the adapter was trained on a base in {}: --quantize {} merges it into the values of these bits",
               trained, trained);
  const int code = run_convert(words);
  if (code == 0 && base::block_format_named(quantize) != base::BlockFormat::none)
    print_distances({.model = adapter, .base = base}, out, quantize);
  return code;
}

}  // namespace trireme::cli
