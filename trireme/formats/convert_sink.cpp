#include "trireme/formats/convert_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/quantized_tensors.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/formats/bitsandbytes.h"
#include "trireme/formats/dcp/dcp.h"
#include "trireme/formats/gguf_blocks.h"
#include "trireme/formats/litgpt/config.h"
#include "trireme/formats/litgpt/names.h"
#include "trireme/formats/torch/file.h"
#include "trireme/formats/whole_model.h"

namespace trireme::formats {
namespace {

std::optional<Dtype> wanted_dtype(const ConvertRequest& request) {
  if (request.dtype.empty()) return std::nullopt;
  const std::optional<Dtype> dtype = checkpoint::parse_torch_name(request.dtype);
  if (dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16) return dtype;
  throw UsageError(fmt::format("error: {} has no dtype {}\n  float32, bfloat16 and float16 can be written", request.to,
                               request.dtype));
}

/// With more than 2^58 values a source is damaged or malicious. With fewer, sums of bytes do not overflow.
void check_total(const std::vector<TensorSpec>& tensors) {
  int64_t elements = 0;
  for (const TensorSpec& tensor : tensors) {
    elements += num_elements(tensor.shape);
    if (elements > checkpoint::kMostElements)
      throw UsageError("error: the tensors say that they hold more than 2^58 values: the source is damaged");
  }
}

/// The dtype for config.json: that of most elements.
std::string common_dtype(const std::vector<TensorSpec>& tensors) {
  std::map<Dtype, int64_t> elements;
  for (const TensorSpec& tensor : tensors)
    if (checkpoint::is_float(tensor.dtype)) elements[tensor.dtype] += num_elements(tensor.shape);
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::string(torch_name(most == elements.end() ? Dtype::f32 : most->first));
}

std::string with_dtype(const std::string& config_json, const std::vector<TensorSpec>& tensors) {
  nlohmann::ordered_json config = base::parse_json<nlohmann::ordered_json>(config_json);
  const auto newer = config.find("dtype");
  nlohmann::ordered_json& dtype = config[newer != config.end() && !newer->is_null() ? "dtype" : "torch_dtype"];
  if (dtype == common_dtype(tensors)) return config_json;  // unchanged byte for byte
  dtype = common_dtype(tensors);
  return config.dump(2) + "\n";
}

/// Float tensors get the dtype asked for.
ConvertPlan plan_map(const ConvertInput& input, std::vector<MappedTensor> map, const ConvertRequest& request) {
  const std::optional<Dtype> dtype = wanted_dtype(request);
  ConvertPlan plan;
  for (MappedTensor& mapped : map) {
    mapped.target.dtype = checkpoint::dtype_for(mapped.target, dtype);
    plan.bytes += tensor_bytes(mapped.target.shape, mapped.target.dtype);
  }
  plan.tensors = std::make_unique<MappedSource>(input.tensors(), std::move(map));
  return plan;
}

/// The same tensors under the same names.
ConvertPlan plan_plain(const ConvertInput& input, const ConvertRequest& request) {
  if (!request.dtype.empty()) checkpoint::refuse_dtype_beside_codes(input.config_json, request.source.string());
  std::vector<MappedTensor> map;
  for (const TensorSpec& tensor : input.tensors().tensors()) map.push_back(renamed(tensor, tensor.name));
  return plan_map(input, std::move(map), request);
}

/// config.json and the other small files, as they will be written.
std::map<std::string, std::string> side_files(const ConvertInput& input, ConvertPlan& plan) {
  std::map<std::string, std::string> files = input.files;
  if (input.config_json.empty())
    plan.notes.push_back("there is no config.json: put the model's own beside its weights before you load them");
  else
    files["config.json"] = with_dtype(input.config_json, plan.tensors->tensors());
  for (const auto& [name, text] : files) plan.bytes += std::ssize(text);
  return files;
}

void write_files(const std::filesystem::path& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : files) checkpoint::write_new_file(folder / name, text);
}

ConvertPlan plan_safetensors(const ConvertInput& input, const ConvertRequest& request) {
  ConvertPlan plan = plan_plain(input, request);
  const std::vector<TensorSpec>& tensors = plan.tensors->tensors();
  plan.bytes = checkpoint::SafetensorsSink::total_bytes(tensors, request.max_shard_bytes);
  plan.open = [tensors, files = side_files(input, plan),
               most = request.max_shard_bytes](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<checkpoint::SafetensorsSink>(folder, tensors, most);
  };
  return plan;
}

/// The format of blocks that is asked for; none: a dtype.
base::BlockFormat wanted_blocks(const ConvertRequest& request) { return base::block_format_named(request.dtype); }

std::string counted_matrices(int64_t count) { return count == 1 ? "1 matrix" : fmt::format("{} matrices", count); }

/// The tensors of a folder with matrices in GGUF's blocks, and notes on where these come from.
std::unique_ptr<TensorSource> gguf_blocks_of(const ConvertInput& input, const std::set<std::string>& matrices,
                                             base::BlockFormat format, std::vector<std::string>& notes) {
  auto source = std::make_unique<GgufBlockSource>(input.tensors(), matrices, format);
  const int64_t copied = source->num_copied(), quantized = source->num_matrices() - copied;
  if (copied > 0)
    notes.push_back(fmt::format("the blocks of {} are kept as the source holds them", counted_matrices(copied)));
  if (quantized > 0)
    notes.push_back(
        fmt::format("the values of {} are quantized to {}", counted_matrices(quantized), base::traits_of(format).name));
  return source;
}

/// A folder with the matrices of all blocks in a few bits.
ConvertPlan plan_blocks(const ConvertInput& input, const ConvertRequest& request) {
  const base::BlockFormat format = wanted_blocks(request);
  if (input.config_json.empty())
    throw UsageError(fmt::format(
        "error: which matrices are kept in {} follows from the model's config.json, and there is none", request.dtype));
  if (input.was_in_blocks)
    throw UsageError(fmt::format("error: {} is in blocks already; convert the model with all its bits to {}",
                                 request.source.string(), request.dtype));
  const std::vector<TensorSpec>& given = input.tensors().tensors();
  const std::set<std::string> matrices = matrices_in_blocks(input.config_json, format);
  const std::string config = with_dtype(input.config_json, given);
  std::map<std::string, std::string> files = input.files;
  ConvertPlan plan;
  for (const TensorSpec& tensor : given) plan.elements += num_elements(tensor.shape);
  if (base::traits_of(format).method == "gguf") {
    plan.tensors = gguf_blocks_of(input, matrices, format, plan.notes);
    files["config.json"] = with_gguf(config, format);
  } else {
    plan.tensors = std::make_unique<BlockSource>(input.tensors(), matrices, format);
    files["config.json"] = with_bitsandbytes(config, format, common_dtype(given));
  }
  const std::vector<TensorSpec>& tensors = plan.tensors->tensors();
  plan.bytes = checkpoint::SafetensorsSink::total_bytes(tensors, request.max_shard_bytes);
  plan.open = [tensors, files, most = request.max_shard_bytes](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<checkpoint::SafetensorsSink>(folder, tensors, most);
  };
  return plan;
}

/// Writes one file of safetensors under PEFT's name.
class PeftSink : public checkpoint::SafetensorsSink {
 public:
  PeftSink(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors)
      : SafetensorsSink(folder, tensors, checkpoint::kMostElements), folder_(folder) {}
  void finish() override {
    SafetensorsSink::finish();
    std::filesystem::rename(folder_ / "model.safetensors", folder_ / adapt::kAdapterModelName);
  }

 private:
  std::filesystem::path folder_;
};

/// PEFT's folder of an adapter.
ConvertPlan plan_peft(const ConvertInput& input, const ConvertRequest& request) {
  const bool is_text_half = model::parse_hugging_face_config(input.config_json, "config.json").is_text_half;
  const checkpoint::Naming naming = is_text_half ? checkpoint::in_vision_model() : checkpoint::Naming{};
  std::vector<MappedTensor> map;
  for (const TensorSpec& tensor : input.tensors().tensors())
    map.push_back(renamed(tensor, model::kPeftPrefix + naming.name_of(tensor.name)));
  ConvertPlan plan = plan_map(input, std::move(map), request);
  plan.open = [tensors = plan.tensors->tensors(),
               config = input.adapter_config_json](const std::filesystem::path& folder) {
    write_files(folder, {{adapt::kAdapterConfigName, config}});
    return std::make_unique<PeftSink>(folder, tensors);
  };
  return plan;
}

/// A single file if `out` has such a name, else a folder with pytorch_model.bin as Hugging Face had it.
ConvertPlan plan_pth(const ConvertInput& input, const ConvertRequest& request) {
  ConvertPlan plan = plan_plain(input, request);
  if (named_as_torch_file(request.out)) plan.single_file = "model.pth";
  const std::string name = plan.single_file.empty() ? "pytorch_model.bin" : plan.single_file;
  std::map<std::string, std::string> files;
  if (plan.single_file.empty()) files = side_files(input, plan);
  plan.open = [tensors = plan.tensors->tensors(), files, name](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<TorchFileSink>(folder / name, tensors);
  };
  return plan;
}

ConvertPlan plan_dcp(const ConvertInput& input, const ConvertRequest& request) {
  ConvertPlan plan = plan_plain(input, request);
  plan.open = [tensors = plan.tensors->tensors(),
               files = side_files(input, plan)](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<DcpSink>(folder, tensors);
  };
  return plan;
}

/// LitGPT's folder: lit_model.pth, model_config.yaml, and the tokenizer's files unchanged.
ConvertPlan plan_litgpt(const ConvertInput& input, const ConvertRequest& request) {
  if (input.config_json.empty())
    throw UsageError(
        "error: LitGPT's model_config.yaml is made of config.json, and there is none\n  put the model's own beside its "
        "weights");
  const model::ModelConfig config = model::parse_hugging_face_config(input.config_json, "config.json");
  const std::string yaml = to_litgpt_yaml(config);  // before the tensors: it says why LitGPT cannot have this model
  ConvertPlan plan = plan_map(input, hugging_face_to_litgpt(input.tensors().tensors(), config), request);
  check_model_tensors(config, input.tensors().tensors(), request.source.string());
  std::map<std::string, std::string> files = input.files;
  files["model_config.yaml"] = yaml;
  // LitGPT's file has no ids of tokens that begin and end texts.
  files.try_emplace("generation_config.json", generation_config(base::parse_json(input.config_json)));
  plan.open = [tensors = plan.tensors->tensors(), files](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<TorchFileSink>(folder / "lit_model.pth", tensors);
  };
  return plan;
}

struct NamedFormat {
  const char* name;
  ConvertPlan (*plan)(const ConvertInput&, const ConvertRequest&);
};
constexpr NamedFormat kFormats[] = {{"safetensors", plan_safetensors},
                                    {"gguf", plan_gguf},
                                    {"pth", plan_pth},
                                    {"dcp", plan_dcp},
                                    {"litgpt", plan_litgpt}};

}  // namespace

bool named_as_torch_file(const std::filesystem::path& out) {
  return out.extension() == ".pth" || out.extension() == ".pt" || out.extension() == ".bin";
}

ConvertPlan plan_convert(const ConvertInput& input, const ConvertRequest& request) {
  check_total(input.tensors().tensors());
  if (!input.adapter_config_json.empty() && request.to == "safetensors") return plan_peft(input, request);
  if (!input.adapter_config_json.empty() && request.to != "gguf")
    throw UsageError(fmt::format(
        "error: {} holds an adapter, which is written as safetensors (PEFT's folder) or gguf, not {}\n  trireme "
        "merge_lora merges it into its base",
        request.source.string(), request.to));
  // GGUF's blocks have a file format of their own, too.
  if (const auto& blocks = base::traits_of(wanted_blocks(request)); blocks.blocks() && request.to != blocks.method) {
    if (request.to == "safetensors") return plan_blocks(input, request);
    throw UsageError(fmt::format("error: {} is written as safetensors{}, not as {}", request.dtype,
                                 blocks.method == "gguf" ? " or gguf" : " alone", request.to));
  }
  std::vector<std::string> names;
  for (const NamedFormat& row : kFormats) {
    if (request.to == row.name) return row.plan(input, request);
    names.emplace_back(row.name);
  }
  throw UsageError(
      fmt::format("error: there is no format {}\n  --to is one of {}", request.to, base::join(names, ", ")));
}

}  // namespace trireme::formats
