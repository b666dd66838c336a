#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/adapt/adapter_config.h"
#include "trireme/adapt/resolve.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/formats/convert_sink.h"
#include "trireme/formats/gguf/config.h"
#include "trireme/formats/gguf/names.h"
#include "trireme/formats/gguf/tensors.h"

namespace trireme::formats {
namespace {

constexpr const char* kAdapterFileName = "adapter.gguf";

/// A source whose tensors are multiplied by a number each.
class ScaledSource : public TensorSource {
 public:
  ScaledSource(const TensorSource& base, std::map<std::string, float> factors) : base_(base) {
    for (const TensorSpec& tensor : base.tensors()) {
      const auto found = factors.find(tensor.name);
      factors_.push_back(found == factors.end() ? 1 : found->second);
    }
  }
  const std::vector<TensorSpec>& tensors() const override { return base_.tensors(); }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override {
    if (factors_.at(tensor) == 1) return base_.read(tensor, begin, end, data, dtype);
    std::vector<float> values(static_cast<size_t>(end - begin));
    base_.read(tensor, begin, end, values.data(), Dtype::f32);
    for (float& value : values) value *= factors_[tensor];
    checkpoint::convert(values.data(), Dtype::f32, data, dtype, end - begin);
  }

 private:
  const TensorSource& base_;
  std::vector<float> factors_;
};

[[noreturn]] void refuse(const std::string& what) {
  throw UsageError(
      fmt::format("error: llama.cpp's form of adapters has no {}\n  merge the adapter first: trireme "
                  "merge_lora, then convert the result",
                  what));
}

/// A or B under GGUF's names. B's rows are those of the base's matrix, in GGUF's order of rows.
void add_module(const adapt::Module& m, int64_t rank, const GgufModel& model, std::vector<MappedTensor>& map) {
  const TensorSpec b{.name = m.name + model::kLoraB, .shape = {m.out, rank}};
  const TensorSpec a{.name = m.name + model::kLoraA, .shape = {rank, m.in}};
  const TensorSpec weight{.name = m.weight, .shape = m.in_out ? std::vector{m.in, m.out} : std::vector{m.out, rank}};
  MappedTensor rows = hugging_face_to_gguf(model.architecture, std::span(&weight, 1), model.heads, false, "peft").at(0);
  const std::string name = rows.target.name;
  map.push_back(renamed(a, name + ".lora_a"));
  if (m.in_out) {  // a Conv1D, which is only transposed
    map.push_back(renamed(b, name + ".lora_b"));
    return;
  }
  rows.target = {.name = name + ".lora_b", .shape = b.shape};
  for (RowPiece& piece : rows.pieces) piece.source = b.name;
  map.push_back(std::move(rows));
}

}  // namespace

ConvertPlan plan_gguf_adapter(const ConvertInput& input, const ConvertRequest& request) {
  if (!request.dtype.empty() && request.dtype != "float32")
    throw UsageError(
        fmt::format("error: an adapter is written in float32, not {}\n  leave out --dtype", request.dtype));
  const model::ModelConfig config = model::parse_hugging_face_config(input.config_json, "config.json");
  const adapt::AdapterConfig options = adapt::parse_adapter_config(input.adapter_config_json, "the adapter");
  const model::Adapters adapters = adapt::resolve(options, config);
  if (!adapters.whole.empty()) refuse(fmt::format("whole modules (modules_to_save: {})", *adapters.whole.begin()));
  if (options.use_dora) refuse("magnitudes (use_dora)");
  if (options.lora_bias) refuse("biases (lora_bias)");
  GgufMetadata model_keys;
  const GgufModel model = config_to_gguf(base::parse_json(input.config_json), model_keys);
  const double alpha = options.lora_alpha == 0 ? 1 : options.lora_alpha;
  std::vector<MappedTensor> map;
  std::map<std::string, float> factors;
  for (const adapt::Module& m : adapt::modules_of(config)) {
    const auto found = adapters.modules.find(m.name);
    if (found == adapters.modules.end()) continue;
    if (m.kind == adapt::Module::Kind::embedding) refuse(fmt::format("adapters of embeddings ({})", m.name));
    if (m.is_head && config.tie_word_embeddings) refuse("adapter of a head that is tied to the embedding");
    const model::AdapterSpec& spec = found->second;
    factors[m.name + model::kLoraB] = static_cast<float>(spec.scale * static_cast<double>(spec.rank) / alpha);
    add_module(m, spec.rank, model, map);
  }
  GgufMetadata metadata;
  metadata.add("general.architecture", std::string_view(model.architecture));
  metadata.add("general.type", std::string_view("adapter"));
  metadata.add("adapter.type", std::string_view("lora"));
  metadata.add("adapter.lora.alpha", static_cast<float>(alpha));
  metadata.add("general.file_type", uint32_t{0});

  ConvertPlan plan{.single_file = kAdapterFileName};
  plan.extra.push_back(std::make_unique<ScaledSource>(input.tensors(), std::move(factors)));
  std::vector<GgufTarget> targets;
  for (MappedTensor& mapped : map) {
    mapped.target.dtype = Dtype::f32;
    targets.push_back({.name = mapped.target.name, .shape = mapped.target.shape, .type = GgufType::f32});
  }
  plan.tensors = std::make_unique<MappedSource>(*plan.extra.back(), std::move(map));
  plan.bytes = GgufSink::file_bytes(metadata, targets);
  plan.open = [metadata, targets](const std::filesystem::path& folder) {
    return std::make_unique<GgufSink>(folder / kAdapterFileName, metadata, targets);
  };
  return plan;
}

}  // namespace trireme::formats
