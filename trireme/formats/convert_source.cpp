#include "trireme/formats/convert_source.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "trireme/adapt/merge.h"
#include "trireme/adapt/resolve.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/foreign_weights.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/formats/dcp/dcp.h"
#include "trireme/formats/gguf/config.h"
#include "trireme/formats/gguf/tokenizer.h"
#include "trireme/formats/litgpt/adapter.h"
#include "trireme/formats/litgpt/config.h"
#include "trireme/formats/litgpt/names.h"
#include "trireme/formats/scaled_floats.h"
#include "trireme/formats/torch/file.h"
#include "trireme/formats/whole_model.h"
#include "trireme/model/model.h"
#include "trireme/text/chat_template.h"
#include "trireme/text/ends_of_text.h"
#include "trireme/text/load_tokenizer.h"

namespace trireme::formats {
namespace {

namespace fs = std::filesystem;

std::string first_bytes(const fs::path& path, int64_t count) {
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  std::string bytes(std::min(count, checkpoint::file_bytes(file, path)), '\0');
  base::read_at(file, std::as_writable_bytes(std::span(bytes)), 0, path);
  return bytes;
}

/// Reads the small files of a folder; those of a checkpoint with a manifest are verified. `is_its_own`: config.json is
/// that of the source; otherwise it may be that of another program.
void read_side_files(const fs::path& folder, const checkpoint::Checkpoint* checkpoint, ConvertInput& input,
                     bool is_its_own = true) {
  const auto read = [&](const std::string& name) {
    if (checkpoint && checkpoint->texts.contains(name)) return checkpoint::read_text(*checkpoint, name);
    const bool listed = checkpoint && checkpoint->has_manifest && checkpoint->manifest.files.contains(name);
    return listed ? checkpoint::read_text(*checkpoint, name) : base::read_side_file(folder / name);
  };
  if (fs::exists(folder / "config.json")) {
    input.config_json = read("config.json");
    if (!base::parse_json_if_sound(input.config_json).is_object()) {
      if (is_its_own)
        throw UsageError(fmt::format("error: {} is not a JSON object\n  copy it again from where the model came from",
                                     (folder / "config.json").string()));
      input.config_json.clear();
    }
  }
  for (const std::string& name : text::tokenizer_file_names())
    if (fs::is_regular_file(folder / name)) input.files[name] = read(name);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".tiktoken" && entry.is_regular_file())
      input.files[entry.path().filename().string()] = read(entry.path().filename().string());
}

bool all_are_empty(const TensorSource& source) {
  return std::ranges::all_of(source.tensors(), [](const TensorSpec& t) { return num_elements(t.shape) == 0; });
}

/// Takes the prefix of a wrapped model off all names. If config.json `is_its_own`, the model has to be whole.
void meet_config(ConvertInput& input, const fs::path& path, bool is_its_own) {
  const TensorSource& stored = input.tensors();
  const auto config = known_model(input.config_json, std::ssize(stored.tensors()));
  if (!config || all_are_empty(stored)) return;
  if (const std::string prefix = wrapper_prefix(*config, stored.tensors()); !prefix.empty()) {
    std::vector<MappedTensor> map;
    for (const TensorSpec& tensor : stored.tensors()) map.push_back(renamed(tensor, tensor.name.substr(prefix.size())));
    input.chain.push_back(std::make_unique<MappedSource>(stored, std::move(map)));
    input.notes.push_back(fmt::format("{} is taken off the names of all tensors", prefix));
  }
  if (is_its_own) check_model_tensors(*config, input.tensors().tensors(), path.string(), /*may_vary=*/true);
}

/// The merged model is asked in the chat template that the adapter was trained in, and stops where its replies end.
void take_template_of_adapter(const adapt::ModelPlace& place, const fs::path& base, ConvertInput& input) {
  const fs::path adapter = adapt::adapter_of(place);
  const std::string jinja = adapter.empty() ? "" : text::chat_template_of(adapter);
  if (jinja.empty()) return;
  if (jinja != text::chat_template_of(input.files)) text::set_chat_template(input.files, jinja);
  const auto family = text::chat_family_of_template(jinja);
  if (!family) return;
  try {
    const auto tokenizer = text::load_tokenizer(text::has_tokenizer(base) ? base : adapter);
    if (const auto id = text::end_of_reply(text::find_chat_family(*family), *tokenizer))
      text::add_end_of_text(*id, *tokenizer, input.config_json, input.files);
  } catch (const UsageError&) {  // a tokenizer that is not read is copied all the same
  }
}

ConvertInput open_safetensors(const adapt::ModelPlace& place) {
  ConvertInput input{.format = "safetensors"};
  auto source = std::make_unique<checkpoint::SafetensorsSource>(adapt::open_model(place, &input.notes));
  const fs::path folder = source->checkpoint().path;
  if (!source->checkpoint().has_manifest)
    input.notes.push_back(fmt::format("{} has no manifest: its weights cannot be verified", folder.string()));
  if (source->num_optimizer_files() > 0)
    input.notes.push_back(fmt::format("{} of optimizer state {} left out: the result holds weights only",
                                      base::plural(source->num_optimizer_files(), "file"),
                                      source->num_optimizer_files() == 1 ? "is" : "are"));
  read_side_files(folder, &source->checkpoint(), input);
  take_template_of_adapter(place, folder, input);
  if (source->checkpoint().quantized != nullptr) {
    input.was_in_blocks = source->checkpoint().change == nullptr;  // a merged adapter has changed the values
    input.notes.push_back("matrices in blocks are read as the values that their codes stand for");
    if (!input.config_json.empty()) input.config_json = without_quantization(input.config_json);
  }
  input.chain.push_back(std::move(source));
  if (has_scaled_floats(*input.chain.front())) {
    auto scaled = std::make_unique<ScaledFloatSource>(*input.chain.front(), input.config_json, folder.string());
    input.notes.push_back(fmt::format("{} of 8-bit floats {} read with the scales beside them, as bfloat16",
                                      base::plural(scaled->num_scaled(), "tensor"),
                                      scaled->num_scaled() == 1 ? "is" : "are"));
    input.chain.push_back(std::move(scaled));
    if (!input.config_json.empty()) input.config_json = without_quantization(input.config_json);
  }
  meet_config(input, folder, /*is_its_own=*/true);
  return input;
}

}  // namespace

std::string generation_config(const nlohmann::json& config) {
  nlohmann::ordered_json result{{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.contains(key)) result[key] = config[key];
  return result.dump(2) + "\n";
}

namespace {

ConvertInput open_gguf(const fs::path& path) {
  ConvertInput input{.format = "gguf"};
  auto source = std::make_unique<GgufSource>(path);
  const GgufHeader& header = source->header();
  const nlohmann::ordered_json config = config_from_gguf(header, *source);
  input.config_json = config.dump(2) + "\n";
  input.files = tokenizer_from_gguf(header);
  if (input.files.empty()) input.notes.push_back(fmt::format("{} holds no tokenizer", path.string()));
  input.files["generation_config.json"] = generation_config(nlohmann::json(config));
  auto map = gguf_to_hugging_face(*header.text("general.architecture"), source->tensors(),
                                  heads_of(nlohmann::json(config)), path.string());
  input.chain.push_back(std::move(source));
  input.chain.push_back(std::make_unique<MappedSource>(*input.chain.front(), std::move(map)));
  check_model_tensors(model::parse_hugging_face_config(input.config_json, path.string()), input.tensors().tensors(),
                      path.string());
  return input;
}

/// A .pth, .pt or .bin file, or a Hugging Face folder with such files; config.json may lie beside it.
ConvertInput open_pth(const fs::path& path) {
  ConvertInput input{.format = "pth"};
  auto source = std::make_unique<TorchFileSource>(path);
  if (const std::vector<std::string>& left_out = source->left_out(); !left_out.empty())
    input.notes.push_back(fmt::format(
        "{} of {} {} no PyTorch tensor and {} left out, for instance '{}'", base::plural(std::ssize(left_out), "value"),
        path.string(), left_out.size() == 1 ? "is" : "are", left_out.size() == 1 ? "is" : "are", left_out.front()));
  input.chain.push_back(std::move(source));
  const bool is_folder = fs::is_directory(path);
  read_side_files(is_folder ? path : base::parent_of(path), nullptr, input, is_folder);
  meet_config(input, path, is_folder);
  return input;
}

ConvertInput open_dcp(const fs::path& folder) {
  ConvertInput input{.format = "dcp"};
  input.chain.push_back(std::make_unique<DcpSource>(folder));
  read_side_files(folder, nullptr, input);
  meet_config(input, folder, /*is_its_own=*/true);
  return input;
}

constexpr const char *kLitModelName = "lit_model.pth", *kLitConfigName = "model_config.yaml";

/// LitGPT's folder. It may hold the config.json of the download, but model_config.yaml describes the model.
ConvertInput open_litgpt(const fs::path& folder) {
  ConvertInput input{.format = "litgpt"};
  read_side_files(folder, nullptr, input, /*is_its_own=*/false);
  const fs::path yaml = folder / kLitConfigName;
  model::ModelConfig config = parse_litgpt_config(base::read_side_file(yaml), yaml.string());
  auto source = std::make_unique<TorchFileSource>(folder / kLitModelName);
  config.tie_word_embeddings = litgpt_head_is_tied(*source);
  input.config_json = config.to_hugging_face_json("float32");
  auto map = litgpt_to_hugging_face(source->tensors(), config);
  input.chain.push_back(std::move(source));
  input.chain.push_back(std::make_unique<MappedSource>(*input.chain.front(), std::move(map)));
  check_model_tensors(config, input.tensors().tensors(), folder.string());
  return input;
}

/// A folder of LitGPT's finetune_lora that is not merged yet.
ConvertInput open_litgpt_adapter(const fs::path& folder) {
  ConvertInput input{.format = "litgpt's adapter"};
  const fs::path yaml = folder / kLitConfigName, options = folder / "hyperparameters.yaml";
  const model::ModelConfig config = parse_litgpt_config(base::read_side_file(yaml), yaml.string());
  auto source = std::make_unique<TorchFileSource>(folder / kLitAdapterName);
  LitAdapter adapter = litgpt_adapter(source->tensors(), config, base::read_side_file(options), options.string());
  input.config_json = config.to_hugging_face_json("float32");
  input.adapter_config_json = adapt::adapter_config_json(adapter.config);
  input.chain.push_back(std::move(source));
  input.chain.push_back(std::make_unique<MappedSource>(*input.chain.front(), std::move(adapter.map)));
  input.notes.push_back(
      "the result is PEFT's folder of an adapter: trireme merge_lora merges it, with --base for a folder with "
      "safetensors");
  return input;
}

std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  return files;
}

[[noreturn]] void refuse_source(const fs::path& path, const std::string& what) {
  throw UsageError(
      fmt::format("error: {} {}\n  trireme convert reads folders with safetensors or pytorch_model.bin files, its own "
                  "checkpoints, PyTorch's distributed ones, LitGPT's folders, .pth and .gguf files",
                  path.string(), what));
}

ConvertInput open_folder(const fs::path& folder) {
  if (checkpoint::holds_weights(folder) || fs::exists(folder / checkpoint::kManifestName))
    return open_safetensors({.model = folder});
  if (fs::exists(folder / ".metadata")) return open_dcp(folder);
  if (fs::exists(folder / kLitModelName)) return open_litgpt(folder);
  if (fs::exists(folder / kLitAdapterName)) return open_litgpt_adapter(folder);
  if (fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json"))
    return open_pth(folder);
  if (const std::string advice = checkpoint::advice_on_deepspeed(folder); !advice.empty())
    throw UsageError("error: " + advice);
  const std::vector<fs::path> ggufs = gguf_files(folder);
  if (ggufs.size() == 1) return open_gguf(ggufs[0]);
  if (ggufs.size() > 1) refuse_source(folder, fmt::format("holds {} .gguf files: name one of them", ggufs.size()));
  if (const fs::path newest = checkpoint::newest_or_itself(folder); newest != folder) return open_folder(newest);
  if (!checkpoint::list_step_folders(folder).empty())
    return open_safetensors({.model = folder});  // says what they lack
  refuse_source(folder, "holds no weights in a format that Trireme knows");
}

/// LitGPT's file of weights counts as its folder, whose other files say what is in it.
std::optional<ConvertInput> open_litgpts_file(const fs::path& path) {
  const fs::path folder = base::parent_of(path), name = path.filename();
  if (!fs::exists(folder / kLitConfigName)) return std::nullopt;
  if (name == kLitModelName) return open_litgpt(folder);
  if (name == kLitAdapterName) return open_litgpt_adapter(folder);
  return std::nullopt;
}

ConvertInput open_any_source(const fs::path& path) {
  if (!fs::exists(path)) {
    const bool may_be_a_hubs_name = path.string().find('/') != std::string::npos;
    throw UsageError(fmt::format("error: there is no {}{}{}", path.string(), may_be_a_hubs_name ? ": " : "",
                                 may_be_a_hubs_name ? base::kFetchFirst : ""));
  }
  if (fs::is_directory(path)) return open_folder(path);
  const std::string head = first_bytes(path, 16);
  if (head.starts_with("GGUF")) return open_gguf(path);
  if (auto litgpt = open_litgpts_file(path)) return *std::move(litgpt);
  if (looks_like_torch_file(head)) return open_pth(path);
  if (head.size() > 8 && head[8] == '{')
    refuse_source(path, "is one safetensors file: name its folder, where config.json is");
  refuse_source(path, "is in no format that Trireme knows");
}

/// Whether the source is an adapter or gets one. Adapters are merged into folders with safetensors.
bool is_about_adapters(const adapt::ModelPlace& place) {
  if (place.adapter.empty()) return !place.base.empty() || is_adapter(place.model);
  const fs::path model = checkpoint::newest_or_itself(place.model);
  if (checkpoint::holds_weights(model) || !fs::exists(model)) return true;
  refuse_source(place.model, "is no folder with safetensors, into which adapters are merged: convert it to one first");
}

/// The tensors of an adapter's file, under the names that adapt::adapter_tensors() gives.
class AdapterSource : public TensorSource {
 public:
  AdapterSource(checkpoint::Checkpoint files, const std::map<std::string, std::string>& file_names)
      : files_(std::move(files)) {
    for (const auto& [name, file_name] : file_names) {
      const checkpoint::StoredTensor& stored = files_.tensor(file_name);
      tensors_.push_back({.name = name, .shape = stored.shape, .dtype = stored.dtype});
      file_names_.push_back(file_name);
    }
  }
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override {
    checkpoint::read_piece(files_, {file_names_.at(tensor), begin, end, data, dtype});
  }

 private:
  checkpoint::Checkpoint files_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::string> file_names_;
};

}  // namespace

bool is_adapter(const fs::path& path) {
  return adapt::is_adapter_folder(path) || adapt::is_adapter_folder(checkpoint::newest_or_itself(path));
}

ConvertInput open_adapter_source(const adapt::ModelPlace& place) {
  const adapt::AdapterFolder adapter = adapt::open_adapter_folder(place.model);
  const checkpoint::Checkpoint base = adapt::open_base(adapt::base_of(adapter, place.base));
  ConvertInput input{.format = "peft"};
  input.config_json = checkpoint::read_text(base, "config.json");
  const model::ModelConfig config =
      model::parse_hugging_face_config(input.config_json, (base.path / "config.json").string());
  const adapt::FittedAdapter fitted = adapt::fit(adapter, config);
  adapt::check_base(base, adapter);
  adapt::check_copies(base, adapter, fitted, checkpoint::naming_of(base, adapt::modules_of(config).front().weight));
  input.adapter_config_json = adapt::adapter_config_json(adapt::config_for_peft(adapter.config, config));
  input.chain.push_back(std::make_unique<AdapterSource>(adapter.files, fitted.file_names));
  return input;
}

ConvertInput open_convert_source(const adapt::ModelPlace& place) {
  const fs::path& path = place.model;
  ConvertInput input = is_about_adapters(place) ? open_safetensors(place) : open_any_source(path);
  if (!all_are_empty(input.tensors())) return input;
  if (!input.tensors().tensors().empty())
    throw UsageError(
        fmt::format("error: all tensors of {} are empty\n  ZeRO-3 leaves such files beside its own: DeepSpeed's "
                    "zero_to_fp32.py writes the weights",
                    path.string()));
  throw UsageError(fmt::format("error: {} holds no tensor{}\n  there is nothing to convert", path.string(),
                               input.notes.empty() ? "" : fmt::format(" ({})", base::join(input.notes, "; "))));
}

}  // namespace trireme::formats
