// The published shapes by name: data, no logic. Sizes from the models' config.json.
#include <fmt/format.h>
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/config.h"

namespace trireme::model {
namespace {

struct Shape {
  const char* name;
  Architecture architecture;
  int64_t vocab, width, mlp, blocks, heads, kv_heads, head_dim, positions;
  double eps, theta;
  bool tied;
};

constexpr Architecture L = Architecture::llama, G = Architecture::gpt2;
// clang-format off
constexpr Shape kShapes[] = {
  // name                arch vocab   width  mlp   blocks heads kv  dim positions eps   theta   tied
  {"llama-5m",           L,    256,    256,   704,   6,    4,   4,  64,    256, 1e-5, 10000.0, false},
  {"llama-32m",          L,   8192,    512,  1408,   8,    8,   4,  64,    512, 1e-5, 10000.0, false},
  {"llama-110m",         L,  16384,    768,  2048,  12,   12,  12,  64,   1024, 1e-5, 10000.0, false},
  {"tiny-llama-1.1b",    L,  32000,   2048,  5632,  22,   32,   4,  64,   2048, 1e-5, 10000.0, false},
  {"llama-2-7b",         L,  32000,   4096, 11008,  32,   32,  32, 128,   4096, 1e-5, 10000.0, false},
  {"llama-2-13b",        L,  32000,   5120, 13824,  40,   40,  40, 128,   4096, 1e-5, 10000.0, false},
  {"llama-3-8b",         L, 128256,   4096, 14336,  32,   32,   8, 128,   8192, 1e-5, 500000.0, false},
  {"llama-3-70b",        L, 128256,   8192, 28672,  80,   64,   8, 128,   8192, 1e-5, 500000.0, false},
  {"llama-3.1-405b",     L, 128256, 16384, 53248, 126,  128,   8, 128, 131072, 1e-5, 500000.0, false},
  {"gpt2",               G,  50257,    768,  3072,  12,   12,  12,  64,   1024, 1e-5, 0.0, true},
  {"gpt2-medium",        G,  50257,   1024,  4096,  24,   16,  16,  64,   1024, 1e-5, 0.0, true},
  {"gpt2-large",         G,  50257,   1280,  5120,  36,   20,  20,  64,   1024, 1e-5, 0.0, true},
  {"gpt2-xl",            G,  50257,   1600,  6400,  48,   25,  25,  64,   1024, 1e-5, 0.0, true},
};
// clang-format on

}  // namespace

std::vector<std::string> catalogue_names() {
  std::vector<std::string> names;
  for (const Shape& s : kShapes) names.emplace_back(s.name);
  return names;
}

ModelConfig catalogue_config(const std::string& name) {
  for (const Shape& s : kShapes) {
    if (name != s.name) continue;
    ModelConfig c;
    c.name = s.name;
    c.architecture = s.architecture;
    c.vocab_size = s.vocab;
    c.hidden_size = s.width;
    c.intermediate_size = s.mlp;
    c.num_hidden_layers = s.blocks;
    c.num_attention_heads = s.heads;
    c.num_key_value_heads = s.kv_heads;
    c.head_dim = s.head_dim;
    c.max_position_embeddings = s.positions;
    c.norm_eps = s.eps;
    c.rope_theta = s.theta;
    c.tie_word_embeddings = s.tied;
    return c;
  }
  const std::vector<std::string> names = catalogue_names();
  const auto near = base::nearest(name, names);
  throw UsageError(fmt::format("unknown model {}{}; known names: {}", name.empty() ? "''" : name,
                               near ? fmt::format(" (did you mean {}?)", *near) : "", base::join(names, ", ")));
}

}  // namespace trireme::model
