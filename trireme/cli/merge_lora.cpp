#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/adapt/open_model.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/good.h"
#include "trireme/cli/command.h"
#include "trireme/cli/convert.h"
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
    "adapters, or a folder of them. trireme generate, evaluate and convert take an adapter without merging it first.\n"
    "\n"
    "  --base PATH         the base model [where the adapter says]\n"
    "  --out FOLDER        where to write the result [beside the adapter, as ADAPTER-merged]\n"
    "  --quantize bnb.nf4  merge into the values of a base in 4 bits, on which the adapter was trained; it prints how\n"
    "                      far the logits of both bases lie apart\n"
    "  --dtype, --force, --max_shard_bytes  as in trireme convert --help\n";

fs::path without_slash(const std::string& text) {
  const fs::path path = fs::path(text).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
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
  std::vector<std::string> words(arguments.begin(), arguments.end());
  const auto is_adapter = [](const std::string& word) { return word == "--adapter" || word.starts_with("--adapter="); };
  if (std::ranges::any_of(words, is_adapter) && !words[0].starts_with("--") && words[0].find('=') == std::string::npos)
    throw UsageError(fmt::format(
        "error: {0} and --adapter are two adapters here\n  the base is named with --base: trireme merge_lora "
        "ADAPTER --base {0}",
        words[0]));
  for (const std::string_view name : {"--checkpoint_dir", "--adapter"})  // LitGPT's, and generate's
    for (std::string& word : words)
      if (word == name || word.starts_with(std::string(name) + "=")) word.replace(0, name.size(), "--convert.source");
  ParsedSettings parsed = read_conversion(std::move(words), "merge_lora", {{"convert.to", "safetensors"}});
  if (parsed.help) {
    fmt::print("{}", kMergeUsage);
    return 0;
  }
  checkpoint::ConvertSettings& settings = parsed.settings.convert;
  const std::string& adapter = settings.source;
  if (adapter.empty())
    throw UsageError(
        "error: no adapter is named\n  trireme merge_lora ADAPTER, for instance trireme merge_lora out/finetune/lora");
  const fs::path folder = checkpoint::newest_or_itself(adapter);
  if (!fs::exists(folder)) throw UsageError(fmt::format("error: there is no folder {}", adapter));
  if (fs::is_regular_file(folder)) throw UsageError("error: " + adapt::no_adapters_file(folder));
  if (fs::exists(folder / formats::kLitAdapterName))
    throw UsageError(fmt::format(
        "error: {} is an adapter of LitGPT, which is merged in two steps\n  trireme convert {} ADAPTER makes "
        "PEFT's folder of it, and trireme merge_lora ADAPTER --base FOLDER merges that into a folder with "
        "safetensors",
        folder.string(), base::shell_quoted(folder.string())));
  if (!adapt::is_adapter_folder(folder))
    throw UsageError(fmt::format(
        "error: {} holds no adapter: there is no {} in it\n  to merge PEFT's adapter into a model, name the "
        "adapter's folder and, with --base, the model's",
        folder.string(), adapt::kAdapterConfigName));
  if (settings.out.empty()) settings.out = without_slash(adapter).string() + "-merged";
  const fs::path ending = fs::path(settings.out).extension();
  if (settings.to == "gguf" || ending == ".gguf")
    throw UsageError(
        "error: merge_lora writes no GGUF file\n  merge into a folder first, and convert that: trireme convert FOLDER "
        "FILE.gguf");
  if (!parsed.given("convert.to") && (ending == ".pth" || ending == ".pt" || ending == ".bin"))
    throw UsageError(
        fmt::format("error: {} has the name of PyTorch's file, and merge_lora writes a folder with safetensors\n  name "
                    "a folder, or say --to pth",
                    settings.out));
  const std::string quantize = settings.quantize.value_or("none");
  const std::string trained = train::saved_setting(adapt::open_adapter_folder(folder).files, "quantize");
  if (!settings.quantize && base::block_format_named(trained) != base::BlockFormat::none)
    base::info("the adapter was trained on a base in {}: --quantize {} merges it into the values of these bits",
               trained, trained);
  convert(settings);
  if (base::block_format_named(quantize) != base::BlockFormat::none)
    print_distances({.model = adapter, .base = settings.base.value_or("")}, settings.out, quantize);
  return 0;
}

}  // namespace trireme::cli
