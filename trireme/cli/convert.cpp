#include "trireme/cli/convert.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/good.h"
#include "trireme/cli/command.h"
#include "trireme/cli/out_dir_lock.h"
#include "trireme/cli/read_settings.h"
#include "trireme/formats/convert.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/observe/work_bar.h"

namespace trireme::cli {
namespace {

constexpr const char* kConvertUsage =
    "trireme convert SOURCE OUT: converts a model to another format\n"
    "\n"
    "  trireme convert SmolLM2.Q4_1.gguf smollm2                   a GGUF file to a Hugging Face folder, dequantised\n"
    "  trireme convert out/austen austen.gguf --dtype float16      the newest checkpoint of a run to GGUF\n"
    "  trireme convert llama llama-bf16 --dtype bfloat16           half the size\n"
    "  trireme convert model.pth model --to dcp                    PyTorch's file to its distributed form\n"
    "  trireme convert llama llama-tuned --adapter out/lora        with PEFT's adapter merged\n"
    "\n"
    "SOURCE is recognised by its contents: a .gguf or .pth file, a folder with safetensors or pytorch_model.bin,\n"
    "LitGPT's folder, PyTorch's distributed checkpoint, a checkpoint of Trireme or a folder of them, an adapter, "
    "which\n"
    "is merged into its base. If OUT ends in .gguf or .pth, it is such a file; else a folder with safetensors,\n"
    "config.json and tokenizer. --to overrides this. Tensors stream in pieces, so memory does not grow with the\n"
    "model. OUT appears by one rename when all of it is on the disk. docs/formats.md lists what every format "
    "keeps.\n\n";

/// VmHWM: unlike getrusage's figure, it does not include the process that started this one.
int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

}  // namespace

ParsedSettings read_conversion(std::vector<std::string> words, std::string command,
                               std::vector<std::pair<std::string, std::string>> defaults) {
  if (!words.empty() && !words[0].starts_with("-")) words[0] = "--convert.source=" + words[0];
  return read_settings(words, {.values = std::move(defaults),
                               .command = std::move(command),
                               .positional = "",
                               .reads_its_section_alone = true,
                               .section = "convert"});
}

void convert(const checkpoint::ConvertSettings& settings) {
  refuse_in_a_running_jobs_folder(settings.out);
  refuse_weights_among_a_runs_steps(settings.out);
  base::make_files_as_private_as(
      std::vector<std::filesystem::path>{checkpoint::find_latest(settings.source).value_or(settings.source)});
  launch::install_stop_signal();
  const int64_t before = peak_bytes();
  formats::ConvertResult result;
  {
    observe::WorkBar bar("converting");
    const auto progress = [&](const formats::ConvertProgress& so_far) {
      launch::end_work_when_stopped();
      bar.show(static_cast<double>(so_far.done_bytes) / static_cast<double>(so_far.total_bytes));
    };
    result = formats::convert_checkpoint({.source = settings.source,
                                          .out = settings.out,
                                          .adapter = settings.adapter.value_or(""),
                                          .base = settings.base.value_or(""),
                                          .to = settings.to.value_or(""),
                                          .dtype = settings.dtype.value_or(""),
                                          .quantize = base::block_format_named(settings.quantize.value_or("none")),
                                          .force = settings.force,
                                          .max_shard_bytes = settings.max_shard_bytes,
                                          .progress = progress,
                                          .note = [](const std::string& line) { base::info("{}", line); }});
  }
  fmt::print("{}  {} to {}: {}, {} parameters, {} in {} ({}/s)\n", settings.out, result.from, result.to,
             base::plural(result.tensors, "tensor"), base::human_quantity(static_cast<double>(result.elements)),
             base::human_bytes(result.bytes), base::human_duration(result.seconds),
             base::human_bytes(static_cast<int64_t>(static_cast<double>(result.bytes) / result.seconds.count())));
  fmt::print("peak memory {}, {} of them the program itself\n", base::human_bytes(peak_bytes()),
             base::human_bytes(before));
}

int run_convert(Arguments arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  if (words.size() > 1 && !words[0].starts_with("-") && !words[1].starts_with("-"))
    words[1] = "--convert.out=" + words[1];
  const ParsedSettings parsed = read_conversion(std::move(words), "convert");
  if (parsed.help) {
    fmt::print("{}{}", kConvertUsage, settings_help({"convert"}, {.section = "convert"}));
    return 0;
  }
  const checkpoint::ConvertSettings& settings = parsed.settings.convert;
  if (settings.source.empty() || settings.out.empty())
    throw UsageError(fmt::format(
        "error: {} is not named\n  trireme convert SOURCE OUT, for instance trireme convert model.gguf model",
        settings.source.empty() ? "what to convert" : "where to write"));
  convert(settings);
  return 0;
}

}  // namespace trireme::cli
