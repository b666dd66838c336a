// From a Hugging Face model to the plan of a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/dtype.h"
#include "trireme/checkpoint/tied_head.h"
#include "trireme/formats/convert_sink.h"
#include "trireme/formats/gguf/config.h"
#include "trireme/formats/gguf/tokenizer.h"
#include "trireme/formats/vocabulary.h"
#include "trireme/formats/whole_model.h"
#include "trireme/model/embedding.h"
#include "trireme/text/ends_of_text.h"

namespace trireme::formats {
namespace {

constexpr const char* kFileName = "model.gguf";

/// The types of matrices; `file_type` is llama.cpp's general.file_type.
struct Choice {
  const char* dtype;
  GgufType matrices;
  uint32_t file_type;
};
constexpr Choice kChoices[] = {{"float32", GgufType::f32, 0},
                               {"float16", GgufType::f16, 1},
                               {"q4_0", GgufType::q4_0, 2},
                               {"q8_0", GgufType::q8_0, 7},
                               {"bfloat16", GgufType::bf16, 32}};

const Choice& choice_of(const std::string& dtype) {
  for (const Choice& choice : kChoices)
    if (dtype == choice.dtype) return choice;
  throw UsageError(
      fmt::format("error: gguf has no dtype {}\n  float32, bfloat16, float16, q8_0 and q4_0 can be written", dtype));
}

/// The dtype of most elements of the source.
std::string common_choice(const std::vector<TensorSpec>& tensors) {
  int64_t halves = 0, brains = 0, rest = 0;
  for (const TensorSpec& tensor : tensors)
    (tensor.dtype == Dtype::f16 ? halves : tensor.dtype == Dtype::bf16 ? brains : rest) += num_elements(tensor.shape);
  return rest >= halves && rest >= brains ? "float32" : halves >= brains ? "float16" : "bfloat16";
}

GgufType type_of(const TensorSpec& tensor, const Choice& choice, int64_t& odd) {
  // Norms, biases, and GPT-2's positions: other readers take these in float32 only.
  if (tensor.shape.size() < 2 || tensor.name == "position_embd.weight") return GgufType::f32;
  if (tensor.shape.back() % info(choice.matrices).block_elements == 0) return choice.matrices;
  ++odd;
  return GgufType::f16;
}

/// A source with one more tensor, in float32, at its end.
class WithTensor : public TensorSource {
 public:
  WithTensor(const TensorSource& base, const std::string& name, std::vector<float> values)
      : base_(base), values_(std::move(values)), tensors_(base.tensors()) {
    tensors_.push_back({.name = name, .shape = {std::ssize(values_)}, .dtype = Dtype::f32});
  }

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }

  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override {
    if (tensor + 1 < tensors_.size()) return base_.read(tensor, begin, end, data, dtype);
    checkpoint::convert(values_.data() + begin, Dtype::f32, data, dtype, end - begin);
  }

 private:
  const TensorSource& base_;
  std::vector<float> values_;
  std::vector<TensorSpec> tensors_;
};

/// Without this check, a model that lost its last norm or its head would be written as another model.
void check_whole(const ConvertInput& input, std::string_view architecture, const std::string& path) {
  std::vector<TensorSpec> tensors = input.tensors().tensors();
  for (TensorSpec& tensor : tensors) tensor.name = with_prefix(architecture, tensor.name);
  const model::ModelConfig config = model::parse_hugging_face_config(input.config_json, "config.json");
  check_model_tensors(config, tensors, "the source");
  if (!config.tie_word_embeddings) return;
  const auto embedding =
      std::ranges::find(tensors, model::embedding_table_name(config.architecture), &TensorSpec::name);
  const size_t number = static_cast<size_t>(embedding - tensors.begin());
  checkpoint::check_tied_head(input.tensors(), input.tensors().tensors()[number].name, path);
}

/// The ids at which generation ends a text, as trireme generate reads both files.
std::vector<int64_t> ends_of(const ConvertInput& input) {
  std::vector<int64_t> ends;
  if (const auto file = input.files.find("generation_config.json"); file != input.files.end())
    ends = text::eos_ids_in(base::parse_json_if_sound(file->second));
  for (const int64_t id : text::eos_ids_in(base::parse_json(input.config_json))) ends.push_back(id);
  return ends;
}

}  // namespace

ConvertPlan plan_gguf(const ConvertInput& input, const ConvertRequest& request) {
  if (!input.adapter_config_json.empty()) return plan_gguf_adapter(input, request);
  if (input.config_json.empty())
    throw UsageError("error: a GGUF file holds the shape of its model, and there is no config.json to take it from");
  const std::vector<TensorSpec>& sources = input.tensors().tensors();
  const Choice& choice = choice_of(request.dtype.empty() ? common_choice(sources) : request.dtype);
  GgufMetadata metadata;
  const GgufModel model = config_to_gguf(base::parse_json(input.config_json), metadata);
  metadata.add("general.file_type", choice.file_type);
  ConvertPlan plan{.single_file = kFileName, .notes = model.notes};
  check_whole(input, model.architecture, request.source.string());

  const TensorSource* base = &input.tensors();
  std::vector<MappedTensor> map =
      hugging_face_to_gguf(model.architecture, sources, model.heads, model.tied, input.format);
  if (!model.rope_divisors.empty()) {
    plan.extra.push_back(std::make_unique<WithTensor>(*base, "rope_freqs.weight", model.rope_divisors));
    base = plan.extra.back().get();
    map.insert(map.begin(), renamed(base->tensors().back(), "rope_freqs.weight"));
  }
  std::vector<GgufTarget> targets;
  int64_t odd = 0, vocab_size = 0;
  for (MappedTensor& mapped : map) {
    const GgufType type = type_of(mapped.target, choice, odd);
    targets.push_back({.name = mapped.target.name, .shape = mapped.target.shape, .type = type});
    checkpoint::dtype_for(mapped.target, info(type).dtype);  // 8-bit floats are refused
    mapped.target.dtype = info(type).dtype;
    if (mapped.target.name == "token_embd.weight") vocab_size = mapped.target.shape[0];
  }
  if (odd > 0)
    plan.notes.push_back(fmt::format("{} with rows that are no multiple of 32 are written in float16, not {}",
                                     odd == 1 ? "1 matrix" : fmt::format("{} matrices", odd), request.dtype));
  for (const std::string& note : tokenizer_to_gguf(input.files, ends_of(input), vocab_size, metadata))
    plan.notes.push_back(note);
  plan.tensors = std::make_unique<MappedSource>(*base, std::move(map));
  plan.bytes = GgufSink::file_bytes(metadata, targets);
  plan.open = [metadata, targets](const std::filesystem::path& folder) {
    return std::make_unique<GgufSink>(folder / kFileName, metadata, targets);
  };
  return plan;
}

}  // namespace trireme::formats
