#include "trireme/checkpoint/foreign_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/checkpoint/inspect.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The names in `folder`, sorted. A folder that cannot be read has none.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// A Trainer keeps state of other kinds in files with such endings, too.
bool is_torch_file(const std::string& name) {
  for (const char* other : {"optimizer", "scheduler", "scaler", "rng_state"})
    if (name.starts_with(other)) return false;
  return name.ends_with(".pth") || name.ends_with(".pt") || name.ends_with(".ckpt") ||
         (name.starts_with("pytorch_model") && name.ends_with(".bin"));
}

bool has(const std::vector<std::string>& names, const char* name) { return std::ranges::count(names, name) > 0; }

/// What to name for trireme convert: the folder, or something in it; empty: nothing.
fs::path to_convert(const fs::path& folder, const std::vector<std::string>& names, std::string& found) {
  for (const char* whole :
       {".metadata", "lit_model.pth", "lit_model.pth.lora", "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!has(names, whole)) continue;
    found = whole;
    return folder;
  }
  for (const std::string& name : names) {
    std::error_code ignored;
    const bool is_distributed =
        fs::exists(folder / name / ".metadata", ignored);  // pytorch_model_fsdp_0, of Accelerate
    if (!is_distributed && !is_torch_file(name) && !name.ends_with(".gguf")) continue;
    found = name;
    return folder / name;
  }
  return {};
}

}  // namespace

std::string advice_on_deepspeed(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  const auto is_step = [](const std::string& name) { return name.starts_with("global_step"); };
  const auto is_state = [](const std::string& name) { return name.ends_with("_model_states.pt"); };
  const bool is_run = has(names, "latest") && std::ranges::any_of(names, is_step);
  const fs::path run = is_run                                 ? folder
                       : std::ranges::any_of(names, is_state) ? (folder / "..").lexically_normal()
                                                              : fs::path();
  if (run.empty()) return "";
  return fmt::format(
      "{} holds a checkpoint of DeepSpeed, which is not read: python {} {} OUT --safe_serialization writes its "
      "weights to OUT; copy config.json and the tokenizer there, and name OUT",
      folder.string(), base::shell_quoted((run / "zero_to_fp32.py").string()), base::shell_quoted(run.string()));
}

std::string advice_on_foreign_weights(const fs::path& folder) {
  if (holds_weights(folder)) return "";
  const std::vector<std::string> names = names_in(folder);
  std::string found;
  const fs::path source = to_convert(folder, names, found);
  if (source == folder)
    return fmt::format(
        "{} holds its weights in {}, which only trireme convert reads: trireme convert {} OUT, and "
        "name OUT",
        folder.string(), found, base::shell_quoted(folder.string()));
  if (std::string advice = advice_on_deepspeed(folder); !advice.empty()) return advice;
  if (!source.empty())
    return fmt::format(
        "{} holds its weights in {}, which only trireme convert reads: trireme convert {} OUT, and name "
        "OUT",
        folder.string(), found, base::shell_quoted(source.string()));
  for (const char* name : {"tf_model.h5", "flax_model.msgpack"})
    if (has(names, name))
      return fmt::format(
          "{} holds its weights in {}, which is not read: load it with transformers (from_tf or from_flax), "
          "save it with save_pretrained, and name the result",
          folder.string(), name);
  return "";
}

}  // namespace trireme::checkpoint
