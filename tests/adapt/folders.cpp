#include "folders.h"

#include <fstream>

#include "trireme/adapt/resolve.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/model/model.h"

namespace trireme::adapt {
namespace {

checkpoint::Dtype file_dtype(at::ScalarType type) {
  return type == at::kDouble     ? checkpoint::Dtype::f64
         : type == at::kBFloat16 ? checkpoint::Dtype::bf16
                                 : checkpoint::Dtype::f32;
}

}  // namespace

model::ModelConfig small_model(model::Architecture architecture, int64_t blocks) {
  model::ModelConfig c = model::default_config(architecture);
  model::set_architecture(c, architecture);
  c.vocab_size = 32;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_attention_heads = 4;
  c.num_key_value_heads = architecture == model::Architecture::gpt2 ? 4 : 2;
  c.head_dim = 4;
  c.max_position_embeddings = 16;
  c.tie_word_embeddings = architecture == model::Architecture::gpt2;
  model::set_num_hidden_layers(c, blocks);
  return c;
}

void write_safetensors(const std::filesystem::path& path, const Tensors& tensors) {
  std::vector<checkpoint::TensorSpec> specs;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, tensor.sizes().vec(), file_dtype(tensor.scalar_type())});
    const at::Tensor whole = tensor.contiguous();
    data.append(static_cast<const char*>(whole.data_ptr()), whole.nbytes());
  }
  base::write_file_atomic(path, checkpoint::write_header(specs, {{"format", "pt"}}) + data);
}

Tensors write_model(const std::filesystem::path& folder, const model::ModelConfig& config, at::ScalarType dtype) {
  std::filesystem::create_directories(folder);
  Tensors tensors;
  const model::Model model = model::build_model(config, {at::kFloat, at::kFloat});
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters) tensors[p.name] = at::randn(p.whole_shape()).to(dtype);
  write_safetensors(folder / "model.safetensors", tensors);
  base::write_file_atomic(folder / "config.json", config.to_hugging_face_json("float32"));
  return tensors;
}

Tensors write_adapter(const std::filesystem::path& folder, const AdapterConfig& config,
                      const model::ModelConfig& model) {
  std::filesystem::create_directories(folder);
  Tensors tensors, named;
  for (const AdapterTensor& t : adapter_tensors(resolve(config, model), model)) {
    tensors[t.name] = at::randn(t.shape);
    named[model::kPeftPrefix + t.name] = tensors[t.name];
  }
  write_safetensors(folder / "adapter_model.safetensors", named);
  base::write_file_atomic(folder / "adapter_config.json", adapter_config_json(config));
  return tensors;
}

}  // namespace trireme::adapt
