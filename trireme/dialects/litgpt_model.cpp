#include "trireme/dialects/litgpt_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace trireme::dialects {

using config::Given;

namespace {

constexpr std::string_view kModelConfig = "model_config.";
constexpr std::string_view kLlamas = "shapes in LitGPT's words are Llamas here: name a model, or give its folder";

std::string of_model(std::string_view name) { return std::string(kModelConfig) + std::string(name); }

constexpr std::pair<std::string_view, std::string_view> kSizes[] = {{"block_size", "max_position_embeddings"},
                                                                    {"n_layer", "num_hidden_layers"},
                                                                    {"n_embd", "hidden_size"},
                                                                    {"n_head", "num_attention_heads"},
                                                                    {"n_query_groups", "num_key_value_heads"},
                                                                    {"head_size", "head_dim"},
                                                                    {"intermediate_size", "intermediate_size"},
                                                                    {"rope_base", "rope_theta"},
                                                                    {"norm_eps", "rms_norm_eps"}};

// What a Llama needs and LitGPT's defaults, which are Pythia's, do not have.
constexpr std::pair<std::string_view, std::string_view> kNeeded[] = {{"norm_class_name", "RMSNorm"},
                                                                     {"mlp_class_name", "LLaMAMLP"},
                                                                     {"bias", "false"},
                                                                     {"parallel_residual", "false"},
                                                                     {"rotary_percentage", "1.0"}};

bool has_shape(const Reading& r) {
  return r.find(of_model("vocab_size")) != nullptr ||
         std::ranges::any_of(kSizes, [&](const auto& size) { return r.find(of_model(size.first)) != nullptr; });
}

// The head has padded_vocab_size rows, or vocab_size rounded up.
void vocabulary(Reading& r) {
  const Given *padded = r.find(of_model("padded_vocab_size")), *exact = r.find(of_model("vocab_size"));
  const int64_t multiple = std::max<int64_t>(r.count(of_model("padding_multiple")).value_or(512), 1);
  const int64_t tokens = std::clamp<int64_t>(r.count(of_model("vocab_size")).value_or(50254), 1, int64_t{1} << 40);
  const std::string rounded = std::to_string((tokens + multiple - 1) / multiple * multiple);
  if (padded != nullptr)
    r.set("model.vocab_size", std::to_string(r.count(padded->key).value_or(tokens)), *padded);
  else if (exact != nullptr)
    r.set("model.vocab_size", rounded, *exact);
  else
    r.suggest("model.vocab_size", rounded);
  if (exact != nullptr && padded != nullptr) r.ignore(*exact, "padded_vocab_size says how many rows there are");
  if (const Given* entry = r.find(of_model("padding_multiple"))) r.tell(*entry, "model.vocab_size is a multiple of it");
}

}  // namespace

std::vector<Row> litgpt_model_rows() {
  using enum Takes;
  constexpr std::string_view kVocabulary = "model.vocab_size: padded_vocab_size, or vocab_size rounded up";
  std::vector<Row> rows = {
      {.key = "model_config.name", .takes = text, .ignored = "the sizes say what the model is"},
      {.key = "model_config.hf_config", .ignored = "nothing is downloaded"},
      {.key = "model_config.hf_config.*", .ignored = "nothing is downloaded"},
      {.key = "model_config.block_size", .takes = count, .becomes = "model.max_position_embeddings"},
      {.key = "model_config.n_layer", .takes = count, .becomes = "model.num_hidden_layers"},
      {.key = "model_config.n_embd", .takes = count, .becomes = "model.hidden_size"},
      {.key = "model_config.n_head", .takes = count, .becomes = "model.num_attention_heads"},
      {.key = "model_config.n_query_groups", .takes = count, .becomes = "model.num_key_value_heads"},
      {.key = "model_config.head_size", .takes = count, .becomes = "model.head_dim"},
      {.key = "model_config.intermediate_size", .takes = count, .becomes = "model.intermediate_size"},
      {.key = "model_config.vocab_size", .takes = count, .becomes = kVocabulary},
      {.key = "model_config.padded_vocab_size", .takes = count, .becomes = kVocabulary},
      {.key = "model_config.padding_multiple", .takes = count, .becomes = kVocabulary},
      {.key = "model_config.rope_base", .takes = number, .becomes = "model.rope_theta"},
      {.key = "model_config.norm_eps", .takes = number, .becomes = "model.rms_norm_eps"},
      {.key = "model_config.norm_class_name", .takes = text, .refused = kLlamas, .off = {"RMSNorm"}},
      {.key = "model_config.mlp_class_name", .takes = text, .refused = kLlamas, .off = {"LLaMAMLP"}},
      {.key = "model_config.rotary_percentage", .takes = number, .refused = kLlamas, .off = {"1", "1.0"}},
      {.key = "model_config.rope_condense_ratio", .takes = number, .refused = kLlamas, .off = {"1", "1.0"}},
      {.key = "model_config.norm_qk_type", .takes = text, .ignored = "only norm_qk reads it"},
      {.key = "model_config.gelu_approximate", .takes = text, .ignored = "LLaMAMLP has no GELU"},
      {.key = "model_config.norm_1", .takes = flag, .refused = kLlamas, .off = {"true"}},
      {.key = "model_config.norm_2", .takes = flag, .refused = kLlamas, .off = {"true"}},
      {.key = "model_config.n_expert_per_token", .takes = count, .ignored = "only n_expert reads it"},
      {.key = "model_config.routed_scaling_factor", .takes = number, .ignored = "only n_expert reads it"},
      {.key = "model_config.norm_topk_prob", .takes = flag, .ignored = "only n_expert reads it"},
  };
  for (const std::string_view key :
       {"model_config.bias", "model_config.parallel_residual", "model_config.attn_bias", "model_config.lm_head_bias",
        "model_config.norm_qk", "model_config.post_attention_norm", "model_config.post_mlp_norm",
        "model_config.shared_attention_norm", "model_config.scale_embeddings", "model_config.rope_interleave"})
    rows.push_back({.key = key, .takes = flag, .refused = kLlamas});
  rows.push_back({.key = "model_config.*", .refused = kLlamas});
  return rows;
}

void name_of_model(Reading& r, const Given& entry) {
  for (const char* folder : {"initial_checkpoint_dir", "checkpoint_dir"})
    if (r.find(folder) != nullptr) return r.ignore(entry, fmt::format("{} says which model it is", folder));
  if (has_shape(r)) return r.ignore(entry, "model_config says what the model is");
  if (const Given* ours = r.find("model"); ours != nullptr && r.is_file() && ours->text != entry.text)
    return r.refuse_both(*ours, entry, "model and model_name name two models", "keep one of the two lines");
  r.set("model", entry.text, entry);
}

void finish_litgpt_model(Reading& r) {
  const auto is_given = [&](std::string_view name) { return r.find(of_model(name)) != nullptr; };
  if (!has_shape(r)) {
    for (const auto& name : {"padded_vocab_size", "padding_multiple"})
      if (const Given* entry = r.find(of_model(name))) r.ignore(*entry, "no size stands beside it");
    return;
  }
  const Given* first = nullptr;
  for (const auto& [theirs, ours] : kSizes)
    if (const Given* entry = r.find(of_model(theirs))) {
      if (first == nullptr) first = entry;
      r.set("model." + std::string(ours), entry->text, *entry);
    }
  vocabulary(r);
  if (first == nullptr) first = r.find(of_model("vocab_size"));
  for (const auto& [name, value] : kNeeded)
    if (!is_given(name))
      return r.refuse(*first, fmt::format("model_config has no {}, and LitGPT's default is no Llama's", name),
                      fmt::format("say {}: {}, if that is what it is", name, value));
  if (!is_given("intermediate_size"))
    return r.refuse(*first, "model_config has no intermediate_size, which LLaMAMLP needs", "");
  // The name says nothing beside a model_config; every number of this shape is replaced.
  r.suggest("model", "llama-5m");
  const int64_t heads = std::max<int64_t>(r.count(of_model("n_head")).value_or(32), 1);
  const std::pair<std::string_view, std::string> defaults[] = {
      {"model.max_position_embeddings", "4096"},
      {"model.num_hidden_layers", "16"},
      {"model.hidden_size", "4096"},
      {"model.num_attention_heads", std::to_string(heads)},
      {"model.num_key_value_heads", std::to_string(heads)},
      {"model.head_dim", std::to_string(std::max<int64_t>(r.count(of_model("n_embd")).value_or(4096) / heads, 1))},
      {"model.rope_theta", "10000"},
      {"model.rms_norm_eps", "1e-05"},
      {"model.tie_word_embeddings", "false"}};
  for (const auto& [setting, value] : defaults) r.suggest(setting, value);
}

}  // namespace trireme::dialects
