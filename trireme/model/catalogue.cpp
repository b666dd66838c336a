// The published shapes by name: data, no logic. Sizes from the models' config.json.
#include <fmt/format.h>
#include <algorithm>
#include <cctype>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/config.h"
#include "trireme/model/hugging_face_keys.h"

namespace trireme::model {
namespace {

struct Shape {
  const char* name;
  Architecture architecture;
  int64_t sizes[std::size(kSizes)];  ///< in that order
  double eps, theta;
  bool tied;
  double rope_factor = 0;  ///< Llama 3: of the llama3 scaling; Gemma 3: of the linear scaling
  int64_t window = 0;
};

constexpr Architecture L = Architecture::llama, M = Architecture::mistral, Q2 = Architecture::qwen2,
                       Q3 = Architecture::qwen3, G2 = Architecture::gemma2, G3 = Architecture::gemma3,
                       G = Architecture::gpt2, B = Architecture::bert;
// clang-format off
constexpr Shape kShapes[] = {
  // name                arch vocab   width  mlp   blocks heads kv  dim positions eps   theta   tied   factor window
  {"llama-5m",           L,    {256,    256,   704,   6,    4,   4,  64,    256}, 1e-5, 10000.0, false},
  {"llama-32m",          L,   {8192,    512,  1408,   8,    8,   4,  64,    512}, 1e-5, 10000.0, false},
  {"llama-110m",         L,  {16384,    768,  2048,  12,   12,  12,  64,   1024}, 1e-5, 10000.0, false},
  {"smollm2-135m",       L,  {49152,    576,  1536,  30,    9,   3,  64,   8192}, 1e-5, 100000.0, true},
  {"smollm2-360m",       L,  {49152,    960,  2560,  32,   15,   5,  64,   8192}, 1e-5, 100000.0, true},
  {"smollm2-1.7b",       L,  {49152,   2048,  8192,  24,   32,  32,  64,   8192}, 1e-5, 130000.0, true},
  {"tiny-llama-1.1b",    L,  {32000,   2048,  5632,  22,   32,   4,  64,   2048}, 1e-5, 10000.0, false},
  {"llama-2-7b",         L,  {32000,   4096, 11008,  32,   32,  32, 128,   4096}, 1e-5, 10000.0, false},
  {"llama-2-13b",        L,  {32000,   5120, 13824,  40,   40,  40, 128,   4096}, 1e-5, 10000.0, false},
  {"llama-2-70b",        L,  {32000,   8192, 28672,  80,   64,   8, 128,   4096}, 1e-5, 10000.0, false},
  {"llama-3-8b",         L, {128256,   4096, 14336,  32,   32,   8, 128,   8192}, 1e-5, 500000.0, false},
  {"llama-3-70b",        L, {128256,   8192, 28672,  80,   64,   8, 128,   8192}, 1e-5, 500000.0, false},
  {"llama-3.1-8b",       L, {128256,   4096, 14336,  32,   32,   8, 128, 131072}, 1e-5, 500000.0, false, 8},
  {"llama-3.1-70b",      L, {128256,   8192, 28672,  80,   64,   8, 128, 131072}, 1e-5, 500000.0, false, 8},
  {"llama-3.1-405b",     L, {128256,  16384, 53248, 126,  128,   8, 128, 131072}, 1e-5, 500000.0, false, 8},
  {"llama-3.2-1b",       L, {128256,   2048,  8192,  16,   32,   8,  64, 131072}, 1e-5, 500000.0, true, 32},
  {"llama-3.2-3b",       L, {128256,   3072,  8192,  28,   24,   8, 128, 131072}, 1e-5, 500000.0, true, 32},
  {"mistral-7b-v0.1",    M,  {32000,   4096, 14336,  32,   32,   8, 128,  32768}, 1e-5, 10000.0, false, 0, 4096},
  {"mistral-7b-v0.3",    M,  {32768,   4096, 14336,  32,   32,   8, 128,  32768}, 1e-5, 1000000.0, false},
  {"qwen2.5-0.5b",       Q2, {151936,   896,  4864,  24,   14,   2,  64,  32768}, 1e-6, 1000000.0, true},
  {"qwen2.5-1.5b",       Q2, {151936,  1536,  8960,  28,   12,   2, 128,  32768}, 1e-6, 1000000.0, true},
  {"qwen2.5-7b",         Q2, {152064,  3584, 18944,  28,   28,   4, 128,  32768}, 1e-6, 1000000.0, false},
  {"qwen3-0.6b",         Q3, {151936,  1024,  3072,  28,   16,   8, 128,  40960}, 1e-6, 1000000.0, true},
  {"qwen3-1.7b",         Q3, {151936,  2048,  6144,  28,   16,   8, 128,  40960}, 1e-6, 1000000.0, true},
  {"qwen3-4b",           Q3, {151936,  2560,  9728,  36,   32,   8, 128,  40960}, 1e-6, 1000000.0, true},
  {"qwen3-8b",           Q3, {151936,  4096, 12288,  36,   32,   8, 128,  40960}, 1e-6, 1000000.0, false},
  {"gemma-2-2b",         G2, {256000,  2304,  9216,  26,    8,   4, 256,   8192}, 1e-6, 10000.0, true, 0, 4096},
  {"gemma-2-9b",         G2, {256000,  3584, 14336,  42,   16,   8, 256,   8192}, 1e-6, 10000.0, true, 0, 4096},
  {"gemma3_270m",        G3, {262144,   640,  2048,  18,    4,   1, 256,  32768}, 1e-6, 1000000.0, true, 0, 512},
  {"gemma3_1b",          G3, {262144,  1152,  6912,  26,    4,   1, 256,  32768}, 1e-6, 1000000.0, true, 0, 512},
  {"gemma3_4b",          G3, {262208,  2560, 10240,  34,    8,   4, 256, 131072}, 1e-6, 1000000.0, true, 8, 1024},
  {"gemma3_12b",         G3, {262208,  3840, 15360,  48,   16,   8, 256, 131072}, 1e-6, 1000000.0, true, 8, 1024},
  {"gpt2",               G,  {50257,    768,  3072,  12,   12,  12,  64,   1024}, 1e-5, 0.0, true},
  {"gpt2-medium",        G,  {50257,   1024,  4096,  24,   16,  16,  64,   1024}, 1e-5, 0.0, true},
  {"gpt2-large",         G,  {50257,   1280,  5120,  36,   20,  20,  64,   1024}, 1e-5, 0.0, true},
  {"gpt2-xl",            G,  {50257,   1600,  6400,  48,   25,  25,  64,   1024}, 1e-5, 0.0, true},
  {"bert-tiny",          B,  {30522,    128,   512,   2,    2,   2,  64,    512}, 1e-12, 0.0, true},
  {"bert-mini",          B,  {30522,    256,  1024,   4,    4,   4,  64,    512}, 1e-12, 0.0, true},
  {"bert-base",          B,  {30522,    768,  3072,  12,   12,  12,  64,    512}, 1e-12, 0.0, true},
  {"bert-large",         B,  {30522,   1024,  4096,  24,   16,  16,  64,    512}, 1e-12, 0.0, true},
};
// clang-format on

RopeScaling scaling_of(const Shape& s) {
  if (s.rope_factor == 0) return {};
  if (s.architecture == G3) return {.type = RopeScaling::Type::linear, .factor = s.rope_factor};
  return {.type = RopeScaling::Type::llama3, .factor = s.rope_factor};
}

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
    for (size_t i = 0; i < std::size(kSizes); ++i) c.*kSizes[i].field = s.sizes[i];
    c.norm_eps = s.eps;
    c.rope_theta = s.theta;
    c.tie_word_embeddings = s.tied;
    set_architecture(c, s.architecture);
    c.rope_scaling = scaling_of(s);
    c.sliding_window = s.window;
    return c;
  }
  const std::vector<std::string> names = catalogue_names();
  std::string last = name.substr(name.rfind('/') + 1);
  std::transform(last.begin(), last.end(), last.begin(), [](unsigned char c) { return std::tolower(c); });
  // "meta-llama/Llama-3.2-1B": a name on the hub, or a folder that does not exist.
  if (name.find('/') != std::string::npos) {
    const auto near = base::nearest(last, names);
    throw UsageError(fmt::format("there is no model's folder {} (one with a config.json): {}{}", name,
                                 base::kFetchFirst,
                                 near ? fmt::format("; new weights of such a shape are {}", *near) : ""));
  }
  throw UsageError(fmt::format("unknown model {}{}; known names: {}", name.empty() ? "''" : name,
                               base::did_you_mean(last, names), base::join(names, ", ")));
}

}  // namespace trireme::model
