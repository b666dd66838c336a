#include "trireme/model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/hugging_face_keys.h"

namespace trireme::model {
namespace {

struct Family {
  const char* model_type;
  const char* class_name;
  ModelConfig defaults;  // of transformers' configuration class
};

// What Llama's relatives have in common, with one family's default sizes, in the order of kSizes.
ModelConfig sizes(Architecture a, const std::array<int64_t, std::size(kSizes)>& values) {
  ModelConfig c;
  c.architecture = a;
  c.norm_eps = 1e-6;
  for (size_t i = 0; i < values.size(); ++i) c.*kSizes[i].field = values[i];
  return c;
}

ModelConfig gemma(ModelConfig c) {
  c.norm_offset = 1;
  c.activation = Activation::gelu_tanh;
  c.post_norms = c.scaled_embedding = c.tie_word_embeddings = true;
  c.sliding_window = 4096;
  return c;
}

// In the order of the enumerators.
const std::array<Family, 19>& families() {
  using A = Architecture;
  static const std::array<Family, 19> table = [] {
    const ModelConfig llama = sizes(A::llama, {32000, 4096, 11008, 32, 32, 32, 128, 2048});
    ModelConfig mistral = sizes(A::mistral, {32000, 4096, 14336, 32, 32, 8, 128, 131072});
    mistral.sliding_window = 4096;
    ModelConfig qwen2 = sizes(A::qwen2, {151936, 4096, 22016, 32, 32, 32, 128, 32768});
    qwen2.attention_bias = true;
    ModelConfig qwen3 = sizes(A::qwen3, {151936, 4096, 22016, 32, 32, 32, 128, 32768});
    qwen3.query_key_norm = true;
    ModelConfig gemma2 = gemma(sizes(A::gemma2, {256000, 2304, 9216, 26, 8, 4, 256, 8192}));
    gemma2.attention_softcap = 50;
    gemma2.logit_softcap = 30;
    ModelConfig gemma3 = gemma(sizes(A::gemma3, {262208, 2304, 9216, 26, 8, 4, 256, 131072}));
    gemma3.query_key_norm = true;
    gemma3.rope_theta = 1e6;
    gemma3.rope_local_theta = 1e4;
    ModelConfig gpt2 = sizes(A::gpt2, {50257, 768, 3072, 12, 12, 12, 64, 1024});
    gpt2.norm_eps = 1e-5;
    gpt2.rope_theta = 0;
    gpt2.activation = Activation::gelu_tanh;
    gpt2.gated_mlp = false;
    gpt2.layer_norm = gpt2.learned_positions = gpt2.tie_word_embeddings = true;
    gpt2.attention_bias = gpt2.attention_out_bias = gpt2.mlp_bias = true;
    ModelConfig free = llama;
    free.architecture = A::free_transformer;
    free.free = {.latent_bits = 16, .split_layer = 16};
    ModelConfig gemma1 = sizes(A::gemma, {256000, 3072, 24576, 28, 16, 16, 256, 8192});
    gemma1.norm_offset = 1;
    gemma1.activation = Activation::gelu_tanh;
    gemma1.scaled_embedding = gemma1.tie_word_embeddings = true;
    ModelConfig smollm3 = sizes(A::smollm3, {128256, 2048, 11008, 36, 16, 4, 128, 32768});
    smollm3.rope_theta = 2e6;
    smollm3.tie_word_embeddings = true;
    ModelConfig granite = sizes(A::granite, {32000, 4096, 11008, 32, 32, 32, 128, 2048});
    granite.attention_scale = 1;
    ModelConfig starcoder2 = sizes(A::starcoder2, {49152, 3072, 12288, 30, 24, 2, 128, 4096});
    starcoder2.norm_eps = 1e-5;
    starcoder2.initializer_range = 0.018042;
    starcoder2.activation = Activation::gelu_tanh;
    starcoder2.gated_mlp = false;
    starcoder2.layer_norm = starcoder2.tie_word_embeddings = true;
    starcoder2.attention_bias = starcoder2.attention_out_bias = starcoder2.mlp_bias = true;
    ModelConfig phi3 = sizes(A::phi3, {32064, 3072, 8192, 32, 32, 32, 96, 4096});
    phi3.norm_eps = 1e-5;
    ModelConfig gpt_neox = sizes(A::gpt_neox, {50432, 6144, 24576, 44, 64, 64, 96, 2048});
    gpt_neox.norm_eps = 1e-5;
    gpt_neox.rotary_fraction = 0.25;
    gpt_neox.activation = Activation::gelu;
    gpt_neox.gated_mlp = false;
    gpt_neox.layer_norm = gpt_neox.parallel_residual = true;
    gpt_neox.attention_bias = gpt_neox.attention_out_bias = gpt_neox.mlp_bias = true;
    ModelConfig olmo2 = sizes(A::olmo2, {50304, 4096, 11008, 32, 32, 32, 128, 2048});
    olmo2.norm_eps = 1e-5;
    olmo2.wide_query_key_norm = olmo2.post_norms = true;
    olmo2.pre_norms = false;
    // The encoders: LayerNorm with biases, learned positions, biases, and a plain MLP with the exact GELU.
    ModelConfig encoder = sizes(A::encoder, {30522, 768, 3072, 12, 12, 12, 64, 512});
    encoder.norm_eps = 1e-5;
    encoder.rope_theta = 0;
    encoder.activation = Activation::gelu;
    encoder.gated_mlp = false;
    encoder.bidirectional = encoder.layer_norm = encoder.learned_positions = true;
    encoder.attention_bias = encoder.attention_out_bias = encoder.mlp_bias = true;
    encoder.classifier = {.pooling = Pooling::mean, .bias = true};
    ModelConfig bert = encoder;
    bert.architecture = A::bert;
    bert.norm_eps = 1e-12;
    place_norms(bert, NormPlacement::post);
    bert.embedding_norm = bert.tie_word_embeddings = true;
    bert.token_types = 2;
    bert.classifier = {.pooling = Pooling::cls, .pooler = ClassifierConfig::Pooler::tanh, .bias = true};
    ModelConfig roberta = bert;
    roberta.architecture = A::roberta;
    roberta.vocab_size = 50265;
    roberta.max_position_embeddings = 510;
    roberta.first_position = 2;
    ModelConfig distilbert = bert;
    distilbert.architecture = A::distilbert;
    distilbert.num_hidden_layers = 6;
    distilbert.token_types = 0;
    distilbert.classifier.pooler = ClassifierConfig::Pooler::relu;
    return std::array<Family, 19>{{{"llama", "LlamaForCausalLM", llama},
                                   {"mistral", "MistralForCausalLM", mistral},
                                   {"qwen2", "Qwen2ForCausalLM", qwen2},
                                   {"qwen3", "Qwen3ForCausalLM", qwen3},
                                   {"gemma2", "Gemma2ForCausalLM", gemma2},
                                   {"gemma3_text", "Gemma3ForCausalLM", gemma3},
                                   {"gpt2", "GPT2LMHeadModel", gpt2},
                                   {"free_transformer", "FreeTransformerForCausalLM", free},
                                   {"gemma", "GemmaForCausalLM", gemma1},
                                   {"smollm3", "SmolLM3ForCausalLM", smollm3},
                                   {"granite", "GraniteForCausalLM", granite},
                                   {"starcoder2", "Starcoder2ForCausalLM", starcoder2},
                                   {"phi3", "Phi3ForCausalLM", phi3},
                                   {"gpt_neox", "GPTNeoXForCausalLM", gpt_neox},
                                   {"olmo2", "Olmo2ForCausalLM", olmo2},
                                   {"bert", "BertForMaskedLM", bert},
                                   {"roberta", "RobertaForMaskedLM", roberta},
                                   {"distilbert", "DistilBertForMaskedLM", distilbert},
                                   {"encoder", "TriremeEncoder", encoder}}};
  }();
  return table;
}

const Family& family(Architecture architecture) { return families()[static_cast<size_t>(architecture)]; }

/// Elements of one block's products, biases and norms.
struct BlockCount {
  int64_t products, biases, norms;
};

BlockCount count_block(const ModelConfig& c) {
  const int64_t heads = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const int64_t up = (c.gated_mlp ? 2 : 1) * c.intermediate_size, norm = (c.layer_norm ? 2 : 1) * c.hidden_size;
  return {
      .products = c.hidden_size * (heads + 2 * kv) + heads * c.hidden_size + c.hidden_size * (up + c.intermediate_size),
      .biases = (c.attention_bias ? heads + 2 * kv : 0) + (c.attention_out_bias ? c.hidden_size : 0) +
                (c.mlp_bias ? up + c.hidden_size : 0),
      .norms = ((c.post_norms ? 2 : 0) + (c.pre_norms ? 2 : 0) + (c.sum_norms ? 2 : 0)) * norm +
               (c.wide_query_key_norm ? heads + kv
                : c.query_key_norm    ? 2 * c.head_dim
                                      : 0)};
}

}  // namespace

ModelConfig default_config(Architecture architecture) { return family(architecture).defaults; }

const char* model_type(Architecture architecture) { return family(architecture).model_type; }

std::string class_name(const ModelConfig& c) {
  const std::string name = family(c.architecture).class_name;
  if (!c.is_classifier()) return name;
  for (const char* end : {"ForCausalLM", "LMHeadModel", "ForMaskedLM"})
    if (name.ends_with(end)) return name.substr(0, name.rfind(end)) + "ForSequenceClassification";
  return name + "ForSequenceClassification";
}

void set_labels(ModelConfig& c, std::vector<std::string> labels) {
  c.classifier.num_labels = static_cast<int64_t>(labels.size());
  c.classifier.labels = std::move(labels);
}

void place_norms(ModelConfig& c, NormPlacement placement) {
  c.pre_norms = c.final_norm = placement == NormPlacement::pre;
  c.sum_norms = placement == NormPlacement::post;
}

Architecture find_architecture(const std::string& type, const std::string& source) {
  std::vector<std::string> known;
  for (const Family& f : families()) {
    if (type == f.model_type) return f.defaults.architecture;
    known.emplace_back(f.model_type);
  }
  throw UsageError(fmt::format("{}: model_type {} is not supported; {} are", source, type.empty() ? "(absent)" : type,
                               base::join(known, ", ")));
}

void set_architecture(ModelConfig& c, Architecture architecture) {
  if (architecture == c.architecture) return;
  ModelConfig d = default_config(architecture);
  d.name = c.name;
  for (const auto& [key, field] : kSizes) d.*field = c.*field;
  d.norm_eps = c.norm_eps;
  d.initializer_range = c.initializer_range;
  d.tie_word_embeddings = c.tie_word_embeddings;
  if (c.rope_theta > 0 && !d.learned_positions) d.rope_theta = c.rope_theta;
  if (d.bidirectional) d.num_key_value_heads = d.num_attention_heads;
  if (d.bidirectional) d.tie_word_embeddings = default_config(architecture).tie_word_embeddings;
  if (architecture == Architecture::gemma2 || architecture == Architecture::gemma3) d.attention_scale = 0;
  set_num_hidden_layers(d, d.num_hidden_layers);
  c = std::move(d);
}

// More than any model has; each block is described before a file is read.
static constexpr int64_t kMostBlocks = 1 << 14;

// Gemma's blocks have windows, and the last one of each period has none. The period is that of the file, if it says
// one.
static size_t period_of_windows(const ModelConfig& c) {
  const size_t usual = c.architecture == Architecture::gemma2 ? 2 : 6;
  const auto found = std::ranges::find(c.windowed, false);
  return found == c.windowed.end() ? usual : static_cast<size_t>(found - c.windowed.begin()) + 1;
}

void set_num_hidden_layers(ModelConfig& c, int64_t blocks) {
  c.num_hidden_layers = blocks;
  if (blocks > kMostBlocks) return;  // validate() refuses it
  if (c.architecture == Architecture::smollm3 && blocks >= 1) {  // every fourth block has no positions
    while (static_cast<int64_t>(c.unrotated.size()) < blocks) c.unrotated.push_back((c.unrotated.size() + 1) % 4 == 0);
    c.unrotated.resize(static_cast<size_t>(blocks));
  }
  const bool alternates = c.architecture == Architecture::gemma2 || c.architecture == Architecture::gemma3;
  if (c.is_free()) c.free.split_layer = blocks / 2;
  if (blocks < 1 || (c.windowed.empty() && !alternates)) return;
  if (c.architecture == Architecture::smollm3) {  // windows where there are no positions
    while (static_cast<int64_t>(c.windowed.size()) < blocks) c.windowed.push_back(c.unrotated[c.windowed.size()]);
    c.windowed.resize(static_cast<size_t>(blocks));
    return;
  }
  const size_t period = alternates ? period_of_windows(c) : 0;
  while (static_cast<int64_t>(c.windowed.size()) < blocks)
    c.windowed.push_back(alternates ? c.windowed.size() % period + 1 != period : bool(c.windowed.back()));
  c.windowed.resize(static_cast<size_t>(blocks));
}

bool ModelConfig::same_model(const ModelConfig& other) const {
  ModelConfig a = *this, b = other;
  a.name = b.name = a.source_json = b.source_json = "";
  a.is_text_half = b.is_text_half = false;
  a.free.free_bits = b.free.free_bits = a.free.kl_weight = b.free.kl_weight = 0;  // of training alone
  a.passed_over = b.passed_over = {};
  a.quantized = b.quantized = base::BlockFormat::none;  // other ways to keep it
  a.quantized_by = b.quantized_by = "";
  a.quantized_head = b.quantized_head = base::BlockFormat::none;
  a.packed = b.packed = {};
  a.pad_token_id = b.pad_token_id = {};
  a.special_ids_json = b.special_ids_json = "";
  return a == b;
}

constexpr int64_t kMostLabels = 1 << 16;

double FreeConfig::free_nats() const { return free_bits * std::log(2.0); }

std::string DropoutRates::describe() const {
  std::vector<std::string> parts;
  for (const auto& [rate, of] : {std::pair(attention, "attention weights"),
                                 {residual, "the attention's outputs"},
                                 {mlp, "the MLP's outputs"},
                                 {embedding, "embeddings"}})
    if (rate > 0) parts.push_back(fmt::format("{:g} of {}", rate, of));
  return base::join(parts, ", ");
}

namespace {

void validate_free(const ModelConfig& c) {
  const FreeConfig& f = c.free;
  if (f.latent_bits < 0 || f.latent_bits > kMostLatentBits)
    throw UsageError(fmt::format("free.latent_bits is {}; it must be from 1 to {}", f.latent_bits, kMostLatentBits));
  if (c.is_free() != (c.architecture == Architecture::free_transformer))
    throw UsageError("a latent (free.latent_bits) belongs to the model_type free_transformer, and to it alone");
  if (!c.is_free()) return;
  if (f.injection == Injection::table && f.latent_bits > kMostTableBits)
    throw UsageError(fmt::format(
        "free.injection table needs a row for each of the 2^{} codes; above {} bits take free.injection bits",
        f.latent_bits, kMostTableBits));
  if (f.split_layer < 1 || f.split_layer >= c.num_hidden_layers)
    throw UsageError(fmt::format("free.split_layer is {}; the model has {}, and it must be from 1 to {}", f.split_layer,
                                 base::plural(c.num_hidden_layers, "block"), c.num_hidden_layers - 1));
  if (!(f.free_bits >= 0) || !(f.kl_weight >= 0))
    throw UsageError("free.free_bits and free.kl_weight must be at least 0");
}

}  // namespace

namespace {

void validate_classifier(const ModelConfig& c) {
  const ClassifierConfig& k = c.classifier;
  if (!c.is_classifier()) return;
  if (k.num_labels < 2 || k.num_labels > kMostLabels)
    throw UsageError(fmt::format("a classification head of {}; it must have 2 to {}",
                                 base::plural(k.num_labels, "label"), kMostLabels));
  if (static_cast<int64_t>(k.labels.size()) != k.num_labels)
    throw UsageError(fmt::format("model.labels names {}, and the head has {} (model.num_labels)",
                                 base::plural(static_cast<int64_t>(k.labels.size()), "label"), k.num_labels));
  std::vector<std::string> sorted = k.labels;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    throw UsageError(fmt::format("two labels of the classification head have the name '{}'", *twice));
  if (c.is_free())
    throw UsageError(
        "a classification head (model.num_labels) is not built for a Free Transformer; take another model");
}

}  // namespace

std::vector<std::string> ModelConfig::remarks() const {
  std::vector<std::string> lines;
  if (is_text_half)
    lines.emplace_back("of a vision model only the text half is read; the vision tower is left out and not saved");
  if (!passed_over.empty())
    lines.push_back(fmt::format("config.json: {} {} passed over: models of type {} do not use {} here",
                                base::join(passed_over, ", "), passed_over.size() == 1 ? "is" : "are",
                                model_type(architecture), passed_over.size() == 1 ? "it" : "them"));
  return lines;
}

void ModelConfig::validate() const {
  constexpr int64_t kLargest = int64_t{1} << 31;  // so that the product of two sizes fits in int64
  for (const auto& [key, field] : kSizes)
    if (this->*field < 1 || this->*field > kLargest)
      throw UsageError(fmt::format("model.{} is {}; it must be at least 1 and at most 2^31", key, this->*field));
  if (num_hidden_layers > kMostBlocks)
    throw UsageError(
        fmt::format("model.num_hidden_layers is {}; it must be at most {}", num_hidden_layers, kMostBlocks));
  const auto wide = [](int64_t size) { return static_cast<double>(size); };
  const double heads = wide(num_attention_heads + num_key_value_heads) * wide(head_dim),
               parameters = wide(num_hidden_layers) * wide(hidden_size) * (2 * heads + 3 * wide(intermediate_size)) +
                            2 * wide(hidden_size) * (wide(vocab_size) + wide(max_position_embeddings));
  if (parameters > 0x1p56)  // their bytes are counted in 64 bits
    throw UsageError(fmt::format("a model of these sizes has {:.2g} parameters; there can be 2^56", parameters));
  if (num_attention_heads % num_key_value_heads != 0)
    throw UsageError(fmt::format("model.num_key_value_heads {} does not divide model.num_attention_heads {}",
                                 num_key_value_heads, num_attention_heads));
  const bool fixed_heads =
      architecture == Architecture::gpt2 || architecture == Architecture::gpt_neox || bidirectional;
  if (fixed_heads && num_attention_heads * head_dim != hidden_size)
    throw UsageError(fmt::format("model.num_attention_heads {} does not divide model.hidden_size {} ({})",
                                 num_attention_heads, hidden_size, model_type(architecture)));
  if ((architecture == Architecture::gpt_neox || bidirectional) && num_key_value_heads != num_attention_heads)
    throw UsageError(
        fmt::format("model.num_key_value_heads is {}; models of type {} have as many as "
                    "model.num_attention_heads, {}",
                    num_key_value_heads, model_type(architecture), num_attention_heads));
  if (!learned_positions && rotary_dim() == head_dim && head_dim % 2 != 0)
    throw UsageError(fmt::format("model.head_dim {} is odd; rotary positions need pairs", head_dim));
  if (!learned_positions && (rotary_dim() < 2 || rotary_dim() > head_dim || rotary_dim() % 2 != 0))
    throw UsageError(
        fmt::format("{} of the {} elements of a head (partial_rotary_factor {}) cannot be rotated: it must "
                    "be an even number of them, at least 2",
                    rotary_dim(), head_dim, rotary_fraction));
  if (!unrotated.empty() && static_cast<int64_t>(unrotated.size()) != num_hidden_layers)
    throw UsageError(fmt::format("no_rope_layers has {} entries; the model has {} blocks (num_hidden_layers)",
                                 unrotated.size(), num_hidden_layers));
  if (!(norm_eps >= 0)) throw UsageError(fmt::format("model.rms_norm_eps is {}; it must be at least 0", norm_eps));
  if (sliding_window < 0)
    throw UsageError(fmt::format("model.sliding_window is {}; it must be at least 1", sliding_window));
  if (!windowed.empty() && static_cast<int64_t>(windowed.size()) != num_hidden_layers)
    throw UsageError(fmt::format("layer_types has {} entries; the model has {} blocks (num_hidden_layers)",
                                 windowed.size(), num_hidden_layers));
  for (const auto& [rate, name] : {std::pair(dropout.attention, "attention"),
                                   {dropout.residual, "residual"},
                                   {dropout.mlp, "mlp"},
                                   {dropout.embedding, "embedding"}})
    if (!(rate >= 0 && rate < 1))
      throw UsageError(fmt::format("model.{}_dropout is {}; it must be at least 0 and below 1", name, rate));
  validate_free(*this);
  validate_classifier(*this);
}

int64_t ModelConfig::num_parameters() const {
  const BlockCount block = count_block(*this);
  const int64_t norm = (layer_norm ? 2 : 1) * hidden_size;
  const int64_t embedding =
      (vocab_size + (learned_positions ? max_position_embeddings + first_position : 0) + token_types) * hidden_size +
      (embedding_norm ? norm : 0);
  const int64_t pooler = classifier.pooler == ClassifierConfig::Pooler::none ? 0 : (hidden_size + 1) * hidden_size,
                head = is_classifier() ? pooler + classifier.num_labels * (hidden_size + (classifier.bias ? 1 : 0))
                       : tie_word_embeddings ? 0
                                             : vocab_size * hidden_size;
  // The encoder's block, its query, its norm and its readout, and what injects the bits.
  const int64_t rows = free.injection == Injection::bits ? free.latent_bits
                                                         : int64_t{1} << std::min(free.latent_bits, kMostTableBits),
                latent = is_free() ? block.products + block.norms + (2 + free.latent_bits + rows) * hidden_size : 0;
  return num_hidden_layers * (block.products + block.biases + block.norms) + (final_norm ? norm : 0) + embedding +
         head + latent;
}

int64_t ModelConfig::num_product_parameters() const {
  const int64_t encoder = is_free() ? count_block(*this).products + free.latent_bits * hidden_size : 0;
  const int64_t head = is_classifier() ? 0 : vocab_size * hidden_size;  // a classifier's reads a row for each sequence
  return num_hidden_layers * count_block(*this).products + head + encoder;
}

int64_t ModelConfig::longest_sequence() const {
  const double factor = rope_scaling.type == RopeScaling::Type::dynamic ? rope_scaling.factor : 1;
  return static_cast<int64_t>(std::min(static_cast<double>(max_position_embeddings) * factor, 0x1p53));
}

int64_t ModelConfig::longest_generation() const {
  if (rope_scaling.type != RopeScaling::Type::longrope) return max_position_embeddings;
  return std::min(max_position_embeddings, static_cast<int64_t>(rope_scaling.original_max_position_embeddings));
}

std::string ModelConfig::generation_positions() const {
  const std::string all = fmt::format("the model has {} positions", longest_generation());
  if (longest_generation() == longest_sequence()) return all;
  return all + " here, because a longer text would rotate the keys in the cache anew (rope_scaling " +
         (rope_scaling.type == RopeScaling::Type::longrope ? "longrope)" : "dynamic)");
}

double ModelConfig::attended_keys(int64_t layer, int64_t sequence) const {
  const auto whole = static_cast<double>(sequence);
  if (bidirectional) return whole;
  const double limit = window(layer) > 0 ? std::min(whole, static_cast<double>(window(layer))) : whole;
  return limit * (1 - limit / (2 * whole));  // the first queries see less than a window
}

double ModelConfig::attended_keys(int64_t sequence) const {
  double sum = is_free() ? static_cast<double>(sequence) : 0;  // the encoder's queries see all keys
  for (int64_t layer = 0; layer < num_hidden_layers; ++layer) sum += attended_keys(layer, sequence);
  return sum;
}

}  // namespace trireme::model
