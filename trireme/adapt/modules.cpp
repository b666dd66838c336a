#include <fmt/format.h>

#include "trireme/adapt/resolve.h"
#include "trireme/base/error.h"
#include "trireme/model/block_layout.h"
#include "trireme/model/embedding.h"
#include "trireme/model/head.h"

namespace trireme::adapt {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias";

class Collector {
 public:
  explicit Collector(bool gpt2) : gpt2_(gpt2) {}

  void add(const std::vector<model::ParameterSpec>& specs, bool embedding) {
    for (const model::ParameterSpec& p : specs) {
      if (p.name.ends_with(kBias)) {
        set_bias(p.name);
        continue;
      }
      check_invariant(p.name.ends_with(kWeight), "a parameter is a module's weight or bias");
      const std::vector<int64_t>& shape = p.whole_shape();
      Module m{.name = p.name.substr(0, p.name.size() - kWeight.size()), .weight = p.name};
      if (shape.size() < 2) {
        m.kind = Module::Kind::norm;
        m.in = m.out = shape.at(0);
      } else if (embedding) {
        m.kind = Module::Kind::embedding;
        m.in = shape[0];
        m.out = shape[1];
      } else {
        m.in_out = gpt2_;
        m.in = shape[gpt2_ ? 0 : 1];
        m.out = shape[gpt2_ ? 1 : 0];
      }
      modules.push_back(std::move(m));
    }
  }

  std::vector<Module> modules;

 private:
  void set_bias(const std::string& name) {
    for (Module& m : modules)
      if (name.size() == m.name.size() + kBias.size() && name.starts_with(m.name)) m.bias = name;
  }
  bool gpt2_;
};

}  // namespace

std::vector<Module> modules_of(const model::ModelConfig& given) {
  // How matrices are kept changes no module. Whether they can be is said where the model is built (check_quantized).
  model::ModelConfig config = given;
  config.quantized = base::BlockFormat::none;
  const bool gpt2 = config.architecture == model::Architecture::gpt2;
  Collector found(gpt2);
  const model::VocabularyPart whole = model::vocabulary_part(config, {}, /*on_gpu=*/false);
  found.add(model::EmbeddingUnit(config, {}, whole).parameters(), true);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    Collector block(gpt2);
    block.add(model::block_parameters(config, layer, {}).specs, false);
    found.modules.insert(found.modules.end(), block.modules.begin(), block.modules.end());
  }
  Collector head(false);
  head.add(model::HeadUnit(config, {}, whole).parameters(), false);
  head.modules.back().name = "lm_head";
  head.modules.back().is_head = true;
  found.modules.insert(found.modules.end(), head.modules.begin(), head.modules.end());
  return found.modules;
}

std::vector<AdapterTensor> adapter_tensors(const model::Adapters& adapters, const model::ModelConfig& config) {
  std::vector<AdapterTensor> tensors;
  for (const Module& m : modules_of(config)) {
    if (adapters.whole.contains(m.name)) {
      const bool rows_first = m.kind == Module::Kind::embedding || m.in_out;
      if (m.kind == Module::Kind::norm)
        tensors.push_back({m.name + ".weight", {m.out}});
      else
        tensors.push_back({m.name + ".weight", rows_first ? std::vector{m.in, m.out} : std::vector{m.out, m.in}});
      if (!m.bias.empty()) tensors.push_back({m.name + ".bias", {m.out}});
    }
    const auto found = adapters.modules.find(m.name);
    if (found == adapters.modules.end()) continue;
    const model::AdapterSpec& spec = found->second;
    const bool embedding = m.kind == Module::Kind::embedding;
    tensors.push_back({m.name + (embedding ? model::kLoraEmbeddingA : model::kLoraA), {spec.rank, m.in}});
    tensors.push_back({m.name + (embedding ? model::kLoraEmbeddingB : model::kLoraB), {m.out, spec.rank}});
    if (spec.bias) tensors.push_back({m.name + model::kLoraBiasB, {m.out}});
    if (spec.dora) tensors.push_back({m.name + model::kLoraMagnitude, {m.out}});
  }
  return tensors;
}

}  // namespace trireme::adapt
