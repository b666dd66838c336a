#include "trireme/model/vocabulary.h"

namespace trireme::model {

VocabularyPart vocabulary_part(const ModelConfig& config, const Parallel& parallel) {
  const int64_t size = (config.vocab_size + parallel.tp_size - 1) / parallel.tp_size;
  return {size * parallel.tp_rank, size};
}

ParameterSpec vocabulary_parameter(const std::string& name, const ModelConfig& config, const Parallel& parallel) {
  ParameterSpec p{.name = name,
                  .shape = {config.vocab_size, config.hidden_size},
                  .init = {Initializer::Kind::normal, config.initializer_range}};
  if (parallel.tp_size == 1) return p;
  const VocabularyPart part = vocabulary_part(config, parallel);
  p.full_shape = p.shape;
  p.shape[0] = part.size;
  p.split_dim = 0;
  p.pieces = {{part.first, part.first + part.size}};
  return p;
}

std::string embedding_table_name(Architecture architecture) {
  return architecture == Architecture::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

}  // namespace trireme::model
