#include "trireme/checkpoint/convert_source.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/dcp.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/gguf_config.h"
#include "trireme/checkpoint/gguf_tokenizer.h"
#include "trireme/checkpoint/litgpt_config.h"
#include "trireme/checkpoint/litgpt_names.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/model_tensors.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/checkpoint/torch_file.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// What stands beside the weights and travels with them.
constexpr const char* kSideFiles[] = {"generation_config.json",
                                      "tokenizer.json",
                                      "tokenizer_config.json",
                                      "tokenizer.model",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "vocab.json",
                                      "merges.txt",
                                      "chat_template.jinja"};

std::string first_bytes(const fs::path& path, int64_t count) {
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  std::string bytes(static_cast<size_t>(std::min(count, file_bytes(file, path))), '\0');
  base::read_at(file, std::as_writable_bytes(std::span(bytes)), 0, path);
  return bytes;
}

/// Small files of a folder; those of a checkpoint with a manifest are verified.
void read_side_files(const fs::path& folder, const Checkpoint* checkpoint, ConvertInput& input) {
  const auto read = [&](const std::string& name) {
    const bool listed = checkpoint && checkpoint->has_manifest && checkpoint->manifest.files.contains(name);
    return listed ? read_text(*checkpoint, name) : base::read_side_file(folder / name);
  };
  if (fs::exists(folder / "config.json")) input.config_json = read("config.json");
  for (const char* name : kSideFiles) {
    if (fs::is_regular_file(folder / name)) input.files[name] = read(name);
  }
}

ConvertInput open_safetensors(const fs::path& folder) {
  ConvertInput input{.format = "safetensors"};
  auto source = std::make_unique<SafetensorsSource>(open_checkpoint(folder));
  if (!source->checkpoint().has_manifest)
    input.notes.push_back(fmt::format("{} has no manifest: its weights cannot be verified", folder.string()));
  if (source->num_optimizer_files() > 0) {
    input.notes.push_back(fmt::format("{} of optimizer state {} left out: other formats hold weights only",
                                      base::plural(source->num_optimizer_files(), "file"),
                                      source->num_optimizer_files() == 1 ? "is" : "are"));
  }
  read_side_files(folder, &source->checkpoint(), input);
  input.chain.push_back(std::move(source));
  return input;
}

std::string generation_config(const nlohmann::ordered_json& config) {
  nlohmann::ordered_json result{{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key)) result[key] = config[key];
  }
  return result.dump(2) + "\n";
}

ConvertInput open_gguf(const fs::path& path) {
  ConvertInput input{.format = "gguf"};
  const auto file = std::make_shared<const GgufFile>(path);
  auto source = std::make_unique<GgufSource>(file);
  const GgufHeader& header = file->header();
  const nlohmann::ordered_json config = config_from_gguf(header, *source);
  input.config_json = config.dump(2) + "\n";
  input.files = tokenizer_from_gguf(header);
  if (input.files.empty()) input.notes.push_back(fmt::format("{} holds no tokenizer", path.string()));
  input.files["generation_config.json"] = generation_config(config);
  auto map = gguf_to_hugging_face(*header.text("general.architecture"), source->tensors(),
                                  heads_of(nlohmann::json(config)), path.string());
  input.chain.push_back(std::move(source));
  input.chain.push_back(std::make_unique<MappedSource>(*input.chain.front(), std::move(map)));
  check_model_tensors(model::parse_hugging_face_config(input.config_json, path.string()), input.tensors().tensors(),
                      path.string());
  return input;
}

/// A .pth, .pt or .bin file, or a folder of Hugging Face's with such; config.json is looked for beside it.
ConvertInput open_pth(const fs::path& path) {
  ConvertInput input{.format = "pth"};
  auto source = std::make_unique<TorchFileSource>(path);
  if (const std::vector<std::string>& left_out = source->left_out(); !left_out.empty())
    input.notes.push_back(fmt::format("{} of {} {} no PyTorch tensor and {} left out, for instance '{}'",
                                      base::plural(static_cast<int64_t>(left_out.size()), "value"), path.string(),
                                      left_out.size() == 1 ? "is" : "are", left_out.size() == 1 ? "is" : "are",
                                      left_out.front()));
  input.chain.push_back(std::move(source));
  read_side_files(fs::is_directory(path) ? path : base::parent_of(path), nullptr, input);
  return input;
}

ConvertInput open_dcp(const fs::path& folder) {
  ConvertInput input{.format = "dcp"};
  input.chain.push_back(std::make_unique<DcpSource>(folder));
  read_side_files(folder, nullptr, input);
  return input;
}

/// LitGPT's folder; a config.json in it is the download's, model_config.yaml is the model's.
ConvertInput open_litgpt(const fs::path& folder) {
  ConvertInput input{.format = "litgpt"};
  read_side_files(folder, nullptr, input);
  const fs::path yaml = folder / "model_config.yaml";
  model::ModelConfig config = parse_litgpt_config(base::read_side_file(yaml), yaml.string());
  auto source = std::make_unique<TorchFileSource>(folder / "lit_model.pth");
  config.tie_word_embeddings = litgpt_head_is_tied(*source);
  input.config_json = config.to_hugging_face_json("float32");
  auto map = litgpt_to_hugging_face(source->tensors(), config);
  input.chain.push_back(std::move(source));
  input.chain.push_back(std::make_unique<MappedSource>(*input.chain.front(), std::move(map)));
  return input;
}

bool has_safetensors(const fs::path& folder) {
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return entry.path().extension() == ".safetensors"; });
}

std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  return files;
}

[[noreturn]] void refuse_source(const fs::path& path, const std::string& what) {
  throw UsageError(fmt::format(
      "error: {} {}\n  trireme convert reads folders with safetensors or pytorch_model.bin files, its own checkpoints, "
      "PyTorch's distributed ones, LitGPT's folders, .pth and .gguf files",
      path.string(), what));
}

ConvertInput open_folder(const fs::path& folder) {
  if (has_safetensors(folder) || fs::exists(folder / kManifestName)) return open_safetensors(folder);
  if (fs::exists(folder / ".metadata")) return open_dcp(folder);
  if (fs::exists(folder / "lit_model.pth")) return open_litgpt(folder);
  if (fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json"))
    return open_pth(folder);
  const std::vector<fs::path> ggufs = gguf_files(folder);
  if (ggufs.size() == 1) return open_gguf(ggufs[0]);
  if (ggufs.size() > 1) refuse_source(folder, fmt::format("holds {} .gguf files: name one of them", ggufs.size()));
  if (const auto latest = find_latest(folder)) return open_folder(*latest);
  refuse_source(folder, "holds no weights in a format that Trireme knows");
}

}  // namespace

namespace {

ConvertInput open_any_source(const fs::path& path) {
  if (!fs::exists(path)) throw UsageError(fmt::format("error: there is no {}", path.string()));
  if (fs::is_directory(path)) return open_folder(path);
  const std::string head = first_bytes(path, 9);
  if (head.starts_with("GGUF")) return open_gguf(path);
  if (head.starts_with("PK\x03\x04")) return open_pth(path);
  if (head.size() == 9 && head[8] == '{')
    refuse_source(path, "is one safetensors file: name its folder, where config.json is");
  refuse_source(path, "is in no format that Trireme knows");
}

}  // namespace

ConvertInput open_convert_source(const fs::path& path) {
  ConvertInput input = open_any_source(path);
  if (!input.tensors().tensors().empty()) return input;
  throw UsageError(fmt::format("error: {} holds no tensor{}\n  there is nothing to convert", path.string(),
                               input.notes.empty() ? "" : fmt::format(" ({})", base::join(input.notes, "; "))));
}

}  // namespace trireme::checkpoint
