#include "trireme/checkpoint/convert_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/convert_gguf.h"
#include "trireme/checkpoint/dcp.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/litgpt_config.h"
#include "trireme/checkpoint/litgpt_names.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/checkpoint/torch_file.h"

namespace trireme::checkpoint {
namespace {

std::optional<Dtype> wanted_dtype(const ConvertOptions& options) {
  if (options.dtype.empty()) return std::nullopt;
  if (options.dtype == "float32") return Dtype::f32;
  if (options.dtype == "bfloat16") return Dtype::bf16;
  if (options.dtype == "float16") return Dtype::f16;
  throw UsageError(
      fmt::format("error: {} has no dtype {}\n  float32, bfloat16 and float16 can be written; q8_0 is GGUF's",
                  options.format, options.dtype));
}

/// More than all files of the world hold means that the source is damaged or made to harm; and with fewer, sums of
/// bytes do not overflow.
void check_total(const std::vector<SourceTensor>& tensors) {
  int64_t elements = 0;
  for (const SourceTensor& tensor : tensors) {
    elements += num_elements(tensor.shape);
    if (elements > kMostElements)
      throw UsageError("error: the tensors say that they hold more than 2^58 values: the source is damaged");
  }
}

/// "float32": what config.json says of the model, going by most of its elements.
std::string common_dtype(const std::vector<SourceTensor>& tensors) {
  std::map<Dtype, int64_t> elements;
  for (const SourceTensor& tensor : tensors) {
    if (is_float(tensor.dtype)) elements[tensor.dtype] += num_elements(tensor.shape);
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const Dtype dtype = most == elements.end() ? Dtype::f32 : most->first;
  return dtype == Dtype::f64    ? "float64"
         : dtype == Dtype::f16  ? "float16"
         : dtype == Dtype::bf16 ? "bfloat16"
                                : "float32";
}

std::string with_dtype(const std::string& config_json, const std::vector<SourceTensor>& tensors) {
  nlohmann::ordered_json config = base::parse_json_if_sound<nlohmann::ordered_json>(config_json);
  if (!config.is_object()) throw UsageError("error: the model's config.json is not a JSON object");
  const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";
  if (config.value(key, "") == common_dtype(tensors)) return config_json;  // not a byte changes without need
  config[key] = common_dtype(tensors);
  return config.dump(2) + "\n";
}

/// Names as they are; float tensors in the dtype asked for.
ConvertPlan plan_plain(const ConvertInput& input, const ConvertOptions& options) {
  const std::optional<Dtype> dtype = wanted_dtype(options);
  std::vector<MappedTensor> map;
  ConvertPlan plan;
  for (const SourceTensor& tensor : input.tensors().tensors()) {
    map.push_back(renamed(tensor, tensor.name));
    map.back().target.dtype = dtype_for(tensor, dtype);
    plan.bytes += tensor_bytes(tensor.shape, map.back().target.dtype);
  }
  plan.tensors = std::make_unique<MappedSource>(input.tensors(), std::move(map));
  return plan;
}

/// config.json and what stands beside it, as they will be written.
std::map<std::string, std::string> side_files(const ConvertInput& input, ConvertPlan& plan) {
  std::map<std::string, std::string> files = input.files;
  if (input.config_json.empty()) {
    plan.notes.push_back("there is no config.json: put the model's own beside its weights before anybody loads them");
  } else {
    files["config.json"] = with_dtype(input.config_json, plan.tensors->tensors());
  }
  for (const auto& [name, text] : files) plan.bytes += static_cast<int64_t>(text.size());
  return files;
}

void write_files(const std::filesystem::path& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : files) write_new_file(folder / name, text);
}

ConvertPlan plan_safetensors(const ConvertInput& input, const ConvertOptions& options) {
  ConvertPlan plan = plan_plain(input, options);
  const std::vector<SourceTensor>& tensors = plan.tensors->tensors();
  plan.bytes = SafetensorsSink::total_bytes(tensors, options.max_shard_bytes);
  plan.open = [tensors, files = side_files(input, plan),
               most = options.max_shard_bytes](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<SafetensorsSink>(folder, tensors, most);
  };
  return plan;
}

/// A file alone where the place has such a name, else a folder with pytorch_model.bin as Hugging Face had it.
ConvertPlan plan_pth(const ConvertInput& input, const ConvertOptions& options) {
  ConvertPlan plan = plan_plain(input, options);
  plan.single_file = options.single_file;
  const std::string name = plan.single_file ? "model.pth" : "pytorch_model.bin";
  plan.files = {name};
  std::map<std::string, std::string> files;
  if (!plan.single_file) files = side_files(input, plan);
  plan.open = [tensors = plan.tensors->tensors(), files, name](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<TorchFileSink>(folder / name, tensors);
  };
  return plan;
}

ConvertPlan plan_dcp(const ConvertInput& input, const ConvertOptions& options) {
  ConvertPlan plan = plan_plain(input, options);
  plan.open = [tensors = plan.tensors->tensors(),
               files = side_files(input, plan)](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<DcpSink>(folder, tensors);
  };
  return plan;
}

/// LitGPT's folder: lit_model.pth and model_config.yaml, with the tokenizer's files as they are.
ConvertPlan plan_litgpt(const ConvertInput& input, const ConvertOptions& options) {
  if (input.config_json.empty()) {
    throw UsageError(
        "error: LitGPT's model_config.yaml is made of config.json, and there is none\n  put the model's own beside its "
        "weights");
  }
  const std::optional<Dtype> dtype = wanted_dtype(options);
  const model::ModelConfig config = model::parse_hugging_face_config(input.config_json, "config.json");
  std::vector<MappedTensor> map = hugging_face_to_litgpt(input.tensors().tensors(), config);
  ConvertPlan plan;
  for (MappedTensor& mapped : map) {
    mapped.target.dtype = dtype_for(mapped.target, dtype);
    plan.bytes += tensor_bytes(mapped.target.shape, mapped.target.dtype);
  }
  plan.tensors = std::make_unique<MappedSource>(input.tensors(), std::move(map));
  std::map<std::string, std::string> files = input.files;
  files["model_config.yaml"] = to_litgpt_yaml(config);
  plan.open = [tensors = plan.tensors->tensors(), files](const std::filesystem::path& folder) {
    write_files(folder, files);
    return std::make_unique<TorchFileSink>(folder / "lit_model.pth", tensors);
  };
  return plan;
}

struct NamedFormat {
  const char* name;
  ConvertPlan (*plan)(const ConvertInput&, const ConvertOptions&);
};
constexpr NamedFormat kFormats[] = {{"safetensors", plan_safetensors},
                                    {"gguf", plan_gguf},
                                    {"pth", plan_pth},
                                    {"dcp", plan_dcp},
                                    {"litgpt", plan_litgpt}};

}  // namespace

std::vector<std::string> convert_formats() {
  std::vector<std::string> names;
  for (const NamedFormat& row : kFormats) names.emplace_back(row.name);
  return names;
}

ConvertPlan plan_convert(const ConvertInput& input, const ConvertOptions& options) {
  check_total(input.tensors().tensors());
  for (const NamedFormat& row : kFormats) {
    if (options.format == row.name) return row.plan(input, options);
  }
  throw UsageError(fmt::format("error: there is no format {}\n  --to is one of {}", options.format,
                               base::join(convert_formats(), ", ")));
}

}  // namespace trireme::checkpoint
